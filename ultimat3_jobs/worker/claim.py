"""Flow 5/7, claim: receives free capacity, hands on claimed jobs under leases."""

from __future__ import annotations

from datetime import timedelta

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.worker.inflight import ActiveRun, monotonic


def claim(
    driver: Driver, *, worker: str, free: int, lease: timedelta, queues: QueueSelection, lapsed: int
) -> list[ActiveRun]:
    """Take at most `free` due jobs of the served queues, at most `lapsed` of them from workers that went silent."""
    asked_at = monotonic()
    jobs = driver.claim(worker=worker, limit=free, lease=lease, queues=queues, lapsed=lapsed)
    # What the worker believes of its lease is never later than the database; a lease begins after the wait for a turn.
    confirmed_at = monotonic() if driver.one_writer else asked_at
    return [ActiveRun(job, confirmed_at=confirmed_at) for job in jobs]
