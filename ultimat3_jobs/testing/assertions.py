"""Assertions on what was enqueued: staged in the open transaction, or in the queue already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ultimat3_jobs.aliases import outbox_aliases, queue_alias
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.job import Job
from ultimat3_jobs.registry import find

MOST_SHOWN = 20
LONGEST_SHOWN = 200
STAGED = "staged"


@dataclass(frozen=True)
class Enqueued:
    """One enqueued job."""

    id: UUID
    name: str
    state: str
    """"staged" while it waits for the relay, then the state of its row in the queue."""
    input: Mapping[str, Any] | None
    """The arguments in their declared types, defaults included; None where the row has no input any more, or one that
    no code can read."""
    queue: str
    priority: int
    run_at: datetime
    """When it is due, in UTC."""
    tenant: str | None
    idempotency_key: str
    enqueued_by: str

    def __str__(self) -> str:
        shown = "?" if self.input is None else ", ".join(f"{name}={value!r}" for name, value in self.input.items())
        return f"{self.name}({shown[:LONGEST_SHOWN]})  {self.state}, queue {self.queue!r}"


def enqueued(job: Job[..., Any] | None = None, /) -> list[Enqueued]:
    """Return what the current connection sees enqueued, in the order of the enqueues.

    Rows of the queue count in every state, done too. Two enqueues of one key that are both still staged are two; the
    relay makes them one. Staged rows that were set aside do not count.

    Args:
        job: of this job alone, under its aliases too; None: of all.
    """
    names = None if job is None else {job.definition.name, *job.definition.aliases}
    return [one for one in _rows() if names is None or one.name in names]


def assert_enqueued(
    job: Job[..., Any], arguments: Mapping[str, Any] | None = None, /, *, count: int | None = None, **more: Any
) -> list[Enqueued]:
    """Assert that a job was enqueued with an input that holds these arguments; return what matches.

    Args:
        job: the handle of the job.
        arguments: those whose names cannot be keywords here, such as `count`.
        count: how many must match; None: at least one.
        more: arguments; those that are not named may be anything.

    Raises:
        AssertionError: where it was not, with a list of what was enqueued instead.
        InputInvalid: where the job has no such argument, or the argument cannot be of this value.
    """
    wanted = {**(arguments or {}), **more}
    found = _matching(job, wanted)
    if len(found) != count if count is not None else not found:
        times = "at least once" if count is None else f"{count} times"
        raise AssertionError(f"{_shown(job, wanted)} was to be enqueued {times}, not {len(found)} times; {_instead()}")
    return found


def assert_not_enqueued(job: Job[..., Any], arguments: Mapping[str, Any] | None = None, /, **more: Any) -> None:
    """Assert that a job was not enqueued with an input that holds these arguments.

    Args:
        job: the handle of the job.
        arguments: those whose names cannot be keywords here.
        more: arguments; without any, the job must not have been enqueued at all.

    Raises:
        AssertionError: where it was.
        InputInvalid: where the job has no such argument, or the argument cannot be of this value.
    """
    wanted = {**(arguments or {}), **more}
    found = _matching(job, wanted)
    if found:
        raise AssertionError(f"{_shown(job, wanted)} was enqueued {len(found)} times; {_instead()}")


def _matching(job: Job[..., Any], wanted: Mapping[str, Any]) -> list[Enqueued]:
    # A name that is misspelt, or a value of another type, would match nothing, and its absence be asserted in vain.
    arguments = job.definition.codec.convert(wanted)
    return [
        one
        for one in enqueued(job)
        if one.input is not None and all(one.input[name] == value for name, value in arguments.items())
    ]


def _shown(job: Job[..., Any], wanted: Mapping[str, Any]) -> str:
    return f"{job.name}({', '.join([f'{name}={value!r}' for name, value in wanted.items()] + ['...'])})"


def _instead() -> str:
    rows = enqueued()
    if not rows:
        return "nothing was enqueued"
    lines = [f"\n  {one}" for one in rows[:MOST_SHOWN]]
    if len(rows) > MOST_SHOWN:
        lines.append(f"\n  and {len(rows) - MOST_SHOWN} more")
    return f"enqueued were:{''.join(lines)}"


def _rows() -> Iterator[Enqueued]:
    from ultimat3_jobs.models import Job as JobRow  # noqa: PLC0415 - needs loaded apps
    from ultimat3_jobs.models import OutboxEntry  # noqa: PLC0415

    columns = (
        "id", "name", "input", "queue", "priority", "run_at", "tenant_id", "idempotency_key", "enqueued_by"
    )  # fmt: skip
    for row in JobRow.objects.using(queue_alias()).order_by("id").values_list("state", *columns):
        yield _enqueued(*row)
    for alias in outbox_aliases():
        staged = OutboxEntry.objects.using(alias).filter(kind=OutboxEntry.Kind.JOB, outcome__isnull=True)
        for row in staged.order_by("staged_at", "id").values_list(*columns):
            yield _enqueued(STAGED, *row)


def _enqueued(state: str, job_id: UUID, name: str, job_input: Any, *rest: Any) -> Enqueued:
    definition = find(name)
    arguments = None
    if definition is not None and job_input is not None:
        try:
            arguments = definition.codec.decode(msgspec.json.encode(job_input).decode())
        except InputInvalid:
            arguments = None
    return Enqueued(job_id, name, state, arguments, *rest)
