"""A publication, where the queue is another database than the outbox: claim under a lease, publish, then mark.

At least once: a relay that dies between the publication and the mark leaves rows that the next one publishes again.
That queues nothing twice as long as the job's row is there, and stores no event twice: its id was fixed when the work
was staged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from django.db import transaction

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.logs import emit
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox import leases
from ultimat3_jobs.outbox.aside import count_failures, log_set_aside
from ultimat3_jobs.outbox.entries import read, row_id
from ultimat3_jobs.outbox.faults import Fault, fault_of
from ultimat3_jobs.outbox.leases import ClaimedRow, Mark
from ultimat3_jobs.outbox.offer import Offer, outcome_of
from ultimat3_jobs.outbox.waking import wake
from ultimat3_jobs.records import Claim
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run


def publish(alias: str) -> int:
    """Publish one batch of committed rows to the queue's database; return how many were decided.

    Args:
        alias: of the outbox.

    Raises:
        Exception: what stopped it. What was not published is released at once, in its place.
    """
    claimed = leases.claim(alias, limit=get_settings().outbox.batch)
    if not claimed:
        return 0
    tokens = {row_id(row.values[0]): row.token for row in claimed}
    offer = Offer()
    try:
        try:
            _queue(claimed, offer)
        except Exception as error:
            if fault_of(error) is Fault.PASSING:
                raise
            offer = Offer(careful=True)
            _queue(claimed, offer)
        # At once, whether the marks land or not: what is stored is there for all.
        wake(offer.events)
        decided = _mark(alias, offer, tokens) + count_failures(alias, offer.culprits, tokens)
    except Exception:
        # The outbox may be what cannot be reached. This relay's next claim then takes the place of the lost one.
        with suppress(Exception):
            count_failures(alias, offer.culprits, tokens)
        with suppress(Exception):
            leases.release(alias, _claims(claimed))
        raise
    if offer.stopped_by is not None:
        with suppress(Exception):
            leases.release(alias, _claims(claimed))
        raise offer.stopped_by
    return decided


def _queue(claimed: Sequence[ClaimedRow], offer: Offer) -> None:
    readable, unreadable = read(row.values for row in claimed)
    offer.culprits += unreadable
    alias = queue_alias()
    milliseconds = int(get_settings().outbox.claim_lease.total_seconds() * 1000)
    with transaction.atomic(using=alias):
        # As long as the lease: the relay that takes over must not wait for keys that a silent one has taken.
        run(alias, "bound_silence", {"milliseconds": max(1, milliseconds)})
        offer.put(readable, alias)


def _mark(alias: str, offer: Offer, tokens: dict[str, UUID]) -> int:
    marks = []
    for one, receipt in offer.receipts:
        outcome, error = outcome_of(receipt)
        claim = Claim(one.id, tokens[one.id.hex])
        marks.append(Mark(claim, outcome, None if receipt is None else receipt.id, error))
    landed = leases.mark_published(alias, marks)
    for (one, _), mark, known in zip(offer.receipts, marks, landed, strict=True):
        if known and mark.outcome == OutboxEntry.Outcome.SET_ASIDE:
            log_set_aside(one.id, one.name, mark.error)
    if not all(landed):
        # Another relay has taken them over, or will: it publishes them again, which changes nothing.
        emit("jobs.relay.lease-lost", level=logging.WARNING, outbox=alias, rows=landed.count(False))
    return landed.count(True)


def _claims(claimed: Sequence[ClaimedRow]) -> list[Claim]:
    claims = []
    for row in claimed:
        with suppress(ValueError):  # an id that is none: its row is set aside
            claims.append(Claim(rows.uuid(row.values[0]), row.token))
    return claims
