"""Claims on outbox rows, for relays that publish to another database: leases, each under a token of its own.

Every write is fenced on the token and on the lease, and answers row by row: a relay that slept past its lease changes
nothing, and the one that has taken over publishes what may have been published. That does no harm: the id was fixed
when the row was staged.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.records import Claim
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run

_thread = threading.local()


class ClaimedRow(NamedTuple):
    """A row and the right to write to it."""

    token: UUID
    values: tuple[Any, ...]  # as the `pending` statement returns them


class Mark(NamedTuple):
    """What became of a claimed row."""

    claim: Claim
    outcome: str
    job_id: UUID | None  # None: it was an event
    error: str = ""


def claim(alias: str, *, limit: int, relay: str | None = None) -> list[ClaimedRow]:
    """Claim the rows at the head of an outbox, or none where another relay's claim on one of them holds.

    Args:
        alias: of the outbox.
        limit: rows at most.
        relay: who claims; None is the calling thread, which has ended what it claimed before.
    """
    claimed = run(alias, "claim_staged", {"limit": limit, "relay": relay or _relay(), "lease": _lease()})
    return [ClaimedRow(rows.uuid(token), (row_id, *values)) for row_id, token, *values in claimed]


def mark_published(alias: str, marks: Sequence[Mark]) -> list[bool]:
    """Record outcomes; tell for each whether it landed.

    Raises:
        ValueError: where a claim has no token.
    """
    encoded = [
        _row(mark.claim)
        | {"outcome": mark.outcome, "job_id": None if mark.job_id is None else mark.job_id.hex, "error": mark.error}
        for mark in marks
    ]
    return _fenced(alias, "mark_claimed", encoded)


def release(alias: str, claims: Sequence[Claim]) -> list[bool]:
    """Let go of rows that were not published; tell for each whether it landed.

    Raises:
        ValueError: where a claim has no token.
    """
    return _fenced(alias, "release_staged", list(map(_row, claims)))


def _fenced(alias: str, statement: str, encoded: list[dict[str, Any]]) -> list[bool]:
    if not encoded:
        return []
    landed = run(alias, statement, {"rows": rows.encode(encoded), "lease": _lease()})
    ids = {rows.uuid(row[0]).hex for row in landed}
    return [row["id"] in ids for row in encoded]


def _row(one: Claim) -> dict[str, Any]:
    if not isinstance(one.token, UUID):
        raise ValueError(f"the claim on outbox row {one.id} has no token: claim() gives one")  # noqa: TRY004
    return rows.claim_row(one)


def _lease() -> float:
    return get_settings().outbox.claim_lease.total_seconds()


def _relay() -> str:
    if not hasattr(_thread, "relay"):
        _thread.relay = uuid4().hex  # never host name and pid: those come back
    return str(_thread.relay)
