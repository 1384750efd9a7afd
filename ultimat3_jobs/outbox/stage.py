"""Flow 2/7, stage: receives enqueue requests, writes them on the caller's own connection and transaction.

A rollback, of a savepoint too, leaves no trace; a commit leaves the work durable. There is no hook on the commit
that a crash could lose.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connections

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.records import EnqueueRequest, Event
from ultimat3_jobs.sql import run


def take_turn(alias: str) -> None:
    """On SQLite, take the write lock: a transaction that reads first fails at once where it comes to write."""
    if connections[alias].vendor == "sqlite":
        run(alias, "pending", {"limit": 0})


def stage(alias: str, requests: Sequence[EnqueueRequest]) -> None:
    """Write requests to the outbox of `alias`, in order. Never waits on a key, never conflicts."""
    run(alias, "stage", {"rows": rows.encode(map(rows.request_row, requests))})


def stage_event(alias: str, event: Event) -> None:
    """Write an event to the outbox of `alias`."""
    run(alias, "stage_event", {"rows": rows.encode([rows.event_row(event)])})
