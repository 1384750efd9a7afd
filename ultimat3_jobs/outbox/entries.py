"""Outbox rows to enqueue requests and events. A row that cannot be read is told from the others, not a crash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args
from uuid import UUID

import msgspec

from ultimat3_jobs.definition import OnKeyReuse, WhileRunning
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.faults import Fault
from ultimat3_jobs.records import EnqueueRequest, Event

COLUMNS = (
    "id", "kind", "name", "queue", "input", "fingerprint", "idempotency_key", "tenant_id", "max_attempts", "priority",
    "run_at", "dedupe_for", "while_running", "on_key_reuse", "enqueued_by", "traceparent", "requested_at",
    "match", "ttl",
)  # fmt: skip
"""What is in a row, in the order in which the statements return it, by the names that requests and events give it."""

Staged = EnqueueRequest | Event
"""What was staged, as the queue takes it."""


class Culprit(NamedTuple):
    """A row that could not be published, and why."""

    id: str  # as its row carries it
    name: str
    error: Exception
    fault: Fault


def read(staged: Iterable[tuple[Any, ...]]) -> tuple[list[Staged], list[Culprit]]:
    """Return what was staged, in the order (staged_at, id), and the rows that cannot be read."""
    requests: list[Staged] = []
    unreadable = []
    for row in staged:
        try:
            requests.append(_read(dict(zip(COLUMNS, row, strict=True))))
        except Exception as error:  # whatever a stored value makes of its reading
            unreadable.append(Culprit(row_id(row[0]), str(row[2]), error, Fault.OF_THE_ROW))
    requests.sort(key=lambda request: (request.requested_at, request.id))
    return requests, unreadable


def row_id(value: Any) -> str:
    """Return an id as the statements take it, of a row whose id is none as well."""
    return value.hex if isinstance(value, UUID) else str(value)


def _read(values: dict[str, Any]) -> Staged:
    values["id"] = rows.uuid(values["id"])
    values["requested_at"] = rows.parse_instant(values["requested_at"])
    match values["kind"]:
        case OutboxEntry.Kind.JOB:
            return _request(values)
        case OutboxEntry.Kind.EVENT:
            return msgspec.convert(values | {"staged_id": values["id"], "payload": values["input"]}, Event)
    known = ", ".join(OutboxEntry.Kind.values)
    raise ValueError(f"kind is {values['kind']!r}, and this release knows {known}")


def _request(values: dict[str, Any]) -> EnqueueRequest:
    values["run_at"] = rows.parse_instant(values["run_at"])
    for column, known in (("while_running", WhileRunning), ("on_key_reuse", OnKeyReuse)):
        if values[column] not in get_args(known):
            raise ValueError(f"{column} is {values[column]!r}, not one of {', '.join(get_args(known))}")
    return msgspec.convert(values, EnqueueRequest)
