"""The run a body is in: what it may ask of its job, and the tenant it works for."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import timedelta
from functools import cached_property
from typing import Any, overload
from uuid import UUID, uuid5

from asgiref.sync import sync_to_async

from ultimat3_jobs.cancellation import Cancellation
from ultimat3_jobs.control import Aborted
from ultimat3_jobs.durations import Duration
from ultimat3_jobs.event_checks import MatchValue, check_event_name, match_text
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.steps import waits
from ultimat3_jobs.steps.asked import check_length, check_name, is_async
from ultimat3_jobs.steps.steps import Replayed, Steps
from ultimat3_jobs.steps.waits import ReceivedEvent
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

    def __init__(
        self,
        job: ClaimedJob,
        cancelled: Cancellation | None = None,
        steps: Steps | None = None,
        *,
        vitals: Vitals | None = None,
    ) -> None:
        self.id: UUID = job.claim.id
        self.run_id: UUID = job.run_id
        self.attempt = job.attempt
        self.max_attempts = job.max_attempts
        self.tenant = job.tenant_id
        self.enqueued_by = job.enqueued_by
        self.cancelled = cancelled or Cancellation()
        self._name = job.name
        self._vitals = vitals or Vitals()
        self._attached = steps

    def attach(self, steps: Steps) -> None:
        """Give the run what records its steps. The worker does so before the body is called."""
        self._attached = steps

    def step_key(self, name: str) -> str:
        """Return a key for a call to the outside: the same for this step on every attempt, and no other step's.

        Hand it to a provider as its idempotency key: a plain step may be done more than once.

        Args:
            name: of the step.

        Returns:
            A UUID as text (36 characters).
        """
        return str(uuid5(self.run_id, check_name(name)))

    @cached_property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that carries the job's name and id."""
        # Made where it is asked for: most bodies do not, and names of other releases would each leave one behind.
        logger = logging.getLogger(f"ultimat3_jobs.run.{self._name}")
        return logging.LoggerAdapter(logger, {"job_id": str(self.id), "attempt": self.attempt})

    def step_deadline(self, name: str) -> AbstractContextManager[None]:
        """Bound what a step calls to the job's `step_timeout`, for the length of the block.

        Does nothing where the job has no such limit or no worker watches the time, as in tests. At the deadline
        `cancelled` is set; the block itself is not interrupted.
        """
        return self._vitals.step_limit(name)

    @property
    def _steps(self) -> Steps:
        if self._attached is None:
            raise RuntimeError(
                "this run records no steps: it was made by hand. Let drain() of ultimat3_jobs.testing run the job"
            )
        return self._attached

    def _check_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise Aborted(f"run {self.run_id} was told to stop")

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

    def for_async(self, job: ClaimedJob) -> AsyncRun:
        """Return the same attempt as an `async def` body gets it."""
        return AsyncRun(job, self.cancelled, self._attached, vitals=self._vitals)

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

    def step(self, name: str, fn: Callable[..., Any], *args: Any, returns: Any = None, atomic: bool = False) -> Any:
        """Do `fn(*args)` once for this run: record what it returns, and give that back whenever the body is run again.

        A plain step is done, then recorded: where its worker dies between the two it is done again (at least once). An
        atomic step commits what `fn` writes through the ORM together with the record (exactly once).

        Args:
            name: of the step, unique in the run and the same on every attempt; 1 to 200 characters.
            fn: what to do.
            *args: its arguments. They are not recorded.
            returns: type of the result; None is the function's annotation. Without either, it comes back as JSON has
                it: a tuple as a list, a UUID as text. First run and replay give the same.
            atomic: commit what `fn` writes and the record in one transaction on the queue's database.

        Raises:
            StepDuplicate: where the name was used before in this run.
            StepChanged: where something else is recorded under the name, or a value of another type.
            StepNotAtomic: where an atomic step cannot be one transaction; StepInTransaction: where a plain one was
                asked for inside a transaction.
            StepInvalid, DeclarationInvalid: where name, function or type cannot work. Nothing was done.
            ResultInvalid: where the result cannot be stored. A plain step's work is done.
            Aborted: where the run is over. What an atomic step wrote is rolled back.
        """
        return self._steps.step(name, fn, args, returns=returns, atomic=atomic)

    @overload
    def sleep(self, duration: Duration, /) -> None: ...
    @overload
    def sleep(self, name: str, duration: Duration, /) -> None: ...
    def sleep(self, first: Any, second: Any = None, /) -> None:
        """Let go of the worker until a time has passed; then go on behind this call.

        Args:
            name: of the sleep, unique in the run. Without one, sleeps are counted in their order.
            duration: "3d", a timedelta, or seconds; from when it is first asked for. Zero or less is over at once.

        Raises:
            StepInvalid: where the length is none. StepInTransaction, StepNotAtomic: inside a transaction.
        """
        name, length = _sleep(first, second)
        waits.sleep(self._steps, name, length)

    def snooze(self, duration: Duration) -> None:
        """Let go of the worker and run this attempt again, from its start, after `duration`. Burns no attempt."""
        waits.snooze(self._steps, check_length("snooze", duration))

    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: Any = None,
    ) -> ReceivedEvent | None:
        """Let go of the worker until an event is published; return it, or None where the wait timed out.

        An event counts from the moment at which the job was enqueued, also where the run did not wait yet. A run gets
        each event once, in the order of publication.

        Args:
            name: of the wait, unique in the run.
            event: name of the event.
            match: what the event must have been published with: the same keys, the same values. None takes every event
                of the name.
            timeout: how long to wait, from when it is first asked for; None waits for ever.
            required: raise where the wait times out.
            returns: type of the payload; None gives it as JSON has it.

        Raises:
            EventTimeout: where the event is required and did not come in time.
            EventInvalid, StepInvalid: where it was asked for in a way that cannot work.
        """
        return waits.wait_for_event(
            self._steps,
            name,
            event=check_event_name(event),
            match=match_text(match),
            timeout=_timeout(timeout),
            required=required,
            returns=returns,
        )


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

    async def step(
        self, name: str, fn: Callable[..., Any], *args: Any, returns: Any = None, atomic: bool = False
    ) -> Any:
        """`Run.step` for async bodies. `fn` may be an `async def`, which is awaited, or a plain function.

        A plain function is called in the run's own thread, an atomic step's always: Django has no transaction that a
        coroutine can be in.
        """
        steps = self._steps
        if atomic:
            return await _in_slot(steps.step)(name, fn, args, returns=returns, atomic=True)
        begun = await _in_slot(steps.begin)(name, fn, returns=returns, atomic=False)
        if isinstance(begun, Replayed):
            return begun.value
        # Of what waits for the run's thread, the wait is none of the step's time.
        result = fn(*args) if is_async(fn) else await _in_slot(steps.timed)(begun, fn, args)
        if inspect.isawaitable(result):
            with steps.deadline(begun.name):
                result = await result
        return await _in_slot(steps.finish)(begun, result)

    @overload
    async def sleep(self, duration: Duration, /) -> None: ...
    @overload
    async def sleep(self, name: str, duration: Duration, /) -> None: ...
    async def sleep(self, first: Any, second: Any = None, /) -> None:
        """`Run.sleep` for async bodies."""
        name, length = _sleep(first, second)
        await _in_slot(waits.sleep)(self._steps, name, length)

    async def snooze(self, duration: Duration) -> None:
        """`Run.snooze` for async bodies."""
        await _in_slot(waits.snooze)(self._steps, check_length("snooze", duration))

    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: Any = None,
    ) -> ReceivedEvent | None:
        """`Run.wait_for_event` for async bodies."""
        return await _in_slot(waits.wait_for_event)(
            self._steps,
            name,
            event=check_event_name(event),
            match=match_text(match),
            timeout=_timeout(timeout),
            required=required,
            returns=returns,
        )


_in_slot = sync_to_async  # the thread of the run's slot: see ultimat3_jobs.worker.async_bodies


def _sleep(first: Any, second: Any) -> tuple[str | None, timedelta]:
    name, duration = (None, first) if second is None else (first, second)
    return name, check_length("sleep", duration)


def _timeout(value: Duration | None) -> timedelta | None:
    return None if value is None else check_length("timeout", value)
