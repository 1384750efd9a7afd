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

from ultimat3_jobs.drivers import Capability, Driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import close_thread_connections
from ultimat3_jobs.records import Ack, ClaimedJob, Nack
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


def settle(driver: Driver, job: ClaimedJob, outcome: Outcome, *, patience: timedelta) -> bool:
    """Persist what became of a job; return whether it landed. Never raises.

    An atomic job that ended well has settled itself; of a run that was given up nothing is written.

    Args:
        driver: the queue.
        job: what was run.
        outcome: what became of it.
        patience: how long to go on trying where it cannot be written.
    """
    if isinstance(outcome, (Committed, RolledBack, GivenUp)):
        return _tell(job, outcome)
    write = _write(driver, job, outcome, look=_look_again_or_log)
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
            _log(job, outcome, landed)
            return landed


def settle_once(driver: Driver, job: ClaimedJob, outcome: Outcome) -> bool:
    """Persist what became of a job on the caller's own connection; return whether it landed.

    Raises:
        Exception: what kept it from being written. Nothing is tried again and no connection is closed.
    """
    if isinstance(outcome, (Committed, RolledBack, GivenUp)):
        return _tell(job, outcome)
    landed = _write(driver, job, outcome, look=_look_again)()
    _log(job, outcome, landed)
    return landed


def _tell(job: ClaimedJob, outcome: Committed | RolledBack | GivenUp) -> bool:
    """Log how a job ended of which nothing is to be written; return whether it landed."""
    if isinstance(outcome, Committed):
        _log(job, outcome, landed=True)
        return True
    if isinstance(outcome, GivenUp):
        # Why it had no right any more was told when it was found out.
        emit("jobs.job.given-up", job=job.claim.id, name=job.name, attempt=job.attempt, why=outcome.why)
        return False
    emit("jobs.lease.lost", level=logging.WARNING, job=job.claim.id, name=job.name, at="commit", why=outcome.why)
    return False


Look = Callable[[Driver, Nack], None]


def _write(driver: Driver, job: ClaimedJob, outcome: Unsettled, *, look: Look) -> Callable[[], bool]:
    if isinstance(outcome, Succeeded):
        ack = Ack(job.claim, outcome.result)
        return lambda: driver.ack([ack])[0]
    nack = _nack(job, outcome)
    return lambda: _nack_and_look(driver, nack, look)


def _nack_and_look(driver: Driver, nack: Nack, look: Look) -> bool:
    landed = driver.nack([nack])[0]
    if landed and nack.suspension is not None and nack.suspension.event and Capability.EVENTS in driver.capabilities:
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


def _log(job: ClaimedJob, outcome: Unsettled | Committed, landed: bool) -> None:
    if not landed:
        emit("jobs.lease.lost", level=logging.WARNING, job=job.claim.id, name=job.name, at="settle")
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
    emit(event, level=level, **fields)
