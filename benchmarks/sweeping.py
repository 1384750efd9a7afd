"""What backfills cost: a sweep by a worker against the same work by hand, and how its pages and its memory grow."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from benchmarks import backfills
from benchmarks.measurements import ROOT_DIRECTORY, Sizes, worker
from benchmarks.models import Post
from ultimat3_jobs.models import Backfill, Job, JobStep

HAND_TAKES = 900.0  # seconds, at most
SPARSE = 10_000
"""One row in so many is in the sparse source."""
PART = 10
"""The first, the middle and the last of so many parts of a sweep are looked at."""
MEBIBYTE = 1024 * 1024
FILL = {
    "postgresql": (
        "INSERT INTO benchmarks_post (title, slug, marked)"
        " SELECT 'number ' || n, '', n %% %s = 0 FROM generate_series(1, %s) AS n"
    ),
    "sqlite": (
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %s)"
        " INSERT INTO benchmarks_post (title, slug, marked) SELECT 'number ' || n, '', n %% %s = 0 FROM numbers"
    ),
}
Figures = dict[str, list[float]]


def against_hand(name: str, *, part: float = 1) -> Callable[[Sizes], Figures]:
    """Return what measures a sweep, and the same work by hand right before it.

    Args:
        name: of the backfill.
        part: of the rows.
    """

    def measure(sizes: Sizes) -> Figures:
        count = _count(sizes, part)
        by_hand = count / _by_hand(name, sizes, count)
        swept, marks = _sweep(name, sizes, count)
        assert not Post.objects.filter(slug="").exists()
        sweep = count / swept
        return {
            "by-hand": [by_hand],
            "sweep": [sweep],
            "share": [100 * sweep / by_hand],
            **_pages(marks),
            "memory-start": [marks[len(marks) // PART][1] / MEBIBYTE],
            "memory-end": [marks[-1][1] / MEBIBYTE],
        }

    return measure


def sparse(sizes: Sizes) -> Figures:
    """Sweep the few rows of a source that are spread over a large table."""
    count = _count(sizes, 1)
    seconds, marks = _sweep("sparse", sizes, count)
    return {"passed": [count / seconds], **_pages(marks)}


def _count(sizes: Sizes, part: float) -> int:
    return max(sizes.page, int(sizes.swept * (1 if connection.vendor == "postgresql" else 0.2) * part))


def _pages(marks: list[tuple[float, int]]) -> Figures:
    """Return the median milliseconds of a page at the start, in the middle and at the end."""
    took = [1_000 * (later - earlier) for (earlier, _), (later, _) in itertools.pairwise(marks)]
    took = took or [0.0]
    length = max(1, len(took) // PART)
    middle = (len(took) - length) // 2
    return {
        "page-start": [statistics.median(took[:length])],
        "page-middle": [statistics.median(took[middle : middle + length])],
        "page-end": [statistics.median(took[-length:])],
    }


def _fill(count: int) -> None:
    """Have as many rows as nobody has changed yet."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("TRUNCATE benchmarks_post")
            cursor.execute(FILL["postgresql"], [SPARSE, count])
            cursor.execute("VACUUM ANALYZE benchmarks_post")
            # So that no round pays for what another one has written.
            cursor.execute("CHECKPOINT")
        else:
            cursor.execute("DELETE FROM benchmarks_post")
            cursor.execute(FILL["sqlite"], [count, SPARSE])
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _by_hand(name: str, sizes: Sizes, count: int) -> float:
    _fill(count)
    command = [sys.executable, "-m", "benchmarks.backfills", name, str(sizes.page)]
    ran = subprocess.run(command, cwd=ROOT_DIRECTORY, stdout=subprocess.PIPE, text=True, check=True, timeout=HAND_TAKES)
    return float(json.loads(ran.stdout)["seconds"])


def _sweep(name: str, sizes: Sizes, count: int) -> tuple[float, list[tuple[float, int]]]:
    """Have a worker sweep; return the seconds from the start of its job to the end, and the marks of its pages."""
    _fill(count)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        file = Path(folder) / "marks"
        with _environment({backfills.MARKS: str(file), backfills.BATCH: str(sizes.page)}):
            started = backfills.BACKFILLS[name].enqueue(forced=True)
            with worker("--burst") as process:
                process.wait(HAND_TAKES)
        job = Job.objects.get(pk=started.id)
        assert job.state == "done", job.last_error or job.park_reason
        marks = [line.split() for line in file.read_text().splitlines()]
    for model in (Backfill, JobStep):
        model._default_manager.all().delete()
    assert job.started_at is not None
    assert job.finished_at is not None
    return (job.finished_at - job.started_at).total_seconds(), [(float(at), int(held)) for at, held in marks]


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Have these variables in the environment of processes that are started meanwhile."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
