"""Flow 3/7, relay: receives committed outbox rows in order, hands enqueue requests to the driver.

A move is one transaction: lock, queue, mark. A crash publishes nothing twice and loses nothing. Relays take turns on
the lock; the second waits and then sees what the first has left, so that nothing is overtaken.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import transaction

from ultimat3_jobs.aliases import outbox_alias
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.errors import KeyReused
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.aside import count_failures, log_set_aside
from ultimat3_jobs.outbox.entries import read
from ultimat3_jobs.outbox.faults import Fault, fault_of
from ultimat3_jobs.outbox.offer import Offer
from ultimat3_jobs.records import EnqueueRequest, Receipt
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run


def relay_once() -> int:
    """Move one batch of committed rows into the queue, in one transaction; return how many were decided.

    A row that cannot be published is set aside, and so is one whose key is held by a job with another input: committed
    work never vanishes, and does not block what is behind it.

    Raises:
        Exception: what stopped the move. Rows behind the one that was met by it have not overtaken it.
    """
    alias = outbox_alias()
    try:
        return _move(alias, Offer())
    except Exception as error:
        if fault_of(error) is Fault.PASSING:
            raise
    return _move(alias, Offer(careful=True))


def relay_all() -> int:
    """Move everything that is committed by now; return how many rows were decided.

    What is committed while it works may be left: callers that never stop committing cannot hold it up.
    """
    total = moved = relay_once()
    while moved >= get_settings().outbox.batch:
        moved = relay_once()
        total += moved
    return total


def _move(alias: str, offer: Offer) -> int:
    try:
        with transaction.atomic(using=alias):
            staged = run(alias, "pending", {"limit": get_settings().outbox.batch})
            requests, unreadable = read(staged)
            offer.culprits += unreadable
            offer.put(requests, alias)
            marks = [_mark(request, receipt) for request, receipt in offer.receipts]
            if marks:
                run(alias, "mark", {"rows": rows.encode(marks)})
    except Exception as error:
        if offer.careful or fault_of(error) is Fault.PASSING:
            # What was learnt of rows is kept, the move is not. What stopped it, and matters more, may stop this too.
            with suppress(Exception):
                count_failures(alias, offer.culprits)
        raise
    for (request, _), mark in zip(offer.receipts, marks, strict=True):
        if mark["outcome"] == OutboxEntry.Outcome.SET_ASIDE:
            log_set_aside(request.id, request.name, mark["error"])
    decided = len(marks) + count_failures(alias, offer.culprits)
    if offer.stopped_by is not None:
        raise offer.stopped_by
    return decided


def _mark(request: EnqueueRequest, receipt: Receipt) -> dict[str, Any]:
    outcome, error = OutboxEntry.Outcome.PUBLISHED, ""
    if receipt.refused:
        outcome = OutboxEntry.Outcome.SET_ASIDE
        error = f"{KeyReused.code}: the key is held by job {receipt.id} with another input"
    elif receipt.joined:
        outcome = OutboxEntry.Outcome.DEDUPED
    return {"id": request.id.hex, "outcome": outcome, "job_id": receipt.id.hex, "error": error}
