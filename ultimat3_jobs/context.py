"""The run a body is in: what it may ask of its job, and the tenant it works for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Literal, TypeVar, TypeVarTuple, overload
from uuid import UUID, uuid5

from ultimat3_jobs.cancellation import Cancellation
from ultimat3_jobs.control import Aborted
from ultimat3_jobs.durations import Duration
from ultimat3_jobs.event_checks import MatchValue
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.steps import waits
from ultimat3_jobs.steps.asked import check_name
from ultimat3_jobs.steps.steps import Steps
from ultimat3_jobs.steps.waits import ReceivedEvent
from ultimat3_jobs.vitals import Vitals

T = TypeVar("T")
Args = TypeVarTuple("Args")
Seen = TypeVar("Seen", bound="Attempt")

_tenant: ContextVar[str | None] = ContextVar("ultimat3_jobs_tenant", default=None)


def current_tenant() -> str | None:
    """Return the tenant of the run that is being executed, or None outside a run and for NO_TENANT."""
    return _tenant.get()


def install_tenant(tenant: str | None) -> None:
    """Make `tenant` the current one for the rest of this context. Each run has a context of its own."""
    _tenant.set(tenant)


def steps_of(run: Attempt) -> Steps:
    """Return what records the steps of a run. For what the package itself does in its body."""
    return run._steps


def vitals_of(run: Attempt) -> Vitals:
    """Return what a run shares with the worker that watches it."""
    return run._vitals


class Attempt:
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

    def seen_as(self, kind: type[Seen], job: ClaimedJob) -> Seen:
        """Return the same attempt as a body of the other kind gets it."""
        return kind(job, self.cancelled, self._attached, vitals=self._vitals)

    def _check_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise Aborted(f"run {self.run_id} was told to stop")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.run_id} attempt {self.attempt}/{self.max_attempts}>"


class Run(Attempt):
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

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[*Args], T],
        *args: *Args,
        returns: None = None,
        atomic: bool = False,
    ) -> T: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[*Args], object],
        *args: *Args,
        returns: type[T],
        atomic: bool = False,
    ) -> T: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[*Args], object],
        *args: *Args,
        returns: Any,
        atomic: bool = False,
    ) -> Any: ...
    def step(
        self,
        name: str,
        fn: Callable[[*Args], Any],
        *args: *Args,
        returns: Any = None,
        atomic: bool = False,
    ) -> Any:
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
            StepInvalid: where name, function or type cannot work. Nothing was done.
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
        waits.sleep(self._steps, first, second)

    def snooze(self, duration: Duration) -> None:
        """Let go of the worker and run this attempt again, from its start, after `duration`. Burns no attempt."""
        waits.snooze(self._steps, duration)

    @overload
    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: Literal[True],
        returns: type[T],
    ) -> ReceivedEvent[T]: ...
    @overload
    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: Literal[True],
        returns: Any = None,
    ) -> ReceivedEvent[Any]: ...
    @overload
    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: type[T],
    ) -> ReceivedEvent[T] | None: ...
    @overload
    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: Any = None,
    ) -> ReceivedEvent[Any] | None: ...
    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: Any = None,
    ) -> ReceivedEvent[Any] | None:
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
            event,
            match=match,
            timeout=timeout,
            required=required,
            returns=returns,
        )
