"""The way down: let running jobs end, hand back the rest without burning an attempt."""

from __future__ import annotations

import logging
import queue
from datetime import timedelta
from enum import IntEnum

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Nack
from ultimat3_jobs.worker.inflight import Inflight, monotonic


class Ending(IntEnum):
    """How a worker ended; its value is the exit code of the process."""

    DRAINED = 0  # every job that ran has ended
    HANDED_BACK = 3  # the drain's time was over; the rest was handed back
    AT_ONCE = 4  # a second signal; the rest is swept when its leases lapse


def drain(driver: Driver, inflight: Inflight, mailbox: queue.SimpleQueue[str], *, timeout: timedelta) -> Ending:
    """Wait for the runs of this process, then hand back those that did not end in time.

    Args:
        driver: the queue.
        inflight: the runs.
        mailbox: gets a message whenever a run ends; "kill" ends the wait at once.
        timeout: how long to wait.
    """
    until = monotonic() + timeout.total_seconds()
    emit("jobs.worker.draining", running=len(inflight), timeout_seconds=timeout.total_seconds())
    while len(inflight):
        left = until - monotonic()
        if left <= 0:
            return _hand_back(driver, inflight)
        try:
            if mailbox.get(timeout=left) == "kill":
                return Ending.AT_ONCE
        except queue.Empty:
            continue
    return Ending.DRAINED


def _hand_back(driver: Driver, inflight: Inflight) -> Ending:
    left = inflight.all()
    for one in left:
        one.run.cancelled.set()
    landed = driver.nack([Nack.hand_back(one.job.claim) for one in left])
    for one, gone in zip(left, landed, strict=True):
        emit(
            "jobs.worker.handed-back",
            level=logging.WARNING,
            job=one.job.claim.id,
            name=one.job.name,
            landed=gone,
        )
    return Ending.HANDED_BACK if any(landed) or len(inflight) else Ending.DRAINED
