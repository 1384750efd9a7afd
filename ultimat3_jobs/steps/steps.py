"""The steps of one attempt: replayed where they are recorded, otherwise done and recorded under the claim's fence.

A plain step is done and then recorded: at least once. An atomic step commits what it wrote together with its record:
once. A sleep or a wait is recorded, and then the run lets go of its worker; the body is called again from its start
when the time has come, and comes past everything that is recorded without doing it again.
"""

from __future__ import annotations

import inspect
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from django.db import OperationalError, connections, transaction

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.control import Aborted, Suspended
from ultimat3_jobs.errors import (
    DriverUnavailable,
    InputInvalid,
    ResultInvalid,
    StepChanged,
    StepInTransaction,
    StepInvalid,
    StepNotAtomic,
    TransactionBroken,
)
from ultimat3_jobs.forks import leave_if_forked
from ultimat3_jobs.logs import emit
from ultimat3_jobs.outputs import OutputCodec, codec_for
from ultimat3_jobs.records import Capability, StepKind, StepRecord, StepState, StoredStep, Suspension
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sqlstates import AGAIN, sqlstate
from ultimat3_jobs.steps.asked import check_function, check_name, is_async
from ultimat3_jobs.steps.trace import Trace
from ultimat3_jobs.transactions import LONGEST_PAUSE, TRIES, FencedTransaction, in_raw_transaction

if TYPE_CHECKING:
    from ultimat3_jobs.cancellation import Cancellation
    from ultimat3_jobs.drivers import Driver
    from ultimat3_jobs.records import ClaimedJob
    from ultimat3_jobs.vitals import Vitals

Answer = TypeVar("Answer")
Deadline = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Replayed:
    """A step that is recorded: its value."""

    value: Any


@dataclass(frozen=True)
class Begun:
    """A step that is not recorded yet."""

    name: str
    codec: OutputCodec
    at: float


