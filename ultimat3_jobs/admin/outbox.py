"""The outbox in the admin: what was set aside first, and its retry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from ultimat3_jobs.admin.lists import BoundedChangeList, ChoiceFilter, WorkColumns, as_uuid
from ultimat3_jobs.admin.repairs import Repair, RepairingAdmin
from ultimat3_jobs.aliases import outbox_aliases
from ultimat3_jobs.inspection import repair
from ultimat3_jobs.inspection.masking import bounded, printable, shown
from ultimat3_jobs.inspection.staged import StagedPage, list_staged, search_staged, staged_rows
from ultimat3_jobs.inspection.story import tell_staged
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.moments import instant

RETRY = Repair("retry", "Handed to the relay again", repair.retry, "The relay tries to publish it again.")


class OutcomeFilter(ChoiceFilter):
    """What was set aside unless something else is asked for."""

    title = "outcome"
    parameter_name = "outcome"
    first = "Set aside"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("waiting", "Waiting for the relay"), ("newest", "All, newest first")]


class OutboxChangeList(BoundedChangeList):
    """The rows that outcome and search mean."""

    def find(self, *, limit: int, before: UUID) -> tuple[Sequence[Model], StagedPage]:
        chosen = self.chosen("outcome")
        if text := self.query.strip():
            page = search_staged(text, limit=limit)
        else:
            page = list_staged(chosen if chosen in {"waiting", "newest"} else "set_aside", limit=limit, before=before)
        return page.entries, page


class OutboxEntryAdmin(WorkColumns, RepairingAdmin):
    """Staged work and what the relay made of it."""

    list_display = ("shown_name", "shown_outcome", "shown_error", "shown_tenant", "shown_key", "staged", "shown_queue")
    list_display_links = ("shown_name",)
    list_filter = (OutcomeFilter,)
    search_fields = ("id",)
    search_help_text = "An id, or at least 8 digits it begins with."
    repairs: ClassVar = (RETRY,)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[OutboxChangeList]:
        return OutboxChangeList

    @admin.display(description="outcome")
    def shown_outcome(self, entry: OutboxEntry) -> str:
        return entry.outcome or "waiting"

    @admin.display(description="why")
    def shown_error(self, entry: OutboxEntry) -> str:
        lines = entry.error.strip().splitlines()
        return printable(lines[0][:200]) if lines else ""

    @admin.display(description="staged")
    def staged(self, entry: OutboxEntry) -> str:
        return instant(entry.staged_at)

    def rows(self, ids: Sequence[UUID]) -> dict[UUID, OutboxEntry]:
        return staged_rows(ids)

    def aliases(self) -> tuple[str, ...]:
        return outbox_aliases()

    def summary(self, row: OutboxEntry) -> str:
        return printable(f"{row.name}, key {row.idempotency_key}, {row.outcome or 'waiting'}")

    def page_of(self, request: HttpRequest, object_id: str) -> dict[str, Any] | None:
        staged_id = as_uuid(object_id)
        entry = None if staged_id is None else staged_rows([staged_id]).get(staged_id)
        if entry is None:
            return None
        story = tell_staged(entry)
        set_aside = entry.outcome == OutboxEntry.Outcome.SET_ASIDE
        facts = {
            "Outcome": entry.outcome or "waiting",
            "Queue": entry.queue,
            "Tenant": "(none)" if entry.tenant_id is None else entry.tenant_id,
            "Key": entry.idempotency_key,
            "Staged": instant(entry.staged_at),
            "Published": instant(entry.published_at),
            "Enqueued by": entry.enqueued_by,
        }
        return {
            "title": printable(entry.name),
            "subtitle": str(entry.id),
            "story": story,
            "job": None,
            "why": printable(bounded(story.why), lines=True),
            "alarm": set_aside,
            "facts": [(name, printable(value)) for name, value in facts.items() if value],
            "input": printable(shown(entry.input), lines=True),
            "commands": [(printable(command), does) for command, does in story.commands],
            "retry": RETRY if set_aside and self.may(request, RETRY) else None,
            "row_id": entry.id,
        }
