"""A move, where queue and outbox are one database: lock, queue, store and mark in one transaction.

A crash publishes nothing twice and loses nothing. Relays take turns on the lock; the second waits and then sees what
the first has left, so that nothing is overtaken.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import transaction

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.aside import count_failures, log_set_aside
from ultimat3_jobs.outbox.entries import Staged, read
from ultimat3_jobs.outbox.faults import Fault, fault_of
from ultimat3_jobs.outbox.offer import Offer, outcome_of
from ultimat3_jobs.outbox.waking import wake
from ultimat3_jobs.records import Receipt
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run


def move(alias: str) -> int:
    """Move one batch of committed rows into the queue; return how many were decided.

    Args:
        alias: of the database that holds both.

    Raises:
        Exception: what stopped the move.
    """
    try:
        return _move(alias, Offer())
    except Exception as error:
        if fault_of(error) is Fault.PASSING:
            raise
    return _move(alias, Offer(careful=True))


def _move(alias: str, offer: Offer) -> int:
    try:
        with transaction.atomic(using=alias):
            staged = run(alias, "pending", {"limit": get_settings().outbox.batch})
            readable, unreadable = read(staged)
            offer.culprits += unreadable
            offer.put(readable, alias)
            marks = [_mark(one, receipt) for one, receipt in offer.receipts]
            if marks:
                run(alias, "mark", {"rows": rows.encode(marks)})
    except Exception as error:
        if offer.careful or fault_of(error) is Fault.PASSING:
            # What was learnt of rows is kept, the move is not. What stopped it, and matters more, may stop this too.
            with suppress(Exception):
                count_failures(alias, offer.culprits)
        raise
    wake(offer.events)
    for (one, _), mark in zip(offer.receipts, marks, strict=True):
        if mark["outcome"] == OutboxEntry.Outcome.SET_ASIDE:
            log_set_aside(one.id, one.name, mark["error"])
    decided = len(marks) + count_failures(alias, offer.culprits)
    if offer.stopped_by is not None:
        raise offer.stopped_by
    return decided


def _mark(one: Staged, receipt: Receipt | None) -> dict[str, Any]:
    outcome, error = outcome_of(receipt)
    return {"id": one.id.hex, "outcome": outcome, "job_id": None if receipt is None else receipt.id.hex, "error": error}
