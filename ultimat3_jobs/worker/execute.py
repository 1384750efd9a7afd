"""Flow 6/7, execute: receives a claimed job, calls its body, hands on an outcome. Touches no queue."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from ultimat3_jobs import registry
from ultimat3_jobs.classify import decide
from ultimat3_jobs.context import Run
from ultimat3_jobs.control import Aborted, Suspended
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.errors import InputInvalid, JobTimeout, LeaseLost, ResultInvalid, SignalSwallowed
from ultimat3_jobs.failures import class_name, describe_failure
from ultimat3_jobs.outputs import encode_result
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.steps.steps import Steps
from ultimat3_jobs.worker.attempt import call_body, in_surroundings
from ultimat3_jobs.worker.outcome import (
    Buried,
    Committed,
    GivenUp,
    Outcome,
    Parked,
    Retrying,
    RolledBack,
    Succeeded,
    Suspending,
)

FIRST_PARK = timedelta(seconds=60)
LONGEST_PARK = timedelta(minutes=15)
_MOST_DOUBLINGS = 10

Transaction = Callable[[], AbstractContextManager[Callable[[str | None], None]]]
"""Opens the transaction of an atomic job, and gives what takes its result (JSON), writes the ack and may raise
`LeaseLost`."""


OpenSteps = Callable[[ClaimedJob, Run, JobDefinition], Steps]
"""Gives the run of an attempt what records its steps."""


def execute(
    job: ClaimedJob,
    run: Run,
    *,
    transaction: Transaction,
    open_steps: OpenSteps,
    overdue: Callable[[], JobTimeout | None] = lambda: None,
) -> Outcome:
    """Run one attempt and return what became of it. Whatever the body raises is an outcome, never an error here.

    Args:
        job: what was claimed.
        run: what its body gets.
        transaction: how an atomic body and its ack become one.
        open_steps: how the body's steps are recorded.
        overdue: tells the limit that the attempt has passed, if any. However such a body then fails, that is why.
    """
    definition = registry.find(job.name)
    if definition is None:
        # A rolling deploy runs old and new code side by side: a name unknown here is not a failure.
        delay = min(LONGEST_PARK, FIRST_PARK * 2 ** min(job.parks, _MOST_DOUBLINGS))
        return Parked(f"no job named {job.name!r} in the code of this worker"[:200], delay)
    try:
        values = definition.codec.decode(job.input)
    # What the types of the signature raise while they are made is as much of an outcome as what a body raises.
    except BaseException as error:
        return _failed(error, job, definition, hopeless="the stored input no longer fits the signature")
    steps = open_steps(job, run, definition)
    run.attach(steps)
    body = partial(call_body, definition, job, run, values)
    attempt = partial(_in_one, transaction) if definition.atomic else _alone
    try:
        return in_surroundings(job.tenant_id, partial(attempt, body, steps, job, definition))
    except _Ended as ended:
        return ended.outcome
    # SystemExit, KeyboardInterrupt and the like too: a body that raises them fails, and the worker goes on.
    except BaseException as error:
        timeout = overdue()
        return _signalled(error, run, steps, timeout) or _failed(
            _blamed(error, timeout), _counted(job, run), definition
        )


def fail(job: ClaimedJob, run: Run, error: JobTimeout) -> Outcome:
    """Return what becomes of an attempt whose body goes on past its limit."""
    definition = registry.find(job.name)
    if definition is None:  # a module that was reloaded meanwhile
        return GivenUp(f"no job named {job.name!r} is declared any more")
    return _failed(error, _counted(job, run), definition)


def _counted(job: ClaimedJob, run: Run) -> ClaimedJob:
    """Return the job with the number of the attempt as it counts by now: a sweep that got on counts anew."""
    return msgspec.structs.replace(job, attempt=run.attempt)


class _Ended(BaseException):
    """Rolls the transaction of an atomic job back although its body ended well."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def _alone(body: Callable[[], Any], steps: Steps, job: ClaimedJob, definition: JobDefinition) -> Outcome:
    result = body()
    if steps.lost:
        return GivenUp("another worker has the job, or it was cancelled")
    if steps.pending is not None:
        raise SignalSwallowed(
            f"the body of {definition.name} went on after the signal that suspends its run ({steps.pending.reason})",
            fix="except Exception: ...  # instead of `except BaseException` or a bare `except`",
        )
    try:
        return Succeeded(_encoded(result))
    except BaseException as error:
        return _result_refused(error, job, definition)


def _in_one(
    transaction: Transaction, body: Callable[[], Any], steps: Steps, job: ClaimedJob, definition: JobDefinition
) -> Outcome:
    with transaction() as finish:
        result = body()
        try:
            text = _encoded(result)
        except BaseException as error:
            raise _Ended(_result_refused(error, job, definition)) from None
        try:
            steps.flush()
            finish(text)
        except LeaseLost as error:
            raise _Ended(RolledBack(error.cause)) from None
    return Committed()


def _signalled(error: BaseException, run: Run, steps: Steps, timeout: JobTimeout | None) -> Outcome | None:
    """Return what a signal that ended the body asks for, or None where the body failed.

    A run that suspends itself past its limit has let go of its worker all the same.
    """
    if steps.lost:
        return GivenUp("another worker has the job, or it was cancelled")
    if steps.pending is not None and _is_suspension(error):
        return Suspending(steps.pending)
    if issubclass(type(error), Aborted) and run.cancelled.is_set() and timeout is None:
        return GivenUp("the run was told to stop, and stopped")
    return None


def _blamed(error: BaseException, timeout: JobTimeout | None) -> BaseException:
    """Return what an attempt failed with: past its limit that, whatever the body raised then."""
    if timeout is None:
        return error
    timeout.__cause__ = error
    return timeout


def _is_suspension(error: BaseException) -> bool:
    """Whether nothing but the signal ended the body. Tasks of an async body hand it on in a group."""
    # Not isinstance: an exception can lie about its class, or raise where it is asked.
    if issubclass(type(error), BaseExceptionGroup):
        return all(map(_is_suspension, error.exceptions))  # type: ignore[attr-defined]
    return issubclass(type(error), (Suspended, CancelledError))


def _encoded(result: Any) -> str | None:
    return encode_result(result, max_bytes=get_settings().max_result_bytes)


def _result_refused(error: BaseException, job: ClaimedJob, definition: JobDefinition) -> Outcome:
    done = "what it wrote is rolled back" if definition.atomic else "its work is done, so look before you retry"
    invalid = ResultInvalid(
        f"the body of {definition.name} ended well, but its result cannot be stored: {_cause(error)}",
        fix=f"return plain data or None  # {done}",
    )
    return _failed(invalid, job, definition, hopeless="the body ended well, but its result cannot be stored")


def _cause(error: BaseException) -> str:
    return error.cause if isinstance(error, InputInvalid) else class_name(type(error))


def _failed(error: BaseException, job: ClaimedJob, definition: JobDefinition, *, hopeless: str = "") -> Outcome:
    decision = decide(
        error, attempt=job.attempt, max_attempts=job.max_attempts, retry=definition.retry, hopeless=hopeless
    )
    body = f"{definition.func.__module__}.{definition.func.__qualname__}"
    failure = describe_failure(error, verdict=decision.verdict, body=body, rule=decision.rule)
    if decision.stop is None:
        return Retrying(failure, decision.delay)
    return Buried(failure, decision.stop, definition.retry.dead_letter)
