"""Flow 7/7, settle: receives an outcome, persists it under the claim's fence.

Settling is no part of the retry decision: a settlement that cannot be written is tried again and then logged; work
that finished is never turned into work that failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from ultimat3_jobs.drivers import Capability, Driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import close_thread_connections
from ultimat3_jobs.records import Ack, ClaimedJob, Nack, Renewal
from ultimat3_jobs.worker.inflight import monotonic
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
    Unsettled,
)

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0


def settle(
    driver: Driver, job: ClaimedJob, outcome: Outcome, *, patience: timedelta, progress: str | None = None
) -> bool:
    """Persist what became of a job; return whether it landed. Never raises.

    An atomic job that ended well has settled itself; of a run that was given up nothing is written.

    Args:
        driver: the queue.
        job: what was run.
        outcome: what became of it.
        patience: how long to go on trying where it cannot be written.
        progress: the last one that the body told (JSON), which is stored with it.
    """
    if isinstance(outcome, (Committed, RolledBack, GivenUp)):
        return _tell(driver, job, outcome)
    write = _write(driver, job, outcome, progress, look=_look_again_or_log)
    pause = FIRST_PAUSE
    until = monotonic() + patience.total_seconds()
    while True:
        try:
            landed = write()
        except Exception as error:
            last = monotonic() + pause > until
            emit(
                "jobs.worker.settle-failed" if last else "jobs.worker.settle-retried",
                level=logging.ERROR if last else logging.WARNING,
                exc_info=last,
                job=job.claim.id,
                name=job.name,
                outcome=type(outcome).__name__,
                error=type(error).__name__,
            )
            close_thread_connections()
            if last:
                return False
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        else:
            _log(driver, job, outcome, landed)
            return landed


def settle_once(driver: Driver, job: ClaimedJob, outcome: Outcome, *, progress: str | None = None) -> bool:
    """Persist what became of a job on the caller's own connection; return whether it landed.

    Raises:
        Exception: what kept it from being written. Nothing is tried again and no connection is closed.
    """
    if isinstance(outcome, (Committed, RolledBack, GivenUp)):
        return _tell(driver, job, outcome)
    landed = _write(driver, job, outcome, progress, look=_look_again)()
    _log(driver, job, outcome, landed)
    return landed


def _tell(driver: Driver, job: ClaimedJob, outcome: Committed | RolledBack | GivenUp) -> bool:
    """Log how a job ended of which nothing is to be written; return whether it landed."""
    if isinstance(outcome, Committed):
        _log(driver, job, outcome, landed=True)
        return True
    if isinstance(outcome, GivenUp):
        # Why it had no right any more was told when it was found out.
        emit("jobs.job.given-up", job=job.claim.id, name=job.name, attempt=job.attempt, why=outcome.why)
        return False
    _tell_of_refusal(driver, job, at="commit", why=outcome.why)
    return False


def _tell_of_refusal(driver: Driver, job: ClaimedJob, *, at: str, **why: Any) -> None:
    """Log that a job was not this run's to end: it was cancelled, or another worker has it."""
    try:
        # A claim that could not settle its row renews nothing; it is told why.
        cancelled = driver.heartbeat([job.claim], lease=timedelta(minutes=1)) == [Renewal.CANCELLED]
    except Exception:
        cancelled = False
    if cancelled:
        emit("jobs.job.cancelled", job=job.claim.id, name=job.name, at=at)
    else:
        emit("jobs.lease.lost", level=logging.WARNING, job=job.claim.id, name=job.name, at=at, **why)


Look = Callable[[Driver, Nack], None]


def _write(
    driver: Driver, job: ClaimedJob, outcome: Unsettled, progress: str | None, *, look: Look
) -> Callable[[], bool]:
    if isinstance(outcome, Succeeded):
        ack = Ack(job.claim, outcome.result, progress)
        return lambda: driver.ack([ack])[0]
    nack = msgspec.structs.replace(_nack(job, outcome), progress=progress)
    return lambda: _nack_and_look(driver, nack, look)


def _nack_and_look(driver: Driver, nack: Nack, look: Look) -> bool:
    landed = driver.nack([nack])[0]
    # Where it is refused too: an earlier try may have landed whose answer was lost.
    if nack.suspension is not None and nack.suspension.event and Capability.EVENTS in driver.capabilities:
        # Behind the commit: whoever published meanwhile could not see that this run waits.
        look(driver, nack)
    return landed


def _look_again(driver: Driver, nack: Nack) -> None:
    driver.look_again([nack.claim.id])


def _look_again_or_log(driver: Driver, nack: Nack) -> None:
    """Never raises: the job is settled, and looks for its event again by itself."""
    try:
        _look_again(driver, nack)
    except Exception as error:
        emit("jobs.event.look-failed", level=logging.WARNING, job=nack.claim.id, error=type(error).__name__)
        close_thread_connections()


def _nack(job: ClaimedJob, outcome: Retrying | Buried | Parked | Suspending) -> Nack:
    match outcome:
        case Retrying(failure, delay):
            return Nack.retry(job.claim, delay=delay, failure=failure)
        case Buried(failure, stop, dead_letter):
            return Nack.bury(job.claim, stop=stop, failure=failure, dead_letter=dead_letter)
        case Parked(reason, delay):
            return Nack.park(job.claim, delay=delay, reason=reason)
        case Suspending(suspension):
            return Nack.suspend(job.claim, suspension)


def _log(driver: Driver, job: ClaimedJob, outcome: Unsettled | Committed, landed: bool) -> None:
    if not landed:
        _tell_of_refusal(driver, job, at="settle")
        return
    event, level = {
        Succeeded: ("jobs.job.done", logging.DEBUG),
        Committed: ("jobs.job.done", logging.DEBUG),
        Retrying: ("jobs.job.retrying", logging.WARNING),
        Buried: ("jobs.job.buried", logging.ERROR),
        Parked: ("jobs.job.parked", logging.WARNING),
        Suspending: ("jobs.job.suspended", logging.DEBUG),
    }[type(outcome)]
    fields: dict[str, Any] = {"job": job.claim.id, "name": job.name, "attempt": job.attempt}
    if isinstance(outcome, (Retrying, Buried)):
        fields |= {"error": outcome.failure.error_class, "verdict": outcome.failure.text.rpartition("verdict: ")[2]}
    if isinstance(outcome, Suspending):
        fields["why"] = outcome.suspension.reason
    if isinstance(outcome, Parked):
        fields["why"] = outcome.reason
    emit(event, level=level, **fields)
