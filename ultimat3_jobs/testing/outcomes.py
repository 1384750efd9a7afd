"""What an attempt that ran inline came to, in the words of a report."""

from __future__ import annotations

from ultimat3_jobs.failures import MAX_LABEL, class_name
from ultimat3_jobs.testing.report import DrainedOutcome
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


def named(outcome: Outcome) -> DrainedOutcome:
    """Return the name under which an outcome is reported."""
    match outcome:
        case Succeeded() | Committed():
            return "done"
        case RolledBack() | GivenUp():
            return "lost"
        case Retrying():
            return "retrying"
        case Buried(dead_letter=dead_letter):
            return "dead" if dead_letter else "failed"
        case Parked():
            return "parked"
        case Suspending():
            return "suspended"


def is_of(error: BaseException | None, outcome: Outcome) -> bool:
    """Whether what left the body is what failed the attempt, and no signal of the worker's own."""
    if error is None or not isinstance(outcome, (Retrying, Buried)):
        return False
    return outcome.failure.error_class == class_name(type(error))[:MAX_LABEL]


def text_of(outcome: Outcome) -> str:
    """Return what there is to say of an outcome."""
    match outcome:
        case Retrying(failure=failure) | Buried(failure=failure):
            return failure.text
        case Parked(reason=reason) | RolledBack(why=reason) | GivenUp(why=reason):
            return reason
        case Suspending(suspension=suspension):
            return suspension.reason
    return ""
