"""What the jobs wrote down, in the admin: to look at, since only they write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from example_project.catalogs.models import Catalog, Entry, Finding, Publication

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin  # takes no type argument when it runs


class _ReadOnlyAdmin(ModelAdmin):
    """Rows are shown; the next job would overwrite what a person changed."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Catalog)
class CatalogAdmin(_ReadOnlyAdmin):
    """Catalogs with their counts."""

    list_display = (
        "path",
        "group",
        "language",
        "total",
        "translated",
        "fuzzy",
        "untranslated",
    )
    list_filter = ("group", "language")
    search_fields = ("path",)


@admin.register(Finding)
class FindingAdmin(_ReadOnlyAdmin):
    """Messages that need a person."""

    list_display = ("message", "problem", "catalog", "line")
    list_filter = ("problem", "catalog__group")
    list_select_related = ("catalog",)
    search_fields = ("message",)


@admin.register(Entry)
class EntryAdmin(_ReadOnlyAdmin):
    """Messages of the catalogs that are published."""

    list_display = ("msgid", "msgstr", "state", "catalog")
    list_filter = ("state", "catalog__language")
    list_select_related = ("catalog",)
    search_fields = ("msgid", "msgstr")


@admin.register(Publication)
class PublicationAdmin(_ReadOnlyAdmin):
    """Catalogs that were published, and who had reviewed them."""

    list_display = ("path", "reviewed_by", "entries", "translated", "checksum")
    list_filter = ("reviewed_by",)
    search_fields = ("path", "checksum")
