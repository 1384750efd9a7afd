"""Where backfills stand: statuses from what is declared and what has been swept, and which of them hold a deploy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from ultimat3_jobs.states import LIVE, State

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.errors import JobsError

COMPLETED = "completed"
"""The one outcome that the ledger keeps. How else a pass ended, its job says."""


class PassStatus(StrEnum):
    """Where one pass stands."""

    COMPLETED = "completed"
    RUNNING = "running"  # its job is live: queued, running or parked
    PAUSED = "paused"  # its job is live, and a person has paused it
    FAILED = "failed"  # it ended without completing
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # another had completed when it began: it swept nothing, and that is no failure

    @property
    def ended_well(self) -> bool:
        """Whether nobody has to do anything about it."""
        return self in (PassStatus.COMPLETED, PassStatus.SKIPPED)


class Status(StrEnum):
    """Where a declared backfill stands."""

    COMPLETED = "completed"
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PENDING = "pending"  # never swept
    EXCLUDED = "excluded"  # not meant for this environment
    UNKNOWN_ENVIRONMENT = "unknown-environment"  # meant for some, and nobody says which this one is
    UNKNOWN_TENANT = "unknown-tenant"  # the code that is to tell its tenant raises: no pass of it can start or go on


HOLDING = frozenset(
    {Status.PENDING, Status.FAILED, Status.CANCELLED, Status.UNKNOWN_ENVIRONMENT, Status.UNKNOWN_TENANT}
)
"""The statuses of which a deploy that needs the backfill must not go on."""


@dataclass(frozen=True)
class Pass:
    """One pass, as far as statuses go."""

    run_id: UUID
    name: str
    status: PassStatus


@dataclass(frozen=True)
class Standing:
    """Where one declared backfill stands, and the passes that say so."""

    name: str
    status: Status
    latest: Pass | None = None
    """The newest pass. After a completed one it may have failed, and the backfill stays completed."""
    completed: Pass | None = None
    """The newest that completed."""
    refusal: JobsError | None = None
    """Why nobody can tell its tenant."""

    @property
    def keeps_back(self) -> bool:
        """Whether a deploy must wait for it."""
        return keeps_back(self.status)

    def without_tenant(self, refusal: JobsError) -> Standing:
        """Return where it stands where nobody can tell its tenant: what is over, or not meant for here, stays so."""
        if self.status in (Status.COMPLETED, Status.EXCLUDED, Status.UNKNOWN_ENVIRONMENT):
            return replace(self, refusal=refusal)
        return replace(self, refusal=refusal, status=Status.UNKNOWN_TENANT)


@dataclass(frozen=True)
class Difference:
    """What is declared against what was swept."""

    standings: tuple[Standing, ...]
    """One for each declared backfill, in the order that they were given in."""
    undeclared: tuple[str, ...] = field(default=())
    """Names that have passes and no declaration any more, sorted."""

    @property
    def unswept(self) -> tuple[Standing, ...]:
        """Those that keep a deploy back."""
        return tuple(standing for standing in self.standings if standing.keeps_back)


def pass_status(outcome: str, job_state: str | None, *, paused: bool) -> PassStatus:
    """Return where a pass stands.

    Args:
        outcome: as the ledger has it; "" where it has none, or no row at all.
        job_state: of its job; None where that is gone.
        paused: whether a person has paused it.
    """
    if outcome == COMPLETED:
        return PassStatus.COMPLETED
    if job_state in LIVE:
        return PassStatus.PAUSED if paused else PassStatus.RUNNING
    if job_state == State.CANCELLED:
        return PassStatus.CANCELLED
    if job_state == State.DONE:  # what completes is written down
        return PassStatus.SKIPPED
    # Dead, failed, gone, or in a state that this build does not know.
    return PassStatus.FAILED


def keeps_back(status: Status) -> bool:
    """Whether a deploy must wait for a backfill of this status."""
    return status in HOLDING


def standing(definition: BackfillDefinition, passes: Sequence[Pass], *, environment: str) -> Standing:
    """Return where a declared backfill stands.

    Args:
        definition: of the backfill.
        passes: its passes, the newest first.
        environment: the name of the one that the code runs in; "" where nobody says.
    """
    latest = passes[0] if passes else None
    completed = next((one for one in passes if one.status is PassStatus.COMPLETED), None)
    if completed is not None:
        status = Status.COMPLETED
    elif definition.environments is not None and environment not in definition.environments:
        # Before what a pass came to: none can complete here.
        status = Status.EXCLUDED if environment else Status.UNKNOWN_ENVIRONMENT
    else:
        # What was skipped says nothing of the rows.
        swept = next((one for one in passes if one.status is not PassStatus.SKIPPED), None)
        status = Status.PENDING if swept is None else Status(swept.status.value)
    return Standing(definition.name, status, latest, completed)


def difference(
    definitions: Iterable[BackfillDefinition],
    passes: Iterable[Pass],
    *,
    environment: str,
    former_names: Mapping[str, str] | None = None,
) -> Difference:
    """Compare what is declared with what was swept.

    Args:
        definitions: of the declared backfills.
        passes: of all names, the newest first.
        environment: the name of the one that the code runs in; "" where nobody says.
        former_names: other names of declared backfills, each with the name that it goes by now.
    """
    renamed = former_names or {}
    by_name: dict[str, list[Pass]] = {}
    for one in passes:
        by_name.setdefault(renamed.get(one.name, one.name), []).append(one)
    standings = tuple(
        standing(definition, by_name.pop(definition.name, ()), environment=environment) for definition in definitions
    )
    return Difference(standings, tuple(sorted(by_name)))
