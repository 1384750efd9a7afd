"""What steps and suspended runs cost: records, replays, and the looks of a worker past 100,000 runs that wait."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from django.db import connection

from benchmarks import jobs
from benchmarks.measurements import Sizes
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import ClaimedJob, QueueSelection, StepKind, StepRecord, StepState
from ultimat3_jobs.steps.trace import Trace

LEASE = timedelta(hours=1)
MEBIBYTE = 1024 * 1024
WAITS = Path(__file__).resolve().parent.parent / "tests" / "plans" / "sql"
OUTPUT = '"a result of some length, as most of them are"'
_numbers = itertools.count()


def _run_with(steps: int) -> ClaimedJob:
    """Return a claimed job whose run has recorded so many steps."""
    jobs.nothing.enqueue(number=-next(_numbers) - 1)
    (claimed,) = get_driver().claim(worker="w", limit=1, lease=LEASE, queues=QueueSelection())
    for number in range(steps):
        _record(claimed, number)
    return claimed


def _record(claimed: ClaimedJob, number: int) -> None:
    record = StepRecord(
        run_id=claimed.run_id,
        name=f"step-{number}",
        seq=number + 1,
        kind=StepKind.STEP,
        state=StepState.DONE,
        attempt=1,
        output=OUTPUT,
    )
    assert get_driver().record_step(claimed.claim, record) is not None


def _replay(claimed: ClaimedJob, steps: int) -> None:
    trace = Trace(get_driver(), claimed.run_id, job=claimed.name)
    for number in range(steps):
        assert trace.take(f"step-{number}", StepKind.STEP) is not None


def record(part: float) -> Callable[[Sizes], list[float]]:
    """Return what measures how many steps a second one run records, after others of its own."""

    def measure(sizes: Sizes) -> list[float]:
        steps = max(1, int(sizes.steps * part))
        claimed = _run_with(0)
        begun = time.perf_counter()
        for number in range(steps):
            _record(claimed, number)
        return [steps / (time.perf_counter() - begun)]

    return measure


def replay(part: float) -> Callable[[Sizes], list[float]]:
    """Return what measures how many recorded steps a second a run comes past."""

    def measure(sizes: Sizes) -> list[float]:
        steps = max(1, int(sizes.steps * part))
        claimed = _run_with(steps)
        begun = time.perf_counter()
        _replay(claimed, steps)
        return [steps / (time.perf_counter() - begun)]

    return measure


def replay_memory(sizes: Sizes) -> list[float]:
    """Come past all steps of a long run; MiB that Python held at the most meanwhile."""
    claimed = _run_with(sizes.steps)
    tracemalloc.start()
    try:
        _replay(claimed, sizes.steps)
        return [tracemalloc.get_traced_memory()[1] / MEBIBYTE]
    finally:
        tracemalloc.stop()


def looks(what: str, *, suspended: str = "") -> Callable[[Sizes], list[float]]:
    """Return what measures one claim, or one idle look for what is due, in microseconds.

    Args:
        what: "claim" or "promote".
        suspended: "sleep" or "wait": past so many runs in that state; none by default.
    """

    def measure(sizes: Sizes) -> list[float]:
        if suspended:
            _suspend(sizes.suspended, suspended)
        jobs.nothing.enqueue_many([{"number": -next(_numbers) - 1} for _ in range(sizes.looks)])
        driver = get_driver()
        taken = []
        for _ in range(sizes.looks):
            begun = time.perf_counter()
            if what == "claim":
                assert driver.claim(worker="w", limit=1, lease=LEASE, queues=QueueSelection())
            else:
                driver.promote(limit=500)
            taken.append((time.perf_counter() - begun) * 1_000_000)
        # At once: a delete by the ORM would read them all first, to look for what hangs on them.
        suspended_runs = Job.objects.filter(state="suspended")
        suspended_runs._raw_delete(suspended_runs.db)
        return taken

    return measure


def _suspend(count: int, kind: str) -> None:
    """Fill the queue with runs that are suspended for a day."""
    statement = (WAITS / connection.vendor / "waits.sql").read_text(encoding="utf-8")
    values: dict[str, str | int] = {
        "count": count,
        "base": 1 << 20,
        "kind": "suspended",
        "named": "review.done",
        "waiting_due": 0,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        if kind == "sleep":
            Job.objects.filter(state="suspended").update(wait_event="", wait_match="", wait_poll=None)
        if connection.vendor == "postgresql":  # what autovacuum does while three days pass
            cursor.execute("VACUUM ANALYZE x_jobs")
