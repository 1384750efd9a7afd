"""Flow 1/7, enqueue: receives a job and its input, hands an EnqueueRequest to the outbox or to the driver."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import OperationalError, transaction

from ultimat3_jobs.aliases import in_transaction, outbox_alias, queue_alias
from ultimat3_jobs.batches import batches
from ultimat3_jobs.definition import JobDefinition, OnConflict
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.errors import (
    DuplicateJob,
    InputInvalid,
    JobsError,
    KeyReused,
    SettingsInvalid,
)
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.logs import emit
from ultimat3_jobs.outbox.admission import admit
from ultimat3_jobs.outbox.stage import stage
from ultimat3_jobs.records import EnqueueRequest, Receipt
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sqlstates import DEADLOCK, sqlstate

DEADLOCK_TRIES = 3


class EnqueueResult(msgspec.Struct, frozen=True):
    """What became of an enqueue.

    Attributes:
        id: of the job that represents the work; of the staged row where it was staged, which becomes the job's.
        run_id: of that job's run.
        deduped: whether a row already held the key; None where the row was staged and the relay decides.
        staged: whether it waits for the commit of the caller's transaction.
    """

    id: UUID
    run_id: UUID
    deduped: bool | None
    staged: bool


@dataclass(frozen=True)
class EnqueueOptions:
    """What one enqueue changes of what the job declares. None leaves the declaration in force."""

    run_at: datetime | None = None
    delay: timedelta = timedelta(0)
    priority: int | None = None
    queue: str | None = None
    on_conflict: OnConflict = "join"
    enqueued_by: str = ""
    database: str | None = None


def build_request(
    definition: JobDefinition, options: EnqueueOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> EnqueueRequest:
    """Validate an input and return the complete request for it.

    Raises:
        InputInvalid, IdempotencyRequired, TenantRequired: where input, key or tenant cannot be stored.
    """
    settings = get_settings()
    encoded = definition.codec.encode(args, kwargs, max_bytes=settings.max_input_bytes)
    return EnqueueRequest(
        id=uuid7(),
        name=definition.name,
        queue=options.queue or definition.queue or settings.default_queue,
        input=encoded.text,
        fingerprint=hashlib.sha256(encoded.text.encode()).hexdigest(),
        idempotency_key=definition.key_of(encoded.values),
        tenant_id=definition.tenant_of(encoded.values),
        max_attempts=definition.retry.attempts,
        priority=definition.priority if options.priority is None else options.priority,
        run_at=options.run_at,
        delay=options.delay.total_seconds(),
        dedupe_for=None if definition.dedupe_for is None else definition.dedupe_for.total_seconds(),
        # An enqueue that wants an error where the key is held asks for nothing to follow.
        while_running="join" if options.on_conflict == "error" else definition.while_running,
        on_key_reuse=definition.on_key_reuse,
        enqueued_by=options.enqueued_by,
    )


def build_batch(
    definition: JobDefinition, options: EnqueueOptions, inputs: Iterable[Mapping[str, Any]]
) -> list[EnqueueRequest]:
    """Validate inputs, each the keyword arguments of one enqueue, and return their requests in order.

    Raises:
        JobsError: what refuses the first bad one, with its position.
    """
    requests = []
    for position, given in enumerate(inputs):
        try:
            if not isinstance(given, Mapping):
                raise InputInvalid(
                    f"the value at `$` is of type {type(given).__name__}, not the keyword arguments of one enqueue",
                    fix=f"enqueue_many([{{{', '.join(f'{name!r}: ...' for name in definition.codec.names)}}}])",
                )
            requests.append(build_request(definition, options, (), given))
        except JobsError as error:
            raise type(error)(f"input {position} of the batch: {error.cause}", fix=error.fix) from None
    return requests


def submit(
    requests: Sequence[EnqueueRequest], *, on_conflict: OnConflict, database: str | None = None
) -> list[EnqueueResult]:
    """Stage requests in the open transaction, or queue them where none is open. All of them or none.

    Args:
        requests: what to enqueue.
        on_conflict: what to do where a key is held.
        database: alias whose transaction is meant; None: the one that the routers give for the outbox.

    Raises:
        DuplicateJob: where a key is held and `on_conflict` is "error".
        KeyReused: where a key is held by a row with another input.
        OutboxNeedsTransaction: where the mode is "required" and no transaction is open.
        SettingsInvalid: where that database has no outbox, or the mode is "direct" and the queue is not in it.
        MigrationMissing: where this app's tables are not there yet.
    """
    if not requests:
        return []
    alias, queue = outbox_alias(database), queue_alias()
    is_open = admit(alias, requests[0].name, needs="x_jobs")
    mode = get_settings().outbox.mode
    if is_open and mode == "direct" and alias != queue:
        raise SettingsInvalid(
            f'OUTBOX["MODE"] is "direct" and the queue is in {queue!r}: its rows cannot commit with a transaction on '
            f"{alias!r}",
            fix='ULTIMAT3_JOBS["OUTBOX"]["MODE"] = "auto"',
        )
    if is_open and mode != "direct":
        return _stage(alias, requests, on_conflict)
    return _queue(requests, on_conflict, in_batch=is_open or len(requests) > 1)


def queue_at_once(request: EnqueueRequest, *, on_conflict: OnConflict) -> EnqueueResult:
    """Queue a request straight, whatever the mode of the outbox: for people, whose request belongs to no change.

    In a transaction that is open on the queue's database it commits with that.

    Args:
        request: what to enqueue.
        on_conflict: what to do where the key is held.

    Raises:
        DuplicateJob: where the key is held and `on_conflict` is "error".
        KeyReused: where the key is held by a row with another input.
    """
    (result,) = _queue([request], on_conflict, in_batch=in_transaction(queue_alias()))
    return result


def _stage(alias: str, requests: Sequence[EnqueueRequest], on_conflict: OnConflict) -> list[EnqueueResult]:
    _refuse_duplicates_within(requests, on_conflict)
    driver = get_driver()
    if Capability.INTROSPECT in driver.capabilities:
        for batch in batches(requests):
            for request, holder in zip(batch, driver.find_holders(batch), strict=True):
                if holder is not None:
                    _refuse(request, holder, on_conflict)
    for batch in batches(requests):
        stage(alias, batch)
    return [EnqueueResult(request.id, request.id, deduped=None, staged=True) for request in requests]


def _queue(requests: Sequence[EnqueueRequest], on_conflict: OnConflict, *, in_batch: bool) -> list[EnqueueResult]:
    if not in_batch:
        return _queue_batch(requests, on_conflict)
    # In one order over all batches, so that two batches in two transactions never wait for one another in a ring.
    ordered = sorted(requests, key=lambda request: (request.namespace, request.id))
    alias = queue_alias()
    # Another transaction may still take keys in an order of its own. Where ours ends here, it can start over.
    tries = 1 if in_transaction(alias) else DEADLOCK_TRIES
    for left in reversed(range(tries)):
        try:
            with transaction.atomic(using=alias):
                queued = [result for batch in batches(ordered) for result in _queue_batch(batch, on_conflict)]
            break
        except OperationalError as error:
            if not left or sqlstate(error) != DEADLOCK:
                raise
            emit("jobs.enqueue.deadlock", level=logging.WARNING, requests=len(requests))
    results = {request.id: result for request, result in zip(ordered, queued, strict=True)}
    return [results[request.id] for request in requests]


def _queue_batch(requests: Sequence[EnqueueRequest], on_conflict: OnConflict) -> list[EnqueueResult]:
    results = []
    for request, receipt in zip(requests, get_driver().enqueue(requests), strict=True):
        _refuse(request, receipt, on_conflict)
        results.append(EnqueueResult(receipt.id, receipt.run_id, deduped=receipt.joined, staged=False))
    return results


def _refuse_duplicates_within(requests: Sequence[EnqueueRequest], on_conflict: OnConflict) -> None:
    """Say of a batch to be staged what queuing it at once would say of two requests for one key."""
    if len(requests) == 1:
        return
    first: dict[tuple[str, str, str], EnqueueRequest] = {}
    for request in requests:
        holder = first.setdefault(request.namespace, request)
        if holder is not request:
            reused = holder.fingerprint != request.fingerprint
            joined = not reused or request.on_key_reuse == "warn"
            _refuse(request, Receipt(holder.id, holder.id, joined=joined, reused=reused), on_conflict)


def _refuse(request: EnqueueRequest, receipt: Receipt, on_conflict: OnConflict) -> None:
    """Raise what the caller asked to be told of a key that is held; log a reuse that is only warned of."""
    if receipt.refused:
        raise KeyReused(
            f"the key {request.idempotency_key!r} of {request.name} is held by job {receipt.id} with another input",
            fix='put what differs into idempotency_key, or declare on_key_reuse="warn" to join that job',
        )
    if receipt.joined and on_conflict == "error":
        raise DuplicateJob(
            f"the key {request.idempotency_key!r} of {request.name} is held by job {receipt.id}",
            fix='enqueue without on_conflict="error" to join that job',
        )
    if receipt.reused:
        emit("jobs.key.reused", level=logging.WARNING, name=request.name, job=receipt.id)
