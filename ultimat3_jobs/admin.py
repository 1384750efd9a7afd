"""The admin: jobs, their history and the outbox, read-only, and never a query that grows with the table."""

from __future__ import annotations

from typing import ClassVar, cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from ultimat3_jobs.models import Job, JobAttempt, OutboxEntry

COUNT_CAP = 5_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts to a cap: an exact count reads the whole table."""

    @cached_property
    def count(self) -> int:
        """Number of rows, or the cap where there are more."""
        rows = cast("QuerySet[Model]", self.object_list)
        return len(rows.values_list("pk", flat=True)[:COUNT_CAP])


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows rows. Nothing is written by hand: a row edited past its fence can lose work or run it twice."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a facet counts every row
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """Jobs, the newest first; why one failed stands on its page."""

    list_display = ("id", "name", "tenant_id", "state", "stop", "error_class", "attempt", "queue", "run_at")
    list_filter = ("state",)
    ordering = ("-id",)
    sortable_by: ClassVar[tuple[str, ...]] = ()
    fieldsets = (
        (None, {"fields": ("id", "name", "queue", "tenant_id", "idempotency_key", "input", "enqueued_by")}),
        (
            "State",
            {"fields": ("state", "stop", "attempt", "max_attempts", "run_at", "park_reason", "lapses", "result")},
        ),
        ("Failure", {"fields": ("error_class", "error_place", "last_error")}),
        ("Lease", {"fields": ("claimed_by", "claim_token", "visible_at")}),
        ("Times", {"fields": ("created_at", "updated_at", "started_at", "finished_at", "key_until")}),
    )


@admin.register(JobAttempt)
class JobAttemptAdmin(ReadOnlyAdmin):
    """Failed attempts and retries, the newest first."""

    list_display = ("id", "job_id", "kind", "attempt", "error_class", "decision", "next_run_at", "by")
    ordering = ("-id",)
    sortable_by: ClassVar[tuple[str, ...]] = ()


@admin.register(OutboxEntry)
class OutboxEntryAdmin(ReadOnlyAdmin):
    """Staged work and what the relay made of it, the newest first."""

    list_display = ("id", "kind", "name", "queue", "tenant_id", "outcome", "job_id", "staged_at")
    ordering = ("-id",)
    sortable_by: ClassVar[tuple[str, ...]] = ()
