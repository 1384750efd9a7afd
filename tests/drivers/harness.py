"""The database driver as the conformance suite sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from django.db import connection, transaction

from tests.locks import waiting_behind_this_session
from ultimat3_jobs.drivers import Driver, get_driver
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Claim
from ultimat3_jobs.testing.conformance import Harness

INSTANTS = {
    "x_jobs": (
        "run_at", "visible_at", "key_until", "wait_until", "created_at", "updated_at", "started_at", "finished_at",
    ),
    "x_job_steps": ("until",),
    "x_job_events": ("published_at", "expires_at"),
}  # fmt: skip


ROW_BY_ROW = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; SET random_page_cost = 1"
"""Has a session of PostgreSQL meet rows in the order of a batch, or of ids, unless the statement says otherwise."""
IN_THE_ORDER_OF_THE_TABLE = "; SET enable_indexscan = off"
"""Beside that, has it meet those that are looked up by a list of ids in the order in which the table has them."""


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
            for table, instants in INSTANTS.items():
                columns = ", ".join(earlier.format(column) for column in instants)
                cursor.execute(f"UPDATE {table} SET {columns}", {"seconds": seconds})

    def transaction(self) -> AbstractContextManager[object]:
        return transaction.atomic()

    def waits(self) -> bool:
        """Whether another connection waits for this one's transaction; on SQLite a thread that does shows nothing."""
        return connection.vendor != "postgresql" or self.waiting() > 0

    def waiting(self) -> int:
        """Return how many connections wait for locks of this one's transaction, or for others that do."""
        return waiting_behind_this_session()

    def claim_of(self, job: Job) -> Claim:
        """Return the claim that owns a job now."""
        assert job.claim_token is not None
        return Claim(job.id, job.claim_token)
