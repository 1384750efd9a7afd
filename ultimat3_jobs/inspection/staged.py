"""Lists of the outbox, bounded as those of the jobs are."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ultimat3_jobs.aliases import outbox_alias
from ultimat3_jobs.drivers.database.rows import uuid
from ultimat3_jobs.inspection.ids import search_staged_by_id
from ultimat3_jobs.inspection.lists import LAST
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.sql import run

WHICH = ("set_aside", "waiting", "newest")


@dataclass(frozen=True, slots=True)
class StagedPage:
    """Some outbox rows, without their inputs; the attributes are those of a page of jobs."""

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
    ids = [uuid(row[0]) for row in run(outbox_alias(), f"outbox_{which}", parameters)]
    more = len(ids) > limit
    if which == "waiting":
        return StagedPage(_rows(ids[:limit]), None, limit if more else None)
    return StagedPage(_rows(ids[:limit]), ids[limit - 1] if more else None)


def search_staged(text: str, *, limit: int) -> StagedPage:
    """Return the outbox rows whose ids begin as `text` does."""
    return StagedPage(_rows(search_staged_by_id(text, limit=limit)), None)


def _rows(ids: list[UUID]) -> list[OutboxEntry]:
    found = OutboxEntry.objects.using(outbox_alias()).defer("input").in_bulk(ids)
    return [found[one] for one in ids if one in found]
