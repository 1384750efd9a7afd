"""Column types of the package's own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.db import models

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def utc_text(moment: datetime) -> str:
    """Return an aware datetime as text in UTC of one width, so that it sorts as the instants do: years too."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


class InstantField(models.DateTimeField):  # type: ignore[type-arg]
    """An instant: always aware and in UTC in Python, whatever USE_TZ and the connection's time zone say.

    PostgreSQL keeps a `timestamptz`. SQLite keeps one fixed text format in UTC, which sorts as the instants do and
    which the named statements compare with SQLite's own clock.
    """

    def get_internal_type(self) -> str:
        return "InstantField"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "timestamp with time zone" if connection.vendor == "postgresql" else "text"

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError(f"{self.name} takes an aware datetime, not {value!r}")
            return value.astimezone(UTC)
        return value

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        value = value if prepared else self.get_prep_value(value)
        if isinstance(value, datetime) and connection.vendor != "postgresql":
            return utc_text(value)
        return value

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> datetime | None:
        if value is None:
            return None
        moment: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
        if moment.tzinfo is None:
            # With USE_TZ off, Django strips the zone that PostgreSQL's session is set to; SQLite's text is UTC.
            moment = moment.replace(
                tzinfo=ZoneInfo(connection.timezone_name) if connection.vendor == "postgresql" else UTC
            )
        return moment.astimezone(UTC)
