"""Queuing under keys: insert, or join the row that holds the key, or ask it to run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from ultimat3_jobs.aliases import in_transaction
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.errors import DriverUnavailable
from ultimat3_jobs.records import EnqueueRequest, Receipt
from ultimat3_jobs.sql import run

# A key can be let go between the insert that met it and the look-up of its holder. Each round then starts over; a key
# that keeps changing hands this often points at a transaction which cannot see what others commit.
ROUNDS = 20


class Holder(NamedTuple):
    """The row that holds a key."""

    id: UUID
    run_id: UUID
    fingerprint: str
    begun: bool
    finished: bool
    expired: bool


def enqueue(alias: str, requests: Sequence[EnqueueRequest]) -> list[Receipt]:
    """Queue or join every request; one receipt each, in their order."""
    receipts: dict[int, Receipt] = {}
    waiting = dict(enumerate(requests))
    for _ in range(ROUNDS):
        _insert(alias, waiting, receipts)
        if not waiting:
            return [receipts[position] for position in range(len(requests))]
        _join(alias, waiting, receipts)
        if not waiting:
            return [receipts[position] for position in range(len(requests))]
    left = next(iter(waiting.values()))
    raise DriverUnavailable(
        f"the key {left.idempotency_key!r} of {left.name} is held by a row that this transaction cannot see",
        fix="enqueue under READ COMMITTED, PostgreSQL's default, or outside the transaction",
    )


def find_holders(alias: str, requests: Sequence[EnqueueRequest]) -> list[Receipt | None]:
    """Say for each request what joining would give now, or None where its key is free."""
    holders = _look_up(alias, dict(enumerate(requests)))
    found: list[Receipt | None] = []
    for position, request in enumerate(requests):
        holder = holders.get(position)
        # What was queued before under this very id is there, whatever has become of its key.
        free = holder is None or (holder.expired and holder.id != request.id)
        found.append(None if holder is None or free else _receipt(request, holder))
    return found


def _insert(alias: str, waiting: dict[int, EnqueueRequest], receipts: dict[int, Receipt]) -> None:
    # In one order for everyone, whatever the database's collation: two batches never wait for one another in a ring.
    # Of several requests for one key, the first of the batch gets it.
    ordered = sorted(waiting.values(), key=lambda request: request.namespace)
    batch = rows.encode({"position": number} | rows.request_row(request) for number, request in enumerate(ordered))
    queued = {rows.uuid(row[0]) for row in run(alias, "enqueue", {"rows": batch})}
    for position, request in list(waiting.items()):
        if request.id in queued:
            receipts[position] = Receipt(request.id, request.id)
            del waiting[position]


def _join(alias: str, waiting: dict[int, EnqueueRequest], receipts: dict[int, Receipt]) -> None:
    holders = _look_up(alias, waiting)
    expired = {place: one for place, one in holders.items() if one.expired and one.id != waiting[place].id}
    if expired:
        run(alias, "release_keys", {"rows": rows.encode_ids(holder.id for holder in expired.values())})
    begun = _begun_meanwhile(alias, waiting, holders)
    again: dict[int, Holder] = {}
    for position, holder in holders.items():
        request = waiting[position]
        if position in expired or holder.id in begun:
            continue
        receipt = _receipt(request, holder)
        if receipt.asked_again:
            again[position] = holder
        else:
            receipts[position] = receipt
            del waiting[position]
    asked = _ask_again(alias, waiting, again)
    for position, holder in again.items():
        if holder.id in asked:
            receipts[position] = _receipt(waiting[position], holder)
            del waiting[position]


def _begun_meanwhile(alias: str, waiting: dict[int, EnqueueRequest], holders: dict[int, Holder]) -> set[UUID]:
    """Keep jobs that have not begun from beginning before the caller's commit; return those that have begun by now.

    They would read the data as it was. What the relay brings is committed already.
    """
    if not in_transaction(alias):
        return set()
    joined = {
        holder.id
        for position, holder in holders.items()
        if not holder.begun and not holder.finished and waiting[position].requested_at is None
    }
    if not joined:
        return set()
    held = run(alias, "hold_back", {"rows": rows.encode_ids(sorted(joined))})
    return joined - {rows.uuid(row[0]) for row in held}


def _look_up(alias: str, waiting: dict[int, EnqueueRequest]) -> dict[int, Holder]:
    batch = rows.encode(
        {
            "position": position,
            "id": request.id.hex,
            "name": request.name,
            "tenant_id": request.tenant_id,
            "idempotency_key": request.idempotency_key,
        }
        for position, request in waiting.items()
    )
    holders: dict[int, Holder] = {}
    for position, *row in run(alias, "holders", {"rows": batch}):
        holder = _holder(tuple(row))
        # What was queued before under this very id represents it, whoever may have its key by now.
        if position not in holders or holder.id == waiting[position].id:
            holders[position] = holder
    return holders


def _holder(row: tuple[Any, ...]) -> Holder:
    job_id, run_id, fingerprint, begun, finished, expired = row
    return Holder(rows.uuid(job_id), rows.uuid(run_id), fingerprint, bool(begun), bool(finished), bool(expired))


def _receipt(request: EnqueueRequest, holder: Holder) -> Receipt:
    if holder.id == request.id:
        return Receipt(holder.id, holder.run_id)
    reused = holder.fingerprint != request.fingerprint
    if reused and request.on_key_reuse == "error":
        return Receipt(holder.id, holder.run_id, joined=False, reused=True)
    # A row that has begun may have read the data before the caller changed it.
    begun = holder.begun and not holder.finished
    asked_again = begun and request.while_running == "again"
    return Receipt(holder.id, holder.run_id, joined=True, reused=reused, asked_again=asked_again)


def _ask_again(alias: str, waiting: dict[int, EnqueueRequest], again: dict[int, Holder]) -> set[UUID]:
    if not again:
        return set()
    # One row for each holder: of several requests in one batch the last is the one that follows.
    asks = {
        holder.id: {"id": holder.id.hex, "request": msgspec.json.encode(waiting[position]).decode()}
        for position, holder in again.items()
    }
    return {rows.uuid(row[0]) for row in run(alias, "ask_again", {"rows": rows.encode(asks.values())})}
