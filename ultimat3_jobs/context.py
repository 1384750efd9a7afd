"""The run a body is in: what it may ask of its job, and the tenant it works for."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cached_property
from uuid import UUID

from ultimat3_jobs.cancellation import Cancellation
from ultimat3_jobs.control import Aborted
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.vitals import Vitals

_tenant: ContextVar[str | None] = ContextVar("ultimat3_jobs_tenant", default=None)


def current_tenant() -> str | None:
    """Return the tenant of the run that is being executed, or None outside a run and for NO_TENANT."""
    return _tenant.get()


def install_tenant(tenant: str | None) -> None:
    """Make `tenant` the current one for the rest of this context. Each run has a context of its own."""
    _tenant.set(tenant)


class _Attempt:
    """What a body may know of its attempt, and how it learns that it should stop."""

    def __init__(self, job: ClaimedJob, cancelled: Cancellation | None = None, *, vitals: Vitals | None = None) -> None:
        self.id: UUID = job.claim.id
        self.run_id: UUID = job.run_id
        self.attempt = job.attempt
        self.max_attempts = job.max_attempts
        self.tenant = job.tenant_id
        self.enqueued_by = job.enqueued_by
        self.cancelled = cancelled or Cancellation()
        self._name = job.name
        self._vitals = vitals or Vitals()

    @cached_property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that carries the job's name and id."""
        # Made where it is asked for: most bodies do not, and names of other releases would each leave one behind.
        logger = logging.getLogger(f"ultimat3_jobs.run.{self._name}")
        return logging.LoggerAdapter(logger, {"job_id": str(self.id), "attempt": self.attempt})

    def _check_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise Aborted(f"run {self.run_id} was told to stop")

    def _step_deadline(self, name: str = "") -> AbstractContextManager[None]:
        """Return what is to be entered around the call of a step: `step_timeout` bounds the block.

        Does nothing where the job has no such limit or no worker watches the time, as in tests. At the deadline
        `cancelled` is set; the block itself is not interrupted.
        """
        return self._vitals.step_limit(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.run_id} attempt {self.attempt}/{self.max_attempts}>"


class Run(_Attempt):
    """One attempt of one job, as its body gets it.

    Attributes:
        id: of the job's row.
        run_id: the same across attempts and moves between drivers.
        attempt: number of this attempt; 1 is the first.
        max_attempts: attempts at most.
        tenant: the tenant (text), or None for NO_TENANT.
        enqueued_by: who asked for the work. Attribution, never authority.
        cancelled: set when the run should stop: cancelled, its lease lost, or out of time. Hand it to what the body
            calls.
    """

    def check_cancelled(self) -> None:
        """Raise `Aborted` where the run should stop."""
        self._check_cancelled()

    def progress(self, done: float, total: float | None = None) -> None:
        """Tell how far the work is, for people who look at the job. Cheap: call it as often as you like.

        The worker writes the last one at most once a second, and with the end of the attempt, outside any transaction
        of the body. What an earlier attempt told stays until this one tells something.

        Args:
            done: how much is done, 0 or more.
            total: of how much; None where that is not known. An estimate may turn out too low.

        Raises:
            InputInvalid: where one of them is negative or no number.
        """
        self._vitals.tell(done, total)


class AsyncRun(_Attempt):
    """One attempt of one job, as an `async def` body gets it: what `Run` has, with methods that are awaited.

    Where the run should stop, its coroutine is cancelled as well: whatever it awaits raises `asyncio.CancelledError`.
    """

    async def check_cancelled(self) -> None:
        """Let the other bodies of the loop have their turn, then raise `Aborted` where the run should stop."""
        await asyncio.sleep(0)
        self._check_cancelled()

    async def progress(self, done: float, total: float | None = None) -> None:
        """Tell how far the work is, as `Run.progress` does."""
        self._vitals.tell(done, total)
