"""Which of the jobs that the installed code declares are backfills, and what those sweep."""

from __future__ import annotations

from ultimat3_jobs import registry
from ultimat3_jobs.backfills.definition import BackfillDefinition
from ultimat3_jobs.definition import JobDefinition


def backfill_of(job: JobDefinition | None) -> BackfillDefinition | None:
    """Return what a job sweeps, or None where it is no backfill, or there is no job."""
    found = None if job is None else job.backfill
    return found if isinstance(found, BackfillDefinition) else None


def declared_under(name: str) -> BackfillDefinition | None:
    """Return the backfill that is declared under a name, or under another of its own; None where none is."""
    return backfill_of(registry.find(name))


def declared_backfills() -> list[tuple[JobDefinition, BackfillDefinition]]:
    """Return every backfill once, as the job that it is and as what it sweeps, by name in the order of code points."""
    pairs = ((job, backfill_of(job)) for job in registry.all_jobs())
    return [(job, backfill) for job, backfill in pairs if backfill is not None]
