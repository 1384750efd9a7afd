"""Lists of published events, newest first, bounded as those of the jobs are."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.inspection.lists import LAST
from ultimat3_jobs.models import JobEvent

_HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events. `before` is where the next page begins: the number of an event, in the form of the other lists."""

    events: list[JobEvent]
    before: UUID | None
    walked: int | None = None


def list_events(name: str = "", *, limit: int, before: UUID = LAST) -> EventPage:
    """Return the newest events.

    Args:
        name: only those of this name; empty means all.
        limit: events at most.
        before: only those that were published before it, as a page gave it.
    """
    rows = JobEvent.objects.using(queue_alias()).filter(pk__lt=min(before.int, _HIGHEST)).order_by("-pk")
    if name:
        rows = rows.filter(name=name)
    found = list(rows.defer("payload")[: limit + 1])
    return EventPage(found[:limit], UUID(int=found[limit - 1].pk) if len(found) > limit else None)


def find_event(number: int) -> JobEvent | None:
    """Return one event, or None where there is none of this number."""
    if not 0 <= number <= _HIGHEST:
        return None
    return JobEvent.objects.using(queue_alias()).filter(pk=number).first()
