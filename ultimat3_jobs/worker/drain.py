"""The way down: let running jobs end, hand back the rest without burning an attempt."""

from __future__ import annotations

import contextlib
import logging
import queue
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import IntEnum

import msgspec

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import LONGEST_DEAF, with_second_try
from ultimat3_jobs.records import Nack
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic

LAST_WORDS = 5.0
"""Seconds for settlements that are being written when the drain's time is over."""


class Ending(IntEnum):
    """How a worker ended; its value is the exit code of the process."""

    DRAINED = 0  # every job that ran has ended
    HANDED_BACK = 3  # the drain's time was over; the rest was handed back
    AT_ONCE = 4  # a second signal, or the queue could not be told: the rest is swept when its leases lapse


def wind_down(inflight: Inflight) -> None:
    """Tell the runs of this process that their worker is to end: what can go on elsewhere lets go of it."""
    for one in inflight.all():
        one.vitals.winding_down.set()


def drain(
    driver: Driver,
    inflight: Inflight,
    *,
    bell: queue.SimpleQueue[None],
    at_once: Callable[[], bool],
    timeout: timedelta,
) -> Ending:
    """Wait for the runs of this process, then hand back those that did not end in time.

    Args:
        driver: the queue.
        inflight: the runs.
        bell: rung when a run ends, and when the answer of `at_once` changes.
        at_once: whether to end without waiting for anything.
        timeout: how long to wait.
    """
    wind_down(inflight)
    emit("jobs.worker.draining", running=len(inflight), timeout_seconds=timeout.total_seconds())
    if not _wait(inflight, bell, at_once, timeout.total_seconds()):
        return Ending.AT_ONCE
    # A run whose body has ended settles itself: handing it back would make it run again.
    left = [one for one in inflight.all() if inflight.end(one)]
    told = _hand_back(driver, left)
    for one in left:
        inflight.remove(one)
    _wait(inflight, bell, at_once, LAST_WORDS)
    if len(inflight) or not told:
        return Ending.AT_ONCE
    return Ending.HANDED_BACK if left else Ending.DRAINED


def _wait(inflight: Inflight, bell: queue.SimpleQueue[None], at_once: Callable[[], bool], seconds: float) -> bool:
    """Wait until no run is left, or for `seconds`; return False where it is to end at once."""
    until = monotonic() + seconds
    while len(inflight) and not at_once() and (left := until - monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            bell.get(timeout=min(left, LONGEST_DEAF))
    return not (len(inflight) and at_once())


def _hand_back(driver: Driver, left: Sequence[ActiveRun]) -> bool:
    """Give runs back whose bodies go on: threads cannot be ended. Return whether the queue could be told."""
    for one in left:
        one.run.cancelled.set()
    nacks = [msgspec.structs.replace(Nack.hand_back(one.job.claim), progress=one.vitals.progress) for one in left]
    try:
        landed = with_second_try(lambda: driver.nack(nacks))
    except Exception as error:
        emit("jobs.worker.hand-back-failed", level=logging.ERROR, exc_info=True, error=type(error).__name__)
        return False
    for one, gone in zip(left, landed, strict=True):
        job = one.job.claim.id
        emit("jobs.worker.handed-back", level=logging.WARNING, job=job, name=one.job.name, landed=gone)
    return True
