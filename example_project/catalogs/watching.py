"""Waits until every scan, every publication and the backfill have come to an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Count

from example_project.catalogs import broken
from example_project.catalogs.backfills import count_words
from example_project.catalogs.jobs import publish_catalog, scan_catalog
from example_project.catalogs.publishing import review_waiting
from example_project.catalogs.staging import waiting_in_outbox
from example_project.catalogs.worker_process import WorkerProcess
from ultimat3_jobs.models import Job
from ultimat3_jobs.states import FINAL

NAMES = (scan_catalog.name, publish_catalog.name, count_words.name)
LOOK_EVERY = 0.2
"""Seconds between two looks at the tables."""
STILL_FOR = 120.0
"""Seconds without any change after which something must be wrong: many leases, many delays."""


class NothingMoves(Exception):
    """Jobs are unfinished, a worker is alive, and yet nothing changes."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the jobs of this app are."""

    staged: int
    by_state: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """All jobs there are."""
        return self.staged + sum(count for _, count in self.by_state)

    @property
    def final(self) -> int:
        """Jobs that came to an end."""
        return sum(count for state, count in self.by_state if state in FINAL)


def look() -> Standing:
    """Read how far the jobs are."""
    # The outbox first: a job leaves it for the queue, and would be missed the other way round.
    staged = waiting_in_outbox(*NAMES).count()
    states = Job.objects.filter(name__in=NAMES).order_by("state").values_list("state")
    return Standing(staged, tuple(states.annotate(count=Count("id"))))


def wait_until_final(worker: WorkerProcess, on_progress: Callable[[Standing], None]) -> None:
    """Look at the tables until every job is final, and do meanwhile what people would: mend a catalog, review others.

    Args:
        worker: the worker that does the work.
        on_progress: told how far the jobs are, at each look.

    Raises:
        WorkerFailed: where the worker ended.
        NothingMoves: where nothing has changed for `STILL_FOR` seconds.
    """
    before, changed_at = look(), time.monotonic()
    on_progress(before)
    while before.final < before.total:
        worker.check()
        broken.mend_between_attempts()
        review_waiting()
        time.sleep(LOOK_EVERY)
        now = look()
        on_progress(now)
        if now != before:
            before, changed_at = now, time.monotonic()
        elif time.monotonic() - changed_at > STILL_FOR:
            left = now.total - now.final
            raise NothingMoves(f"{left} jobs are unfinished and nothing has changed for {STILL_FOR:.0f} s")
