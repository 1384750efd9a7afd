"""What a drain tells of itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

DrainedOutcome = Literal["done", "retrying", "dead", "failed", "parked", "suspended", "lost"]


@dataclass(frozen=True)
class DrainedJob:
    """One attempt that a drain ran."""

    id: UUID
    """Of the job."""
    name: str
    """Of the job, as it was queued."""
    attempt: int
    """Its number; 1 is the first."""
    outcome: DrainedOutcome
    """How it ended: "done", "retrying" (failed, another attempt waits), "dead" or "failed" (no other follows), "parked"
    (no code knows the name), "suspended" (it sleeps, or waits for an event), or "lost" (its claim was gone when the
    outcome was to be written)."""
    error: BaseException | None = field(default=None, compare=False)
    """What the body raised."""
    text: str = field(default="", compare=False, repr=False)
    """Of a failure: traceback and verdict as they are stored with the job; why it is parked or suspended."""


@dataclass(frozen=True)
class DrainReport:
    """What one drain did."""

    jobs: tuple[DrainedJob, ...]
    """The attempts in the order in which they ran."""
    relayed: int
    """Staged rows that were moved into the queue, or joined a job there."""
    set_aside: tuple[str, ...]
    """Why staged rows could not be published, one text each."""

    @property
    def counts(self) -> dict[str, int]:
        """How many attempts ended in each outcome; outcomes that did not happen are left out."""
        return dict(Counter(one.outcome for one in self.jobs))

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """What the bodies raised, in order."""
        return tuple(one.error for one in self.jobs if one.error is not None)
