"""What is measured: each measurement is a function that returns one figure of one round."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.models import Max, Min

from benchmarks import jobs
from benchmarks.models import Line
from ultimat3_jobs import Job as Handle
from ultimat3_jobs.models import Job, OutboxEntry

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent
WORKER_TAKES = 120.0  # seconds, at most
MANY = 1_000  # rows in one call


@dataclass(frozen=True)
class Sizes:
    """How much one round does.

    Attributes:
        single: enqueues one by one.
        many: jobs enqueued in lots.
        drained: jobs that a worker finds.
        picked: jobs that an idle worker is given, one after another.
        rounds: of each measurement.
        steps: recorded in one long run.
        suspended: runs that sleep or wait while a worker looks for others.
        looks: of a worker.
        swept: rows that a backfill goes through.
        page: rows that it has in a page.
    """

    single: int = 400
    many: int = 5_000
    drained: int = 1_000
    picked: int = 6
    rounds: int = 3
    steps: int = 10_000
    suspended: int = 100_000
    looks: int = 50
    swept: int = 1_000_000
    page: int = 1_000


_numbers = itertools.count()


def empty() -> None:
    """Empty the tables, so that each round finds the same."""
    for model in (Job, OutboxEntry, Line):
        model._default_manager.all().delete()


def enqueue_outside(sizes: Sizes) -> list[float]:
    """Enqueue one by one outside a transaction: straight into the queue, one commit each. Per second."""
    return [_rate(sizes.single, lambda: jobs.nothing.enqueue(number=next(_numbers)))]


def enqueue_inside(sizes: Sizes) -> list[float]:
    """Enqueue one by one, each in a transaction of its own: staged in the outbox. Per second."""

    def one() -> None:
        with transaction.atomic():
            jobs.nothing.enqueue(number=next(_numbers))

    return [_rate(sizes.single, one)]


def enqueue_many(sizes: Sizes) -> list[float]:
    """Enqueue lots of 1,000 in one call each, outside a transaction. Per second."""
    lots = max(1, sizes.many // MANY)
    size = min(MANY, sizes.many)
    return [size * _rate(lots, lambda: jobs.nothing.enqueue_many([{"number": next(_numbers)} for _ in range(size)]))]


def drain(handle: Handle[..., Any]) -> Callable[[Sizes], list[float]]:
    """Return what measures how many jobs a second one worker gets done, from the first start to the last end."""

    def measure(sizes: Sizes) -> list[float]:
        handle.enqueue_many([{"number": next(_numbers)} for _ in range(sizes.drained)])
        with worker("--burst") as process:
            process.wait(WORKER_TAKES)
        done = Job.objects.filter(state="done")
        assert done.count() == sizes.drained
        span = done.aggregate(first=Min("started_at"), last=Max("finished_at"))
        return [sizes.drained / (span["last"] - span["first"]).total_seconds()]

    return measure


def pick_up(*, staged: bool) -> Callable[[Sizes], list[float]]:
    """Return what measures how long after its commit a job's body starts in an idle worker, in milliseconds."""

    def measure(sizes: Sizes) -> list[float]:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder, worker():
            file = Path(folder) / "starts"
            _pick_up(file, staged=False)  # the worker is up, and its connections are open
            waited = []
            for number in range(sizes.picked):
                # At ever another point between two looks of the worker.
                time.sleep((number * 0.618) % 1)
                waited.append(_pick_up(file, staged=staged) * 1_000)
        return waited

    return measure


def _pick_up(file: Path, *, staged: bool) -> float:
    number = next(_numbers)
    if staged:
        with transaction.atomic():
            jobs.clocked.enqueue(number=number, file=str(file))
    else:
        jobs.clocked.enqueue(number=number, file=str(file))
    committed = time.monotonic()
    until = committed + WORKER_TAKES
    while time.monotonic() < until:
        lines = file.read_text().splitlines() if file.exists() else []
        started = [float(line.split()[1]) for line in lines if line.split()[0] == str(number)]
        if started:
            return max(0.0, started[0] - committed)
        time.sleep(0.005)
    raise TimeoutError("the worker did not start the job")


def raw_insert(sizes: Sizes) -> list[float]:
    """Insert one row a commit by the database's own driver, nothing else. Commits per second."""
    with _raw() as (execute, mark):
        return [_rate(sizes.single, lambda: execute(f"INSERT INTO benchmarks_line (number) VALUES ({mark})", [1]))]


def raw_update(sizes: Sizes) -> list[float]:
    """Change one row a commit twice, as a claim and a settlement do at the least. Pairs per second."""
    with _raw() as (execute, mark):
        row = Line.objects.create(number=0).pk

        def pair() -> None:
            for number in (1, 2):
                execute(f"UPDATE benchmarks_line SET number = {mark} WHERE id = {mark}", [number, row])

        return [_rate(sizes.single, pair)]


@contextmanager
def _raw() -> Iterator[tuple[Callable[[str, list[int]], Any], str]]:
    """Yield the execute of a driver's connection in autocommit, and its mark of a parameter."""
    own = connection.copy()
    own.ensure_connection()
    try:
        yield own.connection.execute, "%s" if own.vendor == "postgresql" else "?"
    finally:
        own.close()


def _rate(count: int, one: Callable[[], Any]) -> float:
    one()  # the connection is open, and what is read once has been read
    begun = time.perf_counter()
    for _ in range(count):
        one()
    return count / (time.perf_counter() - begun)


@contextmanager
def worker(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Keep the worker command running in a process of its own for the length of the block, then have it drain."""
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "jobs_worker", *arguments], cwd=ROOT_DIRECTORY, env=os.environ
    )
    try:
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        status = process.wait(WORKER_TAKES)
        if status:
            raise RuntimeError(f"the worker ended with {status}")
    finally:
        process.kill()
        process.wait()
