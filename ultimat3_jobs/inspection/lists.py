"""Lists of jobs, newest first, by any filters; each look reads a bounded number of rows and says where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from ultimat3_jobs import registry
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.rows import uuid
from ultimat3_jobs.inspection.ids import search_jobs_by_id
from ultimat3_jobs.models import Job
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import FINAL, LIVE, RETRYABLE, State

WALK = 5_000
"""Rows that one look reads at most from one place."""
MAX_PAGE = 1_000
LAST = UUID(int=(1 << 128) - 1)
COLUMNS = (
    "id", "name", "queue", "tenant_id", "idempotency_key", "state", "stop", "park_reason", "attempt", "max_attempts",
    "run_at", "error_class", "error_place", "cause", "created_at", "started_at", "finished_at", "claimed_by",
    "visible_at", "cancel_requested_by", "cancel_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which jobs are meant. An empty value does not filter.

    Attributes:
        states: any of them; a text that is no state of this build is looked for as it stands.
        queue: the queue's name.
        name: the job's name. The lists take it for any name that the job goes by or went by.
        tenant: as stored, as text.
        key: the idempotency key.
        cause: the group of like failures, as `show` prints it, or its beginning.
        error: the exception's class, with its module or without.
    """

    states: tuple[str, ...] = ()
    queue: str = ""
    name: str = ""
    tenant: str = ""
    key: str = ""
    cause: str = ""
    error: str = ""

    def meet(self, row: Facets) -> bool:
        """Whether they mean this row."""
        return (
            (not self.states or row.state in self.states)
            and self.queue in ("", row.queue)
            and self.name in ("", row.name)
            and self.tenant in ("", row.tenant)
            and self.key in ("", row.key)
            and row.cause.startswith(self.cause)
            and (not self.error or row.error == self.error or row.error.endswith(f".{self.error}"))
        )


