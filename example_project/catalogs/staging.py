"""Stages the scans: one transaction for each group of catalogs, and never one for what is known already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet

from example_project.catalogs import broken
from example_project.catalogs.jobs import SCAN_KEY, scan_catalog
from example_project.catalogs.models import Catalog
from example_project.catalogs.sources import Source, find_in_django
from ultimat3_jobs.models import Job, OutboxEntry

GROUP_ROLLED_BACK = "redirects"
"""The group whose transaction the demo rolls back, in each run: its catalogs are never scanned."""
AHEAD = 10
"""Priority of the broken catalogs: else a scan that is tried again waits for all that was due before it."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What one run found and staged, by group."""

    found: dict[str, int]
    staged: dict[str, int]
    rows_rolled_back: int


def stage_all() -> Staged:
    """Stage the scan of every catalog that needs one."""
    groups = find_in_django()
    rows_rolled_back = stage_and_roll_back(groups.pop(GROUP_ROLLED_BACK))
    groups = {broken.GROUP: stage_broken(), **groups}
    return Staged(
        found={group: len(sources) for group, sources in groups.items()},
        staged={
            group: stage_group(group, sources, priority=AHEAD if group == broken.GROUP else 0)
            for group, sources in groups.items()
        },
        rows_rolled_back=rows_rolled_back,
    )


def stage_group(group: str, sources: Iterable[Source], *, priority: int = 0) -> int:
    """Stage the scans of one group in one transaction; return how many."""
    with transaction.atomic():
        fresh = _without_known(group, sources)
        if fresh:
            scan_catalog.using(priority=priority).enqueue_many(
                {"group": group, "path": one.path, "checksum": one.checksum} for one in fresh
            )
    return len(fresh)


def stage_and_roll_back(sources: list[Source]) -> int:
    """Stage the scans of one group, count their rows, and roll it all back.

    Returns:
        The rows that its transaction saw before it was rolled back.
    """
    with transaction.atomic():
        stage_group(GROUP_ROLLED_BACK, sources)
        rows = waiting_in_outbox(scan_catalog.name).filter(tenant_id=GROUP_ROLLED_BACK).count()
        transaction.set_rollback(True)
    return rows


def stage_broken() -> list[Source]:
    """Return the demo's broken catalogs, written anew only where no job knows of them yet."""
    sources = [one.source for one in broken.ALL]
    if len(_without_known(broken.GROUP, sources)) == len(sources):
        broken.write_files()
    else:
        broken.restore_files()
    return sources


def waiting_in_outbox(*jobs: str) -> QuerySet[OutboxEntry]:
    """Return what is staged of the jobs of these names and no relay has taken yet."""
    return OutboxEntry.objects.filter(name__in=jobs, outcome__isnull=True)


def keys_under_way(job: str, group: str) -> set[str]:
    """Return the keys of one group that are staged for a job, and those that the queue knows, in whatever state."""
    # What leaves the outbox for the queue meanwhile is found there: not so the other way round.
    keys = set(waiting_in_outbox(job).filter(tenant_id=group).values_list("idempotency_key", flat=True))
    keys.update(Job.objects.filter(name=job, tenant_id=group).values_list("idempotency_key", flat=True))
    return keys


def _without_known(group: str, sources: Iterable[Source]) -> list[Source]:
    """Leave out what is on its way, what was scanned, and what was given up: dead letters wait for a person.

    A scan moves from the outbox to the queue and from there to the catalogs. Looking at them in this order,
    nothing that moves meanwhile is missed.
    """
    keys = keys_under_way(scan_catalog.name, group)
    # Finished jobs may be pruned; what they wrote down stays.
    scanned = set(Catalog.objects.filter(group=group).values_list("path", "checksum"))
    return [
        source
        for source in sources
        if (source.path, source.checksum) not in scanned
        and SCAN_KEY.format(path=source.path, checksum=source.checksum) not in keys
    ]
