"""What became of one attempt: small values that `execute` returns and `settle` persists."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ultimat3_jobs.records import Failure, Suspension
from ultimat3_jobs.states import Stop


@dataclass(frozen=True)
class Succeeded:
    """The body ended well."""

    result: str | None
    """JSON of what it returned."""


@dataclass(frozen=True)
class Committed:
    """The body ended well, and its ack is committed with what it wrote."""


@dataclass(frozen=True)
class RolledBack:
    """The body ended well, but its claim owned the job no longer: what it wrote is gone, and the job is another's."""

    why: str


@dataclass(frozen=True)
class Retrying:
    """The attempt failed; another follows after `delay`."""

    failure: Failure
    delay: timedelta


@dataclass(frozen=True)
class Buried:
    """The attempt failed; no other follows."""

    failure: Failure
    stop: Stop
    dead_letter: bool


@dataclass(frozen=True)
class Parked:
    """Nothing ran; look again after `delay`."""

    reason: str
    delay: timedelta


@dataclass(frozen=True)
class Suspending:
    """The body let go of its worker: it is called again when the time has come. No attempt is burnt."""

    suspension: Suspension


@dataclass(frozen=True)
class GivenUp:
    """The run had no right to end its job any more, whatever its body did: nothing is written."""

    why: str


Unsettled = Succeeded | Retrying | Buried | Parked | Suspending
"""What is still to be written to the job's row."""
Outcome = Unsettled | Committed | RolledBack | GivenUp
