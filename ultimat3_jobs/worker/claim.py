"""Flow 5/7, claim: receives free capacity, hands on claimed jobs under leases."""

from __future__ import annotations

from datetime import timedelta

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.worker.inflight import ActiveRun, monotonic


def claim(driver: Driver, *, worker: str, free: int, lease: timedelta, queues: QueueSelection) -> list[ActiveRun]:
    """Take at most `free` due jobs of the served queues."""
    # Measured from before the statement: what the worker believes of its lease is never later than the database.
    asked_at = monotonic()
    jobs = driver.claim(worker=worker, limit=free, lease=lease, queues=queues)
    return [ActiveRun(job, confirmed_at=asked_at) for job in jobs]
