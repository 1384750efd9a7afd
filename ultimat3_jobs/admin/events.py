"""Published events in the admin: what was published, for whom, and until when runs can get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from ultimat3_jobs.admin.lists import BoundedChangeList, ReadOnlyAdmin
from ultimat3_jobs.inspection.clock import clock
from ultimat3_jobs.inspection.events import EventPage, find_event, list_events
from ultimat3_jobs.inspection.masking import masked_match, printable, shown
from ultimat3_jobs.models import JobEvent
from ultimat3_jobs.moments import instant


class EventChangeList(BoundedChangeList):
    """The events of a name, or all."""

    def find(self, *, limit: int, before: UUID) -> tuple[Sequence[Model], EventPage]:
        page = list_events(self.query.strip(), limit=limit, before=before)
        return page.events, page


class JobEventAdmin(ReadOnlyAdmin):
    """Events."""

    list_display = ("shown_name", "shown_match", "published", "expires")
    list_display_links = ("shown_name",)
    search_fields = ("name",)
    search_help_text = "The whole of an event's name."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[EventChangeList]:
        return EventChangeList

    @admin.display(description="event")
    def shown_name(self, event: JobEvent) -> str:
        return printable(event.name)

    @admin.display(description="match", empty_value="-")
    def shown_match(self, event: JobEvent) -> str:
        return printable(masked_match(event.match))

    @admin.display(description="published")
    def published(self, event: JobEvent) -> str:
        return instant(event.published_at)

    @admin.display(description="expires")
    def expires(self, event: JobEvent) -> str:
        return instant(event.expires_at)

    def page_of(self, request: HttpRequest, object_id: str) -> dict[str, Any] | None:
        event = find_event(int(object_id)) if object_id.isascii() and object_id.isdecimal() else None
        if event is None:
            return None
        facts = {
            "Match": masked_match(event.match),
            "Published": instant(event.published_at),
            "Expires": instant(event.expires_at),
            "Staged as": str(event.staged_id),
        }
        over = event.expires_at <= clock()
        return {
            "title": printable(event.name),
            "subtitle": str(event.pk),
            "why": (
                f"It expired at {instant(event.expires_at)}: no run gets it any more."
                if over
                else f"Runs that wait for it get it until {instant(event.expires_at)}."
            ),
            "kind": "The event",
            "facts": [(name, printable(value)) for name, value in facts.items() if value],
            "input_title": "Payload",
            "input": printable(shown(event.payload), lines=True),
        }
