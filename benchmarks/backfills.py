"""The backfills that are measured, and the same work by hand: `python -m benchmarks.backfills NAME BATCH`.

By hand means what a careful person would write: pages by key, locked, one transaction a page, in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import django
from django.db import transaction
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Concat

MARKS = "BENCHMARK_MARKS"
"""Variable that names the file to which a sweep writes when each of its pages begins."""
BATCH = "BENCHMARK_BATCH"
"""Variable that says how many rows a page has."""
FAST = 1_000
"""Pages a second: as many as can be asked for, so that the rate holds nothing back."""


class Marks:
    """Writes down when each page begins, and how much memory the process has then."""

    def __init__(self) -> None:
        self._file: Any = None

    def __call__(self) -> None:
        if self._file is None:
            self._file = Path(os.environ[MARKS]).open("w", buffering=1)  # noqa: SIM115 - open as long as the process
        print(time.monotonic(), resident(), file=self._file)


def resident() -> int:
    """Return the bytes of memory that this process has now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux
        return 0


def update_rows(rows: Sequence[Any]) -> None:
    """Change the rows of a page with one statement."""
    _posts().filter(pk__in=[row.pk for row in rows]).update(slug=Concat(Value("post-"), F("title")))


def save_rows(rows: Sequence[Any]) -> None:
    """Change the rows of a page in Python, and write them together."""
    for row in rows:
        row.slug = f"post-{row.title}"
    _posts().bulk_update(rows, ["slug"])


def _posts() -> QuerySet[Any]:
    from benchmarks.models import Post

    return Post.objects.all()


def _marked() -> QuerySet[Any]:
    return _posts().filter(marked=True)


SWEPT: dict[str, tuple[Callable[[], QuerySet[Any]], Callable[[Sequence[Any]], None]]] = {
    "update": (_posts, update_rows),
    "instances": (_posts, save_rows),
    "sparse": (_marked, update_rows),
}
"""The source and the work of each backfill."""


def _declare() -> dict[str, Any]:
    from ultimat3_jobs import NO_TENANT, backfill

    marks = Marks()

    def one(name: str) -> Any:
        source, work = SWEPT[name]

        def handler(run: Any, rows: list[Any]) -> None:
            work(rows)

        declared = backfill(
            name=f"benchmarks.{name}",
            tenant=NO_TENANT,
            source=source,
            batch=int(os.environ.get(BATCH, "1000")),
            rate=FAST,
            throttle=marks,
        )
        return declared(handler)

    return {name: one(name) for name in SWEPT}


def by_hand(name: str, batch: int) -> float:
    """Do the work of a backfill by hand and return how many seconds that took.

    Args:
        name: one of `SWEPT`.
        batch: rows a page.
    """
    source, work = SWEPT[name]
    begun = time.monotonic()
    bound = source().order_by("-pk").values_list("pk", flat=True).first()
    after = 0
    while bound is not None:
        with transaction.atomic():
            page = source().filter(pk__gt=after, pk__lte=bound).order_by("pk").select_for_update(no_key=True)
            rows = list(page[:batch])
            work(rows)
        if len(rows) < batch:
            break
        after = rows[-1].pk
    return time.monotonic() - begun


if __name__ == "__main__":
    django.setup()
    print(json.dumps({"seconds": by_hand(sys.argv[1], int(sys.argv[2]))}))
else:
    BACKFILLS = _declare()