class Facets(NamedTuple):
    """What of a row can be filtered by."""

    id: UUID
    state: str
    queue: str
    name: str
    tenant: str | None
    key: str
    cause: str
    error: str


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, newest first.

    Attributes:
        jobs: the rows, without input, result and error texts.
        before: where the next page begins, or None where there is nothing more.
        walked: the look stopped after so many rows and not because the page was full: older ones may be on the next.
    """

    jobs: list[Job]
    before: UUID | None
    walked: int | None


def list_jobs(filters: Filters, *, limit: int = 50, before: UUID = LAST) -> Page:
    """Return the newest jobs that the filters mean, under all names that the job of a name has had.

    Args:
        filters: which.
        limit: jobs at most; 1 to 1,000.
        before: only those whose ids lie before it, as a page gave it.
    """
    return _look(_under_all_names(filters), limit=limit, before=before)


def search_jobs(text: str, filters: Filters, *, limit: int = 50, before: UUID = LAST) -> Page:
    """Return the newest jobs that have `text` for their id or its beginning, for their name, key or tenant.

    Args:
        text: the whole of it; no index serves parts of words.
        filters: what they must meet besides.
        limit: jobs at most; 1 to 1,000.
        before: only those whose ids lie before it, as a page gave it.
    """
    ids = [one for one in search_jobs_by_id(text, limit=limit) if one < before]
    wanted = _under_all_names(filters)
    alternatives = [
        each
        for part in ({"name": text}, {"key": text}, {"tenant": text})
        if getattr(filters, next(iter(part))) in ("", text)
        for each in _under_all_names(replace(filters, **part))  # type: ignore[arg-type]
    ]
    page = _look(alternatives, limit=limit, before=before)
    known = {job.id for job in page.jobs}
    by_id = [job for job in _rows(ids) if job.id not in known and any(one.meet(_facets(job)) for one in wanted)]
    jobs = sorted((*page.jobs, *by_id), key=lambda job: job.id, reverse=True)
    return replace(page, jobs=jobs[:limit])


def _under_all_names(filters: Filters) -> list[Filters]:
    """Return the filters once for each name of the job that they name: a row keeps the one it was queued under."""
    return [replace(filters, name=name) for name in registry.names_of(filters.name)]


def _look(any_of: Sequence[Filters], *, limit: int, before: UUID) -> Page:
    limit = max(1, min(limit, MAX_PAGE))
    found: set[UUID] = set()
    horizon: UUID | None = None  # all that is newer has been seen
    sources = dict.fromkeys(source for filters in any_of for source in _sources(filters))
    walked: set[str] = set()
    while sources:
        source = next(iter(sources))
        del sources[source]
        asked = limit + 1 if source.exact else WALK
        rows = _run(source, before=before, limit=asked)
        found.update(row.id for row in rows if row.id < before and any(filters.meet(row) for filters in any_of))
        if len(rows) < asked or source.beside:
            continue
        if source.newest_first:
            horizon = max(rows[-1].id, horizon or rows[-1].id)
        elif source.walk not in walked:
            # There are more than were read, and not the oldest were left out: a walk finds the newest.
            walked.add(source.walk)
            sources[_Source(source.walk)] = None
    ordered = sorted(found, reverse=True)
    certain = sum(1 for one in ordered if horizon is None or one >= horizon)
    if certain > limit:
        return Page(_rows(ordered[:limit]), ordered[limit - 1], None)
    stopped = None if horizon is None or certain == limit else WALK
    return Page(_rows(ordered[:limit]), horizon, stopped)


@dataclass(frozen=True, slots=True)
class _Source:
    """One bounded statement.

    Attributes:
        statement: its name.
        parameters: besides `limit` and `before`.
        exact: all that it returns is meant: no more needs to be read than is shown.
        newest_first: it returns the newest; the others return the first in another order.
        walk: of one in another order, the statement that finds the newest where it does not return all.
        beside: the others find all that is meant, but for rows in states that this build does not know.
    """

    statement: str
    parameters: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    newest_first: bool = True
    walk: str = "list_newest"
    beside: bool = False


_WALK = _Source("list_newest")


def _sources(filters: Filters) -> Iterator[_Source]:
    """Yield the statements which together find all that the filters mean, as far as statements can."""
    states = set(filters.states) or set(State)
    by_person = filters.name or filters.tenant or filters.key
    if by_person and states <= set(State):
        yield from (_ended(filters, state) for state in FINAL if state in states)
        yield from _live(filters, states)
        if not filters.states:
            yield replace(_WALK, beside=True)
    elif states <= {*LIVE, *RETRYABLE}:
        if states & set(RETRYABLE):
            yield _dead(filters)
        yield from _live(filters, states)
    else:
        # Nothing else finds what is done, or in a state that this build does not know.
        yield replace(_WALK, exact=filters == Filters())
        if filters.cause or filters.error or filters.queue:
            yield _dead(filters)


def _dead(filters: Filters) -> _Source:
    if len(filters.cause) == CAUSE_LENGTH:
        return _Source("look_up_cause", (("cause", filters.cause),))
    if filters.queue:
        return _Source("list_dead_of", (("queue", filters.queue),), newest_first=False, walk="list_dead")
    both = set(RETRYABLE) <= set(filters.states)
    return _Source("list_dead", exact=both and filters == Filters(states=filters.states))


def _ended(filters: Filters, state: str) -> _Source:
    for by in ("key", "name", "tenant"):
        if text := getattr(filters, by):
            only = replace(filters, states=()) == Filters(**{by: text})
            return _Source(f"look_up_{by}", (("state", state), (by, text)), exact=only)
    raise AssertionError("only called where one of them is asked for")


def _live(filters: Filters, states: set[str] | set[State]) -> Iterator[_Source]:
    if filters.name:
        if states & set(LIVE):
            yield _Source("look_up_live", (("name", filters.name),), newest_first=False)
        return
    for statement, kinds in _LIVE_LISTS.items():
        if kinds & states:
            yield _Source(statement, (("queue", filters.queue),), newest_first=False)


CAUSE_LENGTH = 64
_LIVE_LISTS = {
    "list_ready": {State.READY},
    "list_waiting": {State.DELAYED, State.SUSPENDED},
    "list_running": {State.RUNNING},
}


def _run(source: _Source, *, before: UUID, limit: int) -> list[Facets]:
    parameters = {"limit": limit, "before": before.hex, **dict(source.parameters)}
    return [Facets(uuid(row[0]), *row[1:]) for row in run(queue_alias(), source.statement, parameters)]


def _rows(ids: Sequence[UUID]) -> list[Job]:
    found = Job.objects.using(queue_alias()).only(*COLUMNS).in_bulk(ids)
    return [found[one] for one in ids if one in found]


def _facets(job: Job) -> Facets:
    return Facets(
        job.id, job.state, job.queue, job.name, job.tenant_id, job.idempotency_key, job.cause, job.error_class
    )


def queues() -> list[str]:
    """Return the queues that have work or dead letters, without reading the table."""
    return [one.queue for one in get_driver().stats()]
