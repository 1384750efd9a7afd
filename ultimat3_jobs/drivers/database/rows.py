"""Records to rows and back. Batches travel as one JSON parameter, so that a statement has one text for any size."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from ultimat3_jobs.fields import utc_text
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import Ack, Claim, ClaimedJob, EnqueueRequest, Event, Lapse, Nack, NackKind, Progress
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.text import bounded

MAX_PARK_REASON = 200
_encoder = msgspec.json.Encoder()


def encode(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as the JSON text that the statements take as `:rows`."""
    return _encoder.encode(list(rows)).decode()


def encode_names(names: Iterable[str]) -> str:
    """Return names as the JSON array of text that the `claim` statement takes."""
    return _encoder.encode(list(names)).decode()


def encode_ids(ids: Iterable[UUID]) -> str:
    """Return ids as the `:rows` of the statements that take nothing else of a row."""
    return encode({"id": one.hex} for one in ids)


def new_id() -> str:
    """Return a fresh id as the rows carry it."""
    return uuid7().hex


def instant(moment: datetime | None) -> str | None:
    """Return an aware datetime as the text in UTC that both dialects read."""
    return None if moment is None else utc_text(moment)


def parse_instant(text: str) -> datetime:
    """Read what `instant` wrote."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def uuid(value: Any) -> UUID:
    """Return an id as the database gave it: a UUID, or its 32 digits."""
    return value if isinstance(value, UUID) else UUID(value)


def request_row(request: EnqueueRequest) -> dict[str, Any]:
    """An EnqueueRequest as a row of the `enqueue` and `stage` statements."""
    return {
        "id": request.id.hex,
        "name": request.name,
        "queue": request.queue,
        "input": request.input,
        "fingerprint": request.fingerprint,
        "idempotency_key": request.idempotency_key,
        "tenant_id": request.tenant_id,
        "max_attempts": request.max_attempts,
        "priority": request.priority,
        "run_at": instant(request.run_at),
        "delay": request.delay,
        "dedupe_for": request.dedupe_for,
        "while_running": request.while_running,
        "on_key_reuse": request.on_key_reuse,
        "enqueued_by": request.enqueued_by,
        "traceparent": request.traceparent,
        "requested_at": instant(request.requested_at),
    }


def event_row(event: Event) -> dict[str, Any]:
    """An Event as a row of the `stage_event` and `publish_events` statements."""
    return {
        "id": event.staged_id.hex,
        "name": event.name,
        "match": event.match,
        "payload": event.payload,
        "ttl": event.ttl,
        "requested_at": instant(event.requested_at),
    }


def claim_of(row: tuple[Any, ...]) -> Claim:
    """Return the claim with which a row of a fenced statement begins."""
    return Claim(uuid(row[0]), uuid(row[1]))


def claim_row(claim: Claim) -> dict[str, Any]:
    """A Claim as a row of the fenced statements."""
    return {"id": claim.id.hex, "token": claim.token.hex}


def ack_row(ack: Ack) -> dict[str, Any]:
    """An Ack as a row of the `ack` statement."""
    return claim_row(ack.claim) | {"result": ack.result, "progress": ack.progress}


def progress_row(one: Progress) -> dict[str, Any]:
    """A Progress as a row of the `progress` statement."""
    return claim_row(one.claim) | {"progress": one.text}


def nack_row(nack: Nack) -> dict[str, Any]:
    """A Nack as a row of the `nack` statement."""
    failure = nack.failure
    return claim_row(nack.claim) | {
        "kind": nack.kind,
        "delay": nack.suspension.delay if nack.suspension else nack.delay,
        "stop": nack.stop,
        "dead_letter": nack.dead_letter,
        "park_reason": bounded(nack.park_reason, MAX_PARK_REASON),
        "until": nack.suspension and instant(nack.suspension.until),
        "event": nack.suspension and nack.suspension.event,
        "match": nack.suspension and nack.suspension.match,
        "poll": nack.suspension and nack.suspension.poll,
        "text": failure and failure.text,
        "cause": failure and failure.cause,
        "error_class": failure and failure.error_class,
        "error_place": failure and failure.error_place,
        "progress": nack.progress,
    }


def failure_row(nack: Nack) -> dict[str, Any]:
    """A failed attempt as a row of the `log_failures` statement."""
    decision = nack.stop if nack.kind is NackKind.BURY else nack.kind
    failure = nack.failure
    return {
        "id": new_id(),
        "job_id": nack.claim.id.hex,
        "decision": decision,
        "message": failure and (failure.message or failure.text),
        "traceback": failure and failure.traceback,
        "rule": failure and failure.rule,
        "release": get_settings().release,
    }


def lapse(row: tuple[Any, ...]) -> Lapse:
    """A row of the `lapsed` statement as a Lapse."""
    return Lapse(uuid(row[0]), row[1])


def lapse_row(one: Lapse) -> dict[str, Any]:
    """A Lapse as a row of the `sweep` statement's `:seen`."""
    return {"id": one.id.hex, "visible_at": one.visible_at}


def claimed_job(row: tuple[Any, ...]) -> ClaimedJob:
    """A row of the `claim` statement as a ClaimedJob."""
    (
        job_id, token, run_id, name, queue, job_input, tenant_id, attempt, max_attempts, parks, lapses,
        enqueued_by, traceparent, _priority, _run_at,
    ) = row  # fmt: skip
    return ClaimedJob(
        claim=Claim(uuid(job_id), uuid(token)),
        run_id=uuid(run_id),
        name=name,
        queue=queue,
        input=job_input,
        tenant_id=tenant_id,
        attempt=attempt,
        max_attempts=max_attempts,
        parks=parks,
        lapses=lapses,
        enqueued_by=enqueued_by,
        traceparent=traceparent,
    )
