"""A value that no statement can hold but on a connection that has been told how to write it."""

from __future__ import annotations

from typing import Any

from django.db import connection
from psycopg.adapt import Dumper


class Money:
    """A value of a project's own kind."""


class MoneyDumper(Dumper):
    """Writes it."""

    def dump(self, obj: Any) -> bytes:
        """Return how it is written."""
        return b"7"


def teach_money() -> None:
    """Tell the thread's connection, and no other, how it is written."""
    connection.ensure_connection()
    connection.connection.adapters.register_dumper(Money, MoneyDumper)
