"""Flow 3/7, relay: receives committed outbox rows in order, hands enqueue requests to the driver.

A move is one transaction: lock, queue, mark. A crash publishes nothing twice and loses nothing. Relays take turns on
the lock; the second waits and then sees what the first has left, so that nothing is overtaken.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction

from ultimat3_jobs.aliases import outbox_alias
from ultimat3_jobs.batches import batches
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.errors import KeyReused
from ultimat3_jobs.logs import emit
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.records import EnqueueRequest, Receipt
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run


def relay_once() -> int:
    """Move one batch of committed rows into the queue, in one transaction; return how many were decided.

    A row whose key is held by a job with another input is set aside: committed work never vanishes.
    """
    alias = outbox_alias()
    with transaction.atomic(using=alias):
        staged = run(alias, "pending", {"limit": get_settings().outbox.batch})
        if not staged:
            return 0
        requests = sorted(map(_request, staged), key=lambda request: (request.requested_at, request.id))
        # In parts of bounded size: inputs are as large as the settings allow, and a move takes many.
        receipts = [receipt for batch in batches(requests) for receipt in get_driver().enqueue(batch)]
        marks = [_mark(request, receipt) for request, receipt in zip(requests, receipts, strict=True)]
        run(alias, "mark", {"rows": rows.encode(marks)})
    for request, mark in zip(requests, marks, strict=True):
        if mark["outcome"] == OutboxEntry.Outcome.SET_ASIDE:
            emit(
                "jobs.outbox.set-aside", level=logging.ERROR, staged=request.id, name=request.name, error=mark["error"]
            )
    return len(marks)


def relay_all() -> int:
    """Move everything that is committed by now; return how many rows were decided.

    What is committed while it works may be left: callers that never stop committing cannot hold it up.
    """
    total = moved = relay_once()
    while moved >= get_settings().outbox.batch:
        moved = relay_once()
        total += moved
    return total


def _request(row: tuple[Any, ...]) -> EnqueueRequest:
    (
        staged_id, name, queue, job_input, fingerprint, idempotency_key, tenant_id, max_attempts, priority, run_at,
        dedupe_for, while_running, on_key_reuse, enqueued_by, traceparent, staged_at,
    ) = row  # fmt: skip
    return EnqueueRequest(
        id=rows.uuid(staged_id),
        name=name,
        queue=queue,
        input=job_input,
        fingerprint=fingerprint,
        idempotency_key=idempotency_key,
        tenant_id=tenant_id,
        max_attempts=max_attempts,
        priority=priority,
        run_at=rows.parse_instant(run_at),
        dedupe_for=dedupe_for,
        while_running=while_running,
        on_key_reuse=on_key_reuse,
        enqueued_by=enqueued_by,
        traceparent=traceparent,
        requested_at=rows.parse_instant(staged_at),
    )


def _mark(request: EnqueueRequest, receipt: Receipt) -> dict[str, Any]:
    outcome, error = OutboxEntry.Outcome.PUBLISHED, ""
    if receipt.refused:
        outcome = OutboxEntry.Outcome.SET_ASIDE
        error = f"{KeyReused.code}: the key is held by job {receipt.id} with another input"
    elif receipt.joined:
        outcome = OutboxEntry.Outcome.DEDUPED
    return {"id": request.id.hex, "outcome": outcome, "job_id": receipt.id.hex, "error": error}