class Steps:
    """What `Run` and `AsyncRun` ask of the queue about steps. Its methods block.

    Args:
        driver: the queue.
        job: the claimed job.
        cancelled: set where the run is over, by whoever finds out.
        in_one: whether the job is atomic: what it does and its ack are one transaction.
        event_poll: how long a wait for an event goes without a look, should no publication wake it.
        deadline: entered around what a step calls, with its name.
        vitals: where the worker sees what an atomic step is about.

    Attributes:
        lost: whether a write was refused because the claim owns its job no longer.
        pending: the suspension that was asked for, also where the body kept its signal to itself.
    """

    def __init__(
        self,
        driver: Driver,
        job: ClaimedJob,
        cancelled: Cancellation,
        *,
        in_one: bool,
        event_poll: timedelta,
        deadline: Deadline,
        vitals: Vitals | None = None,
    ) -> None:
        self.driver = driver
        self.job = job
        self.event_poll = event_poll
        self._cancelled = cancelled
        self._in_one = in_one
        self.deadline = deadline
        self._vitals = vitals
        self._trace = Trace(driver, job.run_id, job=job.name)
        self._unwritten: list[StepRecord] = []
        self._inside = ""
        self.lost = False
        self.pending: Suspension | None = None

    def step(self, name: str, fn: Callable[..., Any], args: Sequence[Any], *, returns: Any, atomic: bool) -> Any:
        """Return the recorded value of a step, or call `fn`, record what it returns and return that, decoded.

        Raises:
            Aborted: where the run is over: it was cancelled, or another worker has the job.
            JobsError: where the step cannot work as it was asked for, or its result cannot be stored.
        """
        begun = self.begin(name, fn, returns=returns, atomic=atomic)
        if isinstance(begun, Replayed):
            return begun.value
        if is_async(fn):
            raise StepInvalid(
                f"step {name!r} was given an async def, which the plain body of {self.job.name} cannot await",
                fix="async def body(run, ...): await run.step(name, fn)  # or give it a plain function",
            )
        if not atomic:
            return self.finish(begun, self._call(begun, fn, args))
        if self._in_one:
            return self._within_the_job(begun, fn, args)
        return self._atomically(begun, fn, args)

    def begin(self, name: str, fn: Callable[..., Any], *, returns: Any, atomic: bool) -> Replayed | Begun:
        """Look a step up, and refuse what cannot work before anything is done."""
        name = check_name(name)
        check_function(name, fn)
        if atomic and is_async(fn):
            raise StepNotAtomic(
                f"the atomic step {name!r} was given an async def, and Django has no transaction that a coroutine can "
                "be in",
                fix="await run.step(name, fn, atomic=True)  # of a plain function, which is run in a thread",
            )
        self.require(Capability.STEPS, f"step {name!r}")
        self.require_a_place(f"step {name!r}", atomic=atomic)
        codec = codec_for(fn, returns)
        stored = self._trace.take(name, StepKind.STEP)
        if stored is not None:
            return Replayed(self.decode(codec, stored))
        self.check()
        return Begun(name, codec, time.monotonic())

    def finish(self, begun: Begun, result: Any) -> Any:
        """Record what a plain step returned, and return it decoded."""
        if self._in_a_block():
            raise TransactionBroken(
                f"the step {begun.name!r} of {self.job.name} left a transaction open on {queue_alias()!r}: neither "
                "what it wrote nor its record would be durable",
                fix="with transaction.atomic(): ...  # inside the function, closed before it returns",
            )
        record = self._record(begun, self._encode(begun, result))
        return begun.codec.decode(self.landed(self.driver.record_step(self.job.claim, record)).output)

    def record(
        self, name: str, kind: StepKind, *, state: StepState, delay: float | None, seq: int | None = None
    ) -> StepRecord:
        """Return a sleep or a wait as it is recorded; `seq` is the number that it has already."""
        return self._new_record(name, kind, state, seq=seq, delay=delay)

    def flush(self) -> None:
        """Record the steps of an atomic job, at its end: no lock is held on its row while its body works."""
        for record in self._unwritten:
            self.driver.record_step(self.job.claim, record)
        self._unwritten.clear()

    def check(self) -> None:
        """Raise `Aborted` where the run is over, and the suspension once more where the body kept it to itself."""
        if self.pending is not None:
            raise Suspended(self.pending)
        if self._cancelled.is_set():
            raise Aborted(f"run {self.job.run_id} was told to stop")

    def suspend(self, suspension: Suspension) -> NoReturn:
        """End this attempt of the body; it is called again when the time has come."""
        self.pending = suspension
        raise Suspended(suspension)

    def landed(self, answer: Answer | None) -> Answer:
        """Return the answer to a fenced write.

        Raises:
            Aborted: where it was refused.
        """
        if answer is None:
            self.lost = True
            self._cancelled.set()
            raise Aborted(f"run {self.job.run_id}: another worker has the job, or it was cancelled")
        return answer

    def require(self, needed: Capability, what: str) -> None:
        """Refuse what the queue's driver cannot do."""
        if needed not in self.driver.capabilities:
            raise DriverUnavailable(
                f"{what} of {self.job.name} needs a driver with {needed!r}, and {type(self.driver).__name__} is none",
                fix="use the database driver for jobs that have steps, sleeps or waits",
            )

    def require_a_place(self, what: str, *, atomic: bool = False) -> None:
        """Refuse what the transaction around it would undo, or make durable at another time than it says."""
        if self._inside:
            raise StepInTransaction(
                f"{what} of {self.job.name} was asked for inside {self._inside}, which is done whole or not at all",
                fix="@job(...)  # for what needs steps: let the page enqueue a job that has them",
            )
        if self._in_one:
            if not atomic:
                raise StepNotAtomic(
                    f"{what} of {self.job.name}: the job is atomic, and all it does is one transaction with its ack",
                    fix="run.step(name, fn, atomic=True); or declare the job without atomic=True",
                )
        elif self._in_a_block():
            kind = StepNotAtomic if atomic else StepInTransaction
            raise kind(
                f"{what} of {self.job.name} was asked for inside a transaction.atomic() on {queue_alias()!r}: its "
                "record would come and go with that transaction",
                fix="call it outside the block; with atomic=True a step and its record are one transaction",
            )

    @contextmanager
    def refused_inside(self, what: str) -> Iterator[None]:
        """Refuse steps, sleeps and waits in the block.

        Args:
            what: the block, for messages.
        """
        self._inside = what
        try:
            yield
        finally:
            self._inside = ""

    def decode(self, codec: OutputCodec, stored: StoredStep) -> Any:
        """Return the recorded value.

        Raises:
            StepChanged: where it is no longer of the type that the code declares.
        """
        try:
            return codec.decode(stored.output)
        except InputInvalid as error:
            raise StepChanged(
                f"step {stored.name!r} of run {self.job.run_id} ({self.job.name}): {error.cause}", fix=error.fix
            ) from None

    def name_of(self, name: str | None, kind: StepKind) -> str:
        """Return a checked name: the given one, or that of the next unnamed one of its kind."""
        if name is None:
            return self._trace.unnamed(kind)
        return check_name(name)

    def take(self, name: str, kind: StepKind) -> StoredStep | None:
        """Return what is recorded under a name, once."""
        return self._trace.take(name, kind)

    def timed(self, name: str, fn: Callable[..., Any], args: Sequence[Any], *, within: str = "") -> Any:
        """Return what a step's function returns. Its time counts from here: in the thread that calls it.

        Args:
            name: of the step, for its deadline.
            fn: what to call.
            args: its arguments.
            within: what it is a part of, for messages; the step where it is empty.
        """
        process = os.getpid()
        with self.deadline(name), self.named(within or f"step {name!r}"):
            try:
                result = fn(*args)
            except BaseException as error:
                leave_if_forked(process, error)
                raise
            leave_if_forked(process)  # a child would record the step, and commit, on its parent's connection
            return result

    @contextmanager
    def named(self, within: str) -> Iterator[None]:
        """Have what is raised in the block say in which step, or whatever else, it was raised."""
        try:
            yield
        except Exception as error:
            with suppress(Exception):  # an exception can refuse even this
                error.add_note(f"raised in {within}")
            raise

    def _call(self, begun: Begun, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        result = self.timed(begun.name, fn, args)
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(f"the function of step {begun.name!r} returned a coroutine, which nobody awaits here")
        return result

    def _atomically(self, begun: Begun, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        for left in reversed(range(TRIES)):
            one = FencedTransaction(
                self.driver,
                self.job,
                owner=f"the atomic step {begun.name!r} of {self.job.name}",
                is_committed=lambda: self.driver.recorded(self.job.claim, begun.name),
                vitals=self._vitals,
            )
            try:
                stored = self._in_transaction(one, begun, fn, args)
            except OperationalError as error:
                if not left or sqlstate(error) not in AGAIN:
                    raise
                emit("jobs.step.again", level=logging.WARNING, job=self.job.claim.id, step=begun.name, left=left)
                self._cancelled.wait(random.uniform(0, LONGEST_PAUSE))  # noqa: S311 - chance, not a secret
                self.check()
            else:
                break
        if self.pending is not None:  # by a hook of the commit, whose signal went no further
            raise Suspended(self.pending)
        if one.replaced:
            # What the run had set on its connection, its tenant's scoping perhaps, is gone: begin again on a sound one.
            self.suspend(Suspension(reason=f"the connection was lost at the commit of step {begun.name!r}"))
        return begun.codec.decode(stored.output)

    def _in_transaction(
        self, one: FencedTransaction, begun: Begun, fn: Callable[..., Any], args: Sequence[Any]
    ) -> StoredStep:
        stored: StoredStep | None = None

        def fence() -> bool:
            nonlocal stored
            stored = self.driver.record_step(self.job.claim, record)
            return stored is not None

        with one.open(alone=True):
            record = self._record(begun, self._encode(begun, self._call(begun, fn, args)))
            if not one.end_with(fence):
                self.landed(None)
        return self.landed(stored)

    def _within_the_job(self, begun: Begun, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        with transaction.atomic(using=queue_alias()):
            text = self._encode(begun, self._call(begun, fn, args))
        self._unwritten.append(self._record(begun, text))
        return begun.codec.decode(text)

    def _encode(self, begun: Begun, result: Any) -> str:
        try:
            return begun.codec.encode(result, max_bytes=get_settings().max_result_bytes)
        except InputInvalid as error:
            raise ResultInvalid(
                f"what step {begun.name!r} of {self.job.name} returned cannot be stored: {error.cause}", fix=error.fix
            ) from None

    def _record(self, begun: Begun, text: str) -> StepRecord:
        took = time.monotonic() - begun.at
        return self._new_record(begun.name, StepKind.STEP, StepState.DONE, output=text, took=took)

    def _new_record(
        self, name: str, kind: StepKind, state: StepState, *, seq: int | None = None, **values: Any
    ) -> StepRecord:
        return StepRecord(
            run_id=self.job.run_id,
            name=name,
            seq=self._trace.next_seq() if seq is None else seq,
            kind=kind,
            state=state,
            attempt=self.job.attempt,
            **values,
        )

    def _in_a_block(self) -> bool:
        """Whether the body has a transaction open. One that a test lends to the whole run is not the body's."""
        connection = connections[queue_alias()]
        blocks = connection.atomic_blocks
        if blocks:
            return not getattr(blocks[-1], "_from_testcase", False)
        if connection.connection is None:
            return False
        return not connection.autocommit or in_raw_transaction(connection)
