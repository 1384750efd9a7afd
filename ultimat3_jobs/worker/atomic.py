"""The transaction of an atomic job: what its body writes and its ack commit together, or neither does.

The ack is the last statement before the commit. It is fenced on the claim's token: where another worker was given the
job meanwhile, nothing of this run remains. No lock is held on the job's row while the body works, so that its lease
can be renewed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connections, transaction

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.drivers import Capability, Driver
from ultimat3_jobs.errors import DriverUnavailable, LeaseLost, TransactionBroken
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Ack
from ultimat3_jobs.worker.forks import leave_if_forked
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic

LONG = 5.0
"""Seconds from which an atomic body is logged: its open transaction holds up the vacuum of every table."""
LEASES_A_BODY = 3
"""Where writers take turns, a lease should be this many times longer than the longest atomic body."""

# What ends a transaction, as a statement of its own or as the last of several. A savepoint is the body's own affair.
_ENDS_THE_TRANSACTION = re.compile(
    r"\A(?:\s|;|/\*.*?\*/|--[^\n]*\n)*"
    r"(?:COMMIT\b|END\b|ABORT\b|PREPARE\s+TRANSACTION\b|ROLLBACK\b(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))"
    r"|;\s*(?:COMMIT|ABORT|ROLLBACK)(?:\s+(?:WORK|TRANSACTION))?[\s;]*\Z",
    re.IGNORECASE | re.DOTALL,
)


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
        self._landed = False
        self._alias, self._depth = "", 0
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
        alias = queue_alias()
        began_at = monotonic()
        process = os.getpid()
        try:
            with transaction.atomic(using=alias, durable=True):
                # Before the body reads: SQLite refuses a transaction that has read and then comes to write.
                self._driver.take_turn()
                with self._kept_whole(alias):
                    yield self._finish
            leave_if_forked(process)  # a hook that ran after the commit may have forked
        # SystemExit and the like too: raised by a hook, they come after the commit.
        except BaseException as error:
            leave_if_forked(process, error)
            if not (self._landed and self._is_committed(alias)):
                raise
            # Either the answer to the commit was lost, or a hook that ran after it raised.
            emit(
                "jobs.atomic.error-after-commit",
                level=logging.WARNING,
                exc_info=True,
                job=self._active.job.claim.id,
                name=self._active.job.name,
                error=type(error).__name__,
            )
        finally:
            self._warn_of_length(monotonic() - began_at)

    @contextmanager
    def _kept_whole(self, alias: str) -> Iterator[None]:
        """Keep the body from ending the transaction: what it wrote would be there without the ack, or the reverse."""
        connection = connections[alias]
        self._alias, self._depth = alias, len(connection.atomic_blocks)
        with connection.execute_wrapper(self._refuse_its_end):
            try:
                yield
            except BaseException as error:
                # Or the end of our own block would be taken for that of one which the body left open.
                while len(connection.atomic_blocks) > self._depth:
                    connection.atomic_blocks[-1].__exit__(type(error), error, None)
                raise

    def _refuse_its_end(self, execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        text = sql.as_string(None) if hasattr(sql, "as_string") else str(sql)
        if _ENDS_THE_TRANSACTION.search(text):
            raise self._broken("would end the transaction that it shares with its ack, by a statement of its own")
        return execute(sql, params, many, context)

    def _broken(self, what: str) -> TransactionBroken:
        return TransactionBroken(
            f"the body of the atomic job {self._active.job.name} {what}; what it wrote is undone",
            fix="with transaction.atomic(): ...  # a part that can be undone by itself; or declare the job without "
            "atomic=True",
        )

    def _finish(self, result: str | None) -> None:
        connection = connections[self._alias]
        if not connection.in_atomic_block or len(connection.atomic_blocks) != self._depth:
            raise self._broken("left a transaction.atomic() block open, or closed one that is not its own")
        claim = self._active.job.claim
        self.taken = self._inflight.end(self._active)
        if not self.taken:
            raise _lost(self._active, "was handed back when its worker had to stop, or had run out of time")
        self._landed = self._driver.ack([Ack(claim, result, self._active.vitals.progress)])[0]
        if not self._landed:
            raise _lost(self._active, "was given to another worker, or cancelled, while it ran")

    def _is_committed(self, alias: str) -> bool:
        """Whether the transaction is there. Where it is not known yet, the fenced settlement that follows decides."""
        try:
            if not connections[alias].is_usable():
                connections[alias].close()
            return self._driver.settled([self._active.job.claim])[0]
        except Exception:
            return False

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
