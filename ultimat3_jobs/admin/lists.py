"""Change lists whose rows come from the inspection: one bounded look for a page, and nothing is counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from ultimat3_jobs.inspection.lists import LAST
from ultimat3_jobs.inspection.masking import printable
from ultimat3_jobs.text import fault_of_text

if TYPE_CHECKING:
    from ultimat3_jobs.inspection.backfills import PassPage
    from ultimat3_jobs.inspection.events import EventPage
    from ultimat3_jobs.inspection.lists import Page
    from ultimat3_jobs.inspection.staged import StagedPage
    from ultimat3_jobs.models import Job, OutboxEntry

BEFORE = "before"
"""The parameter that says where a page begins: after the last row of the page before it."""


class Shown(Protocol):
    """A row of a list: an instance of a model, or what stands for one."""

    @property
    def pk(self) -> Any:
        """What its page is found by."""


class BoundedChangeList(ChangeList):
    """Shows one page, as the subclass finds it, and a link to the next."""

    found: Page | StagedPage | EventPage | PassPage
    older: str | None

    def find(self, *, limit: int, before: UUID) -> tuple[Sequence[Shown], Page | StagedPage | EventPage | PassPage]:
        """Return the rows of the page, and what was found."""
        raise NotImplementedError

    def chosen(self, parameter: str) -> str:
        """Return what the filter of this parameter is set to.

        Raises:
            IncorrectLookupParameters: where it is set to what no database stores.
        """
        value = str(self.params.get(parameter, ""))
        if fault := fault_of_text(value):
            raise IncorrectLookupParameters(f"{parameter} holds {fault}")
        return value

    def get_filters_params(self, params: Any = None) -> Any:
        lookups = super().get_filters_params(params)
        lookups.pop(BEFORE, None)
        return lookups

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        # Another filter begins at its first page.
        return super().get_query_string({BEFORE: None, **(new_params or {})}, remove)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        specs, has_filters, left_over, _, active = self.get_filters(request)
        if left_over:
            raise IncorrectLookupParameters(f"nothing is filtered by {', '.join(left_over)}")
        self.filter_specs, self.has_filters, self.has_active_filters = specs, has_filters, active
        self.clear_all_filters_qs = self.get_query_string(remove=self.get_filters_params())
        return self.root_queryset.none()

    def get_results(self, request: HttpRequest) -> None:
        try:
            before = UUID(self.params[BEFORE]) if BEFORE in self.params else LAST
        except ValueError as error:
            raise IncorrectLookupParameters(str(error)) from error
        rows, self.found = self.find(limit=self.list_per_page, before=before)
        self.older = None if self.found.before is None else self.get_query_string({BEFORE: str(self.found.before)})
        self.result_list = list(rows)
        self.result_count = len(rows)
        self.full_result_count = self.result_count  # or the search box would offer to show all
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = False
        self.multi_page = False
        self.paginator = Paginator(self.result_list, max(1, self.list_per_page))


class ChoiceFilter(admin.SimpleListFilter):
    """A filter that asks no table: the change list hands its value to the inspection."""

    first: ClassVar[str] = "All"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset

    def choices(self, changelist: Any) -> Iterator[Any]:
        first, *others = super().choices(changelist)
        yield {**first, "display": self.first}
        yield from others


def as_uuid(text: str) -> UUID | None:
    """Return the id that an address holds, or None where it holds none."""
    try:
        return UUID(text)
    except ValueError:
        return None


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows rows. Nothing is written by hand: a row edited past its fence can lose work or run it twice."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a facet counts every row
    list_per_page = 50
    sortable_by: ClassVar[tuple[str, ...]] = ()
    change_list_template = "admin/ultimat3_jobs/change_list.html"
    row_template: ClassVar[str] = "admin/ultimat3_jobs/job.html"

    class Media:
        css: ClassVar[dict[str, tuple[str, ...]]] = {"all": ("ultimat3_jobs/admin.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def list_url(self) -> str:
        """Return where the list of these rows is."""
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def page_of(self, request: HttpRequest, object_id: str) -> dict[str, Any] | None:
        """Return what the page of one row holds, or None where there is no such row.

        Args:
            request: of who may see it.
            object_id: what the address says: anything.
        """
        raise NotImplementedError

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Tell all about one row. Nothing can be changed here."""
        if request.method != "GET" or not self.has_view_permission(request):
            raise PermissionDenied
        page = self.page_of(request, object_id)
        if page is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return, attr-defined]
        return self.answer(request, self.row_template, page | (extra_context or {}))

    def answer(self, request: HttpRequest, template: str, page: dict[str, Any]) -> HttpResponse:
        """Answer with a page that holds `page` and what every page of the admin does."""
        site = self.admin_site.each_context(request)
        context = {**site, "opts": self.opts, "media": self.media, "list_url": self.list_url(), **page}
        return TemplateResponse(request, template, context)


class WorkColumns:
    """The columns that a job and a staged row share. Their text may be anybody's."""

    @admin.display(description="job")
    def shown_name(self, row: Job | OutboxEntry) -> str:
        return printable(row.name)

    @admin.display(description="tenant", empty_value="-")
    def shown_tenant(self, row: Job | OutboxEntry) -> str | None:
        return None if row.tenant_id is None else printable(row.tenant_id)

    @admin.display(description="key")
    def shown_key(self, row: Job | OutboxEntry) -> str:
        return printable(row.idempotency_key)

    @admin.display(description="queue")
    def shown_queue(self, row: Job | OutboxEntry) -> str:
        return printable(row.queue)
