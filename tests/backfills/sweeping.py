"""What tests of backfills declare and look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from django.db.models import F, Model

from tests.working import row, run_due
from ultimat3_jobs import NO_TENANT, Backfill, backfill
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import Job as JobRow

FAST = 1_000
"""Pages a second: a test does not wait for its rate."""


def declare(handler: Callable[[Any, list[Any]], Any] | None, model: type[Model], **options: Any) -> Backfill:
    """Declare a backfill over all rows of a model; without a handler it adds 1 to what was handled of each row."""

    def add_one(run: Any, rows: list[Any]) -> None:
        for one in rows:
            one.handled = F("handled") + 1
            one.save(update_fields=["handled"])

    work = handler or add_one

    def body(run: Any, rows: list[Any]) -> Any:
        return work(run, rows)

    declared = {
        "name": "t.backfill",
        "tenant": NO_TENANT,
        "source": model._base_manager.all,
        "rate": FAST,
        "signals": (),  # a server that is busy with other tests holds nothing up
    }
    return backfill(**{**declared, **options})(body)


def sweep(declared: Backfill, **options: Any) -> JobRow:
    """Start a pass, run what is due, and return the row of its job."""
    started = declared.enqueue(**options)
    run_due()
    return row(started)


def ledger(job: JobRow) -> Ledger:
    """Return the ledger's row of a pass."""
    return Ledger.objects.get(pk=job.run_id)


def handled(model: type[Model]) -> dict[int, int]:
    """Return how many rows were handled how often."""
    return dict(sorted(Counter(model._base_manager.values_list("handled", flat=True)).items()))
