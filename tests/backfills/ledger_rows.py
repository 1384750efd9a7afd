"""Rows of the ledger, as passes leave them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Backfill

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def ledger_row(name: str, *, day: int = 0, **values: Any) -> Backfill:
    """Insert the row of a pass that began on this day of a year, and return it."""
    began = LONG_AGO + timedelta(days=day)
    ended = {"finished_at": began} if values.get("outcome") == "completed" else {}
    return Backfill.objects.create(
        **{"run_id": uuid7(), "table": "blog_post", "batch": 100, "created_at": began, "updated_at": began}
        | ended
        | {"name": name}
        | values
    )
