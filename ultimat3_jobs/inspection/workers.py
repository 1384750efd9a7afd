"""The workers that say they are alive, and what they serve."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.inspection.clock import clock
from ultimat3_jobs.models import JobLease
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.text import command_line


@dataclass(frozen=True, slots=True)
class AliveWorker:
    """One process that works.

    Attributes:
        id: of the worker.
        queues: that it serves.
        concurrency: jobs at once.
        burst: whether it ends where nothing is due.
        release: of the project's code that it runs; empty where the settings name none.
        since: when it said so first.
        until: when it counts as silent, should it say nothing more.
    """

    id: str
    queues: QueueSelection
    concurrency: int
    burst: bool
    release: str
    since: datetime
    until: datetime

    def serves(self, queue: str) -> bool:
        """Whether it takes jobs of a queue."""
        return queue not in self.queues.excluded and (not self.queues.only or queue in self.queues.only)


def alive_workers(queue: str | None = None) -> list[AliveWorker]:
    """Return the workers that are alive by the queue's clock, the oldest first.

    A worker that was killed counts until its lease lapses.

    Args:
        queue: only those that serve this one; None: all.
    """
    return [one for one in alive_at(clock()) if queue is None or one.serves(queue)]


def worker_command(queue: str) -> str:
    """Return the command line that starts a worker for a queue."""
    # A queue's name may begin like an option.
    return command_line("jobs_worker", *((f"--queues={queue}",) if queue.startswith("-") else ("--queues", queue)))


def alive_at(now: datetime) -> list[AliveWorker]:
    """Return the workers that are alive at a time of the queue's database, the oldest first."""
    rows = JobLease.objects.using(queue_alias()).filter(kind="worker", expires_at__gt=now)
    return [_worker(row) for row in rows.order_by("granted_at", "holder")]


def _worker(row: JobLease) -> AliveWorker:
    # Another release may say less of itself, or more.
    data: dict[str, Any] = row.data if isinstance(row.data, dict) else {}
    assert row.granted_at is not None and row.expires_at is not None  # noqa: S101, PT018 - they are written with it
    return AliveWorker(
        id=row.holder,
        queues=QueueSelection(tuple(data.get("only", ())), tuple(data.get("excluded", ()))),
        concurrency=data.get("concurrency", 0),
        burst=data.get("burst", False),
        release=data.get("release", ""),
        since=row.granted_at,
        until=row.expires_at,
    )
