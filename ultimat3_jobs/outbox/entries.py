"""Outbox rows to enqueue requests. A row whose values cannot be read is told from the others, not a crash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args
from uuid import UUID

import msgspec

from ultimat3_jobs.definition import OnKeyReuse, WhileRunning
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.outbox.faults import Fault
from ultimat3_jobs.records import EnqueueRequest

COLUMNS = (
    "id", "name", "queue", "input", "fingerprint", "idempotency_key", "tenant_id", "max_attempts", "priority",
    "run_at", "dedupe_for", "while_running", "on_key_reuse", "enqueued_by", "traceparent", "requested_at",
)  # fmt: skip
"""The fields of a request in the order in which the statements return them."""


class Culprit(NamedTuple):
    """A row that could not be published, and why."""

    id: str  # as its row carries it
    name: str
    error: Exception
    fault: Fault


def read(staged: Iterable[tuple[Any, ...]]) -> tuple[list[EnqueueRequest], list[Culprit]]:
    """Return the requests of rows, in the order (staged_at, id), and the rows that cannot be read."""
    requests, unreadable = [], []
    for row in staged:
        try:
            requests.append(_request(row))
        except Exception as error:  # whatever a stored value makes of its reading
            unreadable.append(Culprit(row_id(row[0]), str(row[1]), error, Fault.OF_THE_ROW))
    requests.sort(key=lambda request: (request.requested_at, request.id))
    return requests, unreadable


def row_id(value: Any) -> str:
    """Return an id as the statements take it, of a row whose id is none as well."""
    return value.hex if isinstance(value, UUID) else str(value)


def _request(row: tuple[Any, ...]) -> EnqueueRequest:
    values = dict(zip(COLUMNS, row, strict=True))
    values["id"] = rows.uuid(values["id"])
    for moment in ("run_at", "requested_at"):
        values[moment] = rows.parse_instant(values[moment])
    for column, known in (("while_running", WhileRunning), ("on_key_reuse", OnKeyReuse)):
        if values[column] not in get_args(known):
            raise ValueError(f"{column} is {values[column]!r}, not one of {', '.join(get_args(known))}")
    return msgspec.convert(values, EnqueueRequest)
