"""The transaction of an atomic job: what its body writes and its ack commit together, or neither does.

The ack is the last statement before the commit, and the fence of the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from ultimat3_jobs.drivers import Capability, Driver
from ultimat3_jobs.errors import DriverUnavailable, LeaseLost
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Ack
from ultimat3_jobs.transactions import FencedTransaction
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic

LONG = 5.0
"""Seconds from which an atomic body is logged: its open transaction holds up the vacuum of every table."""
LEASES_A_BODY = 3
"""Where writers take turns, a lease should be this many times longer than the longest atomic body."""


class AtomicEnding:
    """How one atomic run ends: the right to end it, its fence, and what became of its commit.

    Attributes:
        taken: whether this run got the right to end its job. It then settles whatever comes of the commit.
    """

    def __init__(self, driver: Driver, inflight: Inflight, active: ActiveRun, *, lease: timedelta) -> None:
        self._lease = lease
        self._driver = driver
        self._inflight = inflight
        self._active = active
        self._transaction = FencedTransaction(
            driver,
            active.job,
            owner=f"the body of the atomic job {active.job.name}",
            is_committed=lambda: driver.settled([active.job.claim])[0],
            vitals=active.vitals,
        )
        self.taken = False

    @contextmanager
    def transaction(self) -> Iterator[Callable[[str | None], None]]:
        """Open the body's transaction; what it gives must be called with the result (JSON) when the body has ended.

        Raises:
            LeaseLost: where the claim owns the job no longer. The transaction is rolled back.
            DriverUnavailable: where the queue cannot share a transaction with the body.
            TransactionBroken: where the body would end the transaction, or left a block of it open.
        """
        if Capability.JOINS_TRANSACTION not in self._driver.capabilities:
            raise DriverUnavailable(
                f"the job {self._active.job.name} is atomic, and this driver cannot share its transaction",
                fix="use the database driver, or declare the job without atomic=True",
            )
        began_at = monotonic()
        try:
            with self._transaction.open():
                yield self._finish
        finally:
            self._warn_of_length(monotonic() - began_at)

    def _finish(self, result: str | None) -> None:
        if not self._transaction.end_with(lambda: self._end(result)):
            raise _lost(self._active, "was given to another worker, or cancelled, while it ran")

    def _end(self, result: str | None) -> bool:
        self.taken = self._inflight.end(self._active)
        if not self.taken:
            raise _lost(self._active, "was handed back when its worker had to stop, or had run out of time")
        return self._driver.ack([Ack(self._active.job.claim, result, self._active.vitals.progress)])[0]

    def _warn_of_length(self, seconds: float) -> None:
        short_lease = self._driver.one_writer and seconds * LEASES_A_BODY > self._lease.total_seconds()
        if seconds > LONG or short_lease:
            emit(
                "jobs.atomic.long",
                level=logging.WARNING,
                job=self._active.job.claim.id,
                name=self._active.job.name,
                seconds=round(seconds, 3),
                lease_seconds=self._lease.total_seconds(),
            )


def _lost(active: ActiveRun, what: str) -> LeaseLost:
    return LeaseLost(
        f"job {active.job.claim.id} ({active.job.name}) {what}: what this run wrote is rolled back",
        fix=f"python manage.py jobs show {active.job.claim.id}  # whoever has the job now ends it",
    )
