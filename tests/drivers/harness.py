"""The database driver as the conformance suite sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from django.db import connection, transaction

from ultimat3_jobs.drivers import Driver, get_driver
from ultimat3_jobs.testing.conformance import Harness

INSTANTS = ("run_at", "visible_at", "key_until", "created_at", "updated_at", "started_at", "finished_at")


class DatabaseHarness(Harness):
    """The queue in the test database."""

    def driver(self) -> Driver:
        return get_driver()

    def advance(self, seconds: float) -> None:
        """Let time pass: the database's clock cannot be moved, so every row becomes older."""
        earlier = {
            "postgresql": "{0} = {0} - make_interval(secs => %(seconds)s)",
            "sqlite": "{0} = strftime('%%Y-%%m-%%d %%H:%%M:%%f', {0}, (-%(seconds)s) || ' seconds') || '000'",
        }[connection.vendor]
        with connection.cursor() as cursor:
            columns = ", ".join(earlier.format(column) for column in INSTANTS)
            cursor.execute(f"UPDATE x_jobs SET {columns}", {"seconds": seconds})

    def transaction(self) -> AbstractContextManager[object]:
        return transaction.atomic()

    def waits(self) -> bool:
        if connection.vendor != "postgresql":
            return True  # a thread that waits for the one write lock shows nothing
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return cursor.fetchone()[0] > 0
