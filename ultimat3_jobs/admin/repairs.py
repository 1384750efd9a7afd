"""Retry and cancel in the admin: asked for by POST, confirmed with a reason, answered row by row, and logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from ultimat3_jobs.admin.lists import ReadOnlyAdmin
from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.inspection.masking import printable
from ultimat3_jobs.inspection.preview import Preview
from ultimat3_jobs.inspection.repair import MAX_REASON, Outcome
from ultimat3_jobs.inspection.steps import MAX_STEPS_SHOWN

MAX_SELECTED = 100
"""Rows that one action takes. More are a matter for the command line, which works in batches."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One action.

    Attributes:
        verb: its name, and that of the command: "retry".
        done: what has been done afterwards: "Retried".
        move: does it.
        warning: what to know before it is confirmed.
        narrowed_to: what of the rows it is about, where that is not the whole of them: "from step 'charge'".
        fields: names and values that the confirmation sends along.
        options: of the command that does the same.
        preview: what it would do, to be shown before it is confirmed.
        form: asks for more than a reason; `move` gets what was answered.
    """

    verb: str
    done: str
    move: Callable[..., list[Outcome]]
    warning: str
    narrowed_to: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    options: str = ""
    preview: Preview | None = None
    form: type[ReasonForm] | None = None


class ReasonForm(forms.Form):
    """Why something is done."""

    reason = forms.CharField(
        max_length=MAX_REASON,
        required=False,
        label="Reason",
        help_text="Kept in the job's history and in the admin's log.",
        widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True}),
    )


class RepairingAdmin(ReadOnlyAdmin):
    """Rows with actions, each behind the permission `<verb>_<model>`."""

    repairs: ClassVar[tuple[Repair, ...]] = ()

    def may(self, request: HttpRequest, repair: Repair) -> bool:
        """Whether the user may do this."""
        allowed: bool = request.user.has_perm(f"{self.opts.app_label}.{repair.verb}_{self.opts.model_name}")
        return allowed

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Name the actions that the user may do; `changelist_view` carries them out."""
        names = (self.opts.verbose_name_plural,)
        return {
            repair.verb: (_carried_out_elsewhere, repair.verb, f"{repair.verb.capitalize()} selected {names[0]}")
            for repair in self.repairs
            if self.may(request, repair)
        }

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list; a POST asks for an action, or confirms it. The admin site checks its token."""
        if request.method == "POST":
            return self._act(request)
        return super().changelist_view(request, extra_context)

    def _act(self, request: HttpRequest) -> HttpResponse:
        asked = request.POST.get("action", "")
        repair = next((one for one in self.repairs if one.verb == asked), None)
        if not self.has_view_permission(request):
            raise PermissionDenied
        if repair is None:
            return self._back(request, "No action was chosen. Nothing was changed.")
        if not self.may(request, repair):
            raise PermissionDenied
        try:
            ids = list(dict.fromkeys(map(UUID, request.POST.getlist(ACTION_CHECKBOX_NAME))))
        except ValueError:
            return self._back(request, "What was selected is not an id. Nothing was changed.")
        if not ids:
            return self._back(request, "Nothing was selected. Nothing was changed.")
        if len(ids) > MAX_SELECTED:
            return self._back(
                request,
                f"At most {MAX_SELECTED} can be selected at once. Nothing was changed. For more there is the command "
                f"line: python manage.py jobs {repair.verb} --help",
            )
        return self._confirm(request, repair, ids)

    def _confirm(self, request: HttpRequest, repair: Repair, ids: Sequence[UUID]) -> HttpResponse:
        try:
            repair = self.narrowed(request, repair, ids)
        except JobsError as error:
            self._tell(request, error)
            return HttpResponseRedirect(self._page_url(ids[0]) if len(ids) == 1 else request.get_full_path())
        form = (repair.form or ReasonForm)(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, repair, ids, form)
        return self._carry_out(request, repair, ids, form.cleaned_data)

    def _ask(self, request: HttpRequest, repair: Repair, ids: Sequence[UUID], form: ReasonForm) -> HttpResponse:
        names = self.opts.verbose_name if len(ids) == 1 else self.opts.verbose_name_plural
        rows = self.rows(ids)
        button = f"{repair.verb.capitalize()} {len(ids)} {names} {repair.narrowed_to}".strip()
        page = {
            "title": f"{button}?",
            "button": button,  # with its object: "Cancel" alone would read as a way out
            "repair": repair,
            "form": form,
            "rows": [(one, self.line(repair, rows[one]) if one in rows else "deleted") for one in ids],
            "checkbox": ACTION_CHECKBOX_NAME,
            "command": self.twin(repair, ids),
            "preview": repair.preview and _groups(repair.preview),
            "notes": [printable(note) for note in repair.preview.notes] if repair.preview else [],
            "back_url": self._page_url(ids[0]) if len(ids) == 1 else self.list_url(),
        }
        return self.answer(request, "admin/ultimat3_jobs/confirm.html", page)

    def _carry_out(
        self, request: HttpRequest, repair: Repair, ids: Sequence[UUID], answers: Mapping[str, Any]
    ) -> HttpResponse:
        try:
            outcomes = self._repair(request, repair, ids, **answers)
        except OperationalError as error:  # it and another transaction waited for one another, or the database is away
            why = f"The database refused ({printable(str(error)).strip()}). Nothing was changed: try again."
            return self._back(request, why)
        for one in outcomes:
            if one.done:
                self.message_user(request, f"{one.id}: {one.verdict}", messages.SUCCESS)
            elif one.error:
                self._tell(request, one.error)
            else:
                self.message_user(request, str(one.verdict), messages.ERROR)
        return HttpResponseRedirect(self._page_url(ids[0]) if len(ids) == 1 else self.list_url())

    def _repair(
        self, request: HttpRequest, repair: Repair, ids: Sequence[UUID], *, reason: str, **more: Any
    ) -> Sequence[Outcome]:
        # One transaction, so that nothing is done that the log does not know of.
        with ExitStack() as transactions:
            for alias in self.aliases():
                transactions.enter_context(transaction.atomic(using=alias))
            outcomes = repair.move(ids, by=request.user.get_username(), reason=reason, **more)
            rows = self.rows([one.id for one in outcomes if one.done])
            for one in outcomes:
                if one.id in rows:
                    done = f"{repair.done} {repair.narrowed_to}".strip()
                    self.log_change(request, rows[one.id], f"{done}. {reason}".strip())
        return outcomes

    def narrowed(self, request: HttpRequest, repair: Repair, ids: Sequence[UUID]) -> Repair:
        """Return the action as it is asked for: of the whole rows, unless a subclass knows of parts.

        Raises:
            JobsError: where what is asked for cannot be done.
        """
        return repair

    def twin(self, repair: Repair, ids: Sequence[UUID]) -> str:
        """Return the command line that does the same."""
        return f"python manage.py jobs {repair.verb} {' '.join(map(str, ids))} {repair.options}".strip()

    def rows(self, ids: Sequence[UUID]) -> Mapping[UUID, Model]:
        """Return the rows of these ids, as far as they are there."""
        raise NotImplementedError

    def aliases(self) -> tuple[str, ...]:
        """Return the databases in which the rows may be."""
        raise NotImplementedError

    def summary(self, row: Any) -> str:
        """Say in a line what a row is, for the confirmation."""
        return printable(str(row))

    def line(self, repair: Repair, row: Any) -> str:
        """Say in a line what an action is asked for."""
        return self.summary(row)

    def _tell(self, request: HttpRequest, error: JobsError) -> None:
        self.message_user(request, printable(f"{error.cause}. What to do: {error.fix}"), messages.ERROR)

    def _back(self, request: HttpRequest, message: str) -> HttpResponse:
        self.message_user(request, message, messages.WARNING)
        return HttpResponseRedirect(request.get_full_path())

    def _page_url(self, row: UUID) -> str:
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_change", args=[row])


def _groups(preview: Preview) -> list[tuple[str, int, list[tuple[str, str]], int]]:
    """Return what would be skipped and what would be done again: title, count, the steps shown, how many more."""
    groups = []
    for title, steps in (("Skipped, with the results they have", preview.skipped), ("Done again", preview.again)):
        shown = [(printable(name), printable(kind)) for name, kind in steps[:MAX_STEPS_SHOWN]]
        groups.append((title, len(steps), shown, len(steps) - len(shown)))
    return groups


@admin.action(description="")
def _carried_out_elsewhere(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Model]) -> None:
    raise PermissionDenied
