"""The backfill of the chaos run. Whatever imports this module declares it."""

from __future__ import annotations

from django.db.models import F

from tests.app.models import Item
from tests.chaos.marks import MARKS
from ultimat3_jobs import NO_TENANT, Retry, Run, backfill

SWEPT = 1_000  # rows that passes sweep, one after the other


@backfill(
    name="chaos.sweep",
    tenant=NO_TENANT,
    source=Item.objects.all,
    batch=10,
    rate=50,
    signals=(),
    retry=Retry(attempts=30, delay="50ms", max_delay="200ms"),
)
def sweeping(run: Run, rows: list[Item]) -> None:
    """Add 1 to each row: exactly once a pass."""
    with MARKS.inside("body"):
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)
