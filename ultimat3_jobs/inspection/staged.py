"""Lists of the outboxes, bounded as those of the jobs are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from ultimat3_jobs.aliases import outbox_aliases
from ultimat3_jobs.drivers.database.rows import uuid
from ultimat3_jobs.inspection.ids import search_staged_by_id
from ultimat3_jobs.inspection.lists import LAST
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.sql import run

WHICH = ("set_aside", "waiting", "newest")


@dataclass(frozen=True, slots=True)
class StagedPage:
    """Some outbox rows; the attributes are those of a page of jobs."""

    entries: list[OutboxEntry]
    before: UUID | None
    walked: int | None = None


def list_staged(which: str, *, limit: int, before: UUID = LAST) -> StagedPage:
    """Return outbox rows: those set aside, newest first; the first that wait for the relay; or simply the newest.

    Args:
        which: one of `WHICH`.
        limit: rows at most.
        before: only those whose ids lie before it; those that wait have one page, of the first.
    """
    parameters = {"limit": limit + 1, "before": before.hex}
    rows = staged_rows(
        uuid(row[0]) for alias in outbox_aliases() for row in run(alias, f"outbox_{which}", parameters)
    ).values()
    if which == "waiting":
        entries = sorted(rows, key=lambda entry: (entry.staged_at, entry.id))
        return StagedPage(entries[:limit], None, limit if len(entries) > limit else None)
    entries = sorted(rows, key=lambda entry: entry.id, reverse=True)
    return StagedPage(entries[:limit], entries[limit - 1].id if len(entries) > limit else None)


def staged_rows(ids: Iterable[UUID]) -> dict[UUID, OutboxEntry]:
    """Return the outbox rows of these ids, in whichever outbox they are."""
    wanted = list(ids)
    found: dict[UUID, OutboxEntry] = {}
    for alias in outbox_aliases():
        found |= OutboxEntry.objects.using(alias).in_bulk(wanted)
    return found


def staged_command(entry: OutboxEntry) -> str | None:
    """Return the command that gives a row back to the relay, where there is something to give back."""
    set_aside = entry.outcome == OutboxEntry.Outcome.SET_ASIDE
    return f"python manage.py jobs retry {entry.id}" if set_aside else None


def search_staged(text: str, *, limit: int) -> StagedPage:
    """Return the outbox rows whose ids begin as `text` does."""
    found = staged_rows(search_staged_by_id(text, limit=limit))
    return StagedPage(sorted(found.values(), key=lambda entry: entry.id, reverse=True), None)
