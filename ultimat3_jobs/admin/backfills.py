"""Backfills in the admin: where the declared ones stand, their passes, and what can be done to a live one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode

from ultimat3_jobs.admin.lists import BoundedChangeList, as_uuid
from ultimat3_jobs.admin.repairs import ReasonForm, Repair, RepairingAdmin
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills import controls
from ultimat3_jobs.backfills.asking import ask
from ultimat3_jobs.backfills.commands import backfill_command, list_command
from ultimat3_jobs.backfills.controls import UNCHANGED, Controlled
from ultimat3_jobs.backfills.declare import Backfill as Handle
from ultimat3_jobs.backfills.find import find_backfill
from ultimat3_jobs.backfills.pacing import HIGHEST_RATE, LOWEST_RATE
from ultimat3_jobs.backfills.pending import PassStatus
from ultimat3_jobs.backfills.plan import start
from ultimat3_jobs.backfills.windows import parse_window
from ultimat3_jobs.enqueue import EnqueueResult
from ultimat3_jobs.errors import BackfillApplied, BackfillRunning, BackfillUnknown, DeclarationInvalid, JobsError
from ultimat3_jobs.inspection import backfill_texts, repair
from ultimat3_jobs.inspection.backfills import PassPage, list_passes, pending
from ultimat3_jobs.inspection.masking import printable
from ultimat3_jobs.inspection.passes import PassReport, tell_pass
from ultimat3_jobs.inspection.refusals import refusal
from ultimat3_jobs.inspection.repair import Outcome
from ultimat3_jobs.inspection.story import attempt_text
from ultimat3_jobs.models import Backfill
from ultimat3_jobs.moments import instant
from ultimat3_jobs.text import command_line, counted

T = TypeVar("T")


def _each(
    control: Callable[..., Controlled], ids: Sequence[UUID], *, by: str, reason: str, **asked: Any
) -> list[Outcome]:
    outcomes = []
    for one in sorted(ids):  # in one order for everyone: two who steer the same passes never wait in a ring
        try:
            outcomes.append(Outcome(one, True, control(one, by=by, reason=reason, **asked).verdict))
        except JobsError as error:
            outcomes.append(Outcome(one, False, "refused", error))
    return outcomes


class PaceForm(ReasonForm):
    """How fast a pass may sweep, and when."""

    field_order = ("rate", "window", "always", "reason")

    rate = forms.FloatField(
        required=False,
        min_value=LOWEST_RATE,
        max_value=HIGHEST_RATE,
        label="Pages a second at most",
        help_text="Empty leaves it as it is.",
    )
    window = forms.CharField(
        required=False, label="Hours", help_text="In which it may sweep: 22:00-06:00. Empty leaves them as they are."
    )
    always = forms.BooleanField(required=False, label="At any hour", help_text="Takes the hours away.")

    def clean(self) -> dict[str, Any]:
        """Return what is to change: the rate, and the window where that does."""
        asked = super().clean() or {}
        if self.errors:
            return asked
        text, always = asked.pop("window"), asked.pop("always")
        if text and always:
            raise ValidationError("Give hours, or any hour: not both.")
        try:
            window = None if always else parse_window(text) if text else UNCHANGED
        except DeclarationInvalid as error:
            self.add_error("window", f"{error.cause}.")
            return asked
        if asked["rate"] is None and window is UNCHANGED:
            raise ValidationError("Give a rate, hours, or any hour.")
        return {**asked, "window": window}


class StartForm(ReasonForm):
    """What a new pass is to be."""

    field_order = ("forced", "reason")

    forced = forms.BooleanField(
        required=False, label="By force", help_text="Sweep all of it again although a pass has completed."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = "Kept in the admin's log."


PAUSE = Repair("pause", "Paused", partial(_each, controls.pause), "A paused pass rests before its next page.")
RESUME = Repair("resume", "Resumed", partial(_each, controls.resume), "It goes on from its last page.")
PACE = Repair(
    "pace",
    "Paced",
    partial(_each, controls.pace),
    "It holds from the next page on, for this pass alone: another one begins as it is declared.",
    form=PaceForm,
)
CANCEL = Repair(
    "cancel",
    "Cancelled",
    repair.cancel,
    "A cancelled pass never goes on. The page that it is at is rolled back; those before it stay. A new pass begins "
    "with the first row.",
)
RETRY = Repair(
    "retry",
    "Retried",
    repair.retry,
    "It goes on from its last page, in the code that the workers have now; attempts start over.",
)
_PERMISSIONS = {"cancel": "cancel_job", "retry": "retry_job"}
_ALARM = (PassStatus.FAILED,)


@dataclass(frozen=True)
class ToldPass:
    """A row of the list: a pass with all that is told of it. To the admin it is what a row of the ledger would be."""

    told: PassReport
    _meta: ClassVar = Backfill._meta

    @property
    def pk(self) -> UUID:
        """The id of the pass."""
        return self.told.run_id

    @property
    def run_id(self) -> UUID:
        """The same, by the name of its column."""
        return self.told.run_id

    def serializable_value(self, name: str) -> Any:
        """Return the value of a field, of which the admin asks for the id alone."""
        return self.told.row.serializable_value(name)

    def __str__(self) -> str:
        return str(self.told.row)


class BackfillChangeList(BoundedChangeList):
    """The passes of the backfill that was searched for, or all."""

    def find(self, *, limit: int, before: UUID) -> tuple[Sequence[ToldPass], PassPage]:
        page = list_passes(self.query.strip(), limit=limit, before=before)
        return [ToldPass(one) for one in page.passes], page


class BackfillAdmin(RepairingAdmin):
    """Passes, below where the declared backfills stand."""

    change_list_template = "admin/ultimat3_jobs/backfills.html"
    row_template = "admin/ultimat3_jobs/pass.html"
    list_display = ("shown_name", "status", "progress", "why", "requested", "began", "ended")
    list_display_links = ("shown_name",)
    search_fields = ("name",)
    search_help_text = "The whole of a backfill's name."
    repairs: ClassVar = (PAUSE, RESUME, PACE, CANCEL, RETRY)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[BackfillChangeList]:
        return BackfillChangeList

    def get_urls(self) -> list[URLPattern]:
        start_view = path("start/", self.admin_site.admin_view(self.start_view), name="ultimat3_jobs_backfill_start")
        return [start_view, *super().get_urls()]

    @admin.display(description="backfill")
    def shown_name(self, row: ToldPass) -> str:
        return printable(row.told.name)

    @admin.display(description="status")
    def status(self, row: ToldPass) -> str:
        return row.told.status.value + (", forced" if row.told.row.forced else "")

    @admin.display(description="progress")
    def progress(self, row: ToldPass) -> str:
        return backfill_texts.progress_text(row.told)

    @admin.display(description="why", empty_value="-")
    def why(self, row: ToldPass) -> str:
        return printable(backfill_texts.why_text(row.told))

    @admin.display(description="requested by")
    def requested(self, row: ToldPass) -> str:
        return printable(row.told.row.requested_by)

    @admin.display(description="began")
    def began(self, row: ToldPass) -> str:
        return _began(row.told)

    @admin.display(description="ended")
    def ended(self, row: ToldPass) -> str:
        return _ended(row.told)

    def may(self, request: HttpRequest, repair: Repair) -> bool:
        """Whether the user may do this: what steers a pass is one permission, and cancelling is that of jobs."""
        codename = _PERMISSIONS.get(repair.verb, "pause_backfill")
        allowed: bool = request.user.has_perm(f"{self.opts.app_label}.{codename}")
        return allowed

    def may_start(self, request: HttpRequest) -> bool:
        """Whether the user may start passes."""
        allowed: bool = request.user.has_perm(f"{self.opts.app_label}.start_backfill")
        return allowed

    def rows(self, ids: Sequence[UUID]) -> dict[UUID, Backfill]:
        found = Backfill.objects.using(queue_alias()).in_bulk(ids)
        # A pass that has not begun has no row yet.
        told = {one: tell_pass(one) for one in ids if one not in found}
        return {**found, **{one: report.row for one, report in told.items() if report is not None}}

    def aliases(self) -> tuple[str, ...]:
        return (queue_alias(),)

    def summary(self, row: Backfill) -> str:
        return printable(f"{row.name}, {counted(row.processed, 'row')}")

    def line(self, repair: Repair, row: Backfill) -> str:
        """Say what a pass is and, where it is to be paced, how it is paced now."""
        now = f"; now {backfill_texts.limits_text(row)}" if repair is PACE else ""
        return f"{self.summary(row)}{now}"

    def twin(self, repair: Repair, ids: Sequence[UUID]) -> str:
        """Return the command lines that do the same: one for each pass that is steered."""
        if repair in (CANCEL, RETRY):
            return super().twin(repair, ids)
        options = ("--rate", "5", "--window", "22:00-06:00") if repair is PACE else ()
        return " && ".join(command_line("jobs", repair.verb, str(one), *options) for one in ids)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show where the declared backfills stand, and under them the passes."""
        if request.method == "POST":
            return super().changelist_view(request, extra_context)
        declared = [
            {
                "name": printable(one.name),
                "status": one.status.value,
                "keeps_back": one.keeps_back,
                "passes": f"{self.list_url()}?{urlencode({'q': one.name})}",
                "start": f"{self._start_url()}?{urlencode({'name': one.name})}" if self.may_start(request) else "",
                "start_label": printable(f"Start a pass of {one.name}…"),
            }
            for one in pending().standings
        ]
        context = {"declared": declared, "list_command": command_line("backfill", "--list")}
        return super().changelist_view(request, context | (extra_context or {}))

    def page_of(self, request: HttpRequest, object_id: str) -> dict[str, Any] | None:
        run_id = as_uuid(object_id)
        one = None if run_id is None else tell_pass(run_id)
        if one is None:
            return None
        facts = {
            **backfill_texts.facts(one),
            "attempt": attempt_text(one.job) if one.job else "",
            "began": _began(one),
            "ended": _ended(one),
            "bound": "" if one.row.bound is None else str(one.row.bound),
        }
        offered = [RESUME if one.status is PassStatus.PAUSED else PAUSE, PACE, CANCEL] if one.is_live else []
        if backfill_texts.may_go_on(one):
            offered = [RETRY]
        site = self.admin_site.name
        return {
            "title": printable(one.name),
            "subtitle": str(one.run_id),
            "why": printable(backfill_texts.status_text(one)),
            "alarm": one.status in _ALARM,
            "progress": _progress(one),
            "facts": [(name.capitalize(), printable(value)) for name, value in facts.items() if value],
            "commands": [(printable(command), does) for command, does in backfill_texts.commands(one)],
            "actions": [each for each in offered if self.may(request, each)],
            "job_url": reverse(f"{site}:ultimat3_jobs_job_change", args=[one.run_id]) if one.job else "",
            "begun": one.begun,
            "list_command": printable(list_command(one.name)),
        }

    def start_view(self, request: HttpRequest) -> HttpResponse:
        """Show what the gate says of a new pass, and start one where it is asked for by POST."""
        if not self.has_view_permission(request) or not self.may_start(request):
            raise PermissionDenied
        try:
            backfill = find_backfill(request.GET.get("name", ""))
        except BackfillUnknown as error:
            raise Http404(error.cause) from error
        form = StartForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            return self._start(request, backfill, **form.cleaned_data)
        try:
            with transaction.atomic(using=queue_alias()):  # or a query that fails spoils those of the page
                verdict = _asked(backfill, backfill.judged)
            refused, warnings = verdict.error, verdict.warnings
        except JobsError as error:
            refused, warnings = error, ()
        name = printable(backfill.name)
        page = {
            "title": f"Start a pass of {name}?",
            "name": name,
            "form": form,
            "refusal": refused and {"cause": printable(refused.cause), "fix": printable(refused.fix)},
            "hopeless": isinstance(refused, BackfillRunning),  # force helps against what has completed alone
            "swept": isinstance(refused, BackfillApplied),
            "warnings": [printable(one) for one in warnings],
            "command": printable(backfill_command(backfill.name, "--write")),
            "look": printable(backfill_command(backfill.name)),
        }
        return self.answer(request, "admin/ultimat3_jobs/start.html", page)

    def _start(self, request: HttpRequest, backfill: Handle, *, forced: bool, reason: str) -> HttpResponse:
        try:
            # One transaction, so that nothing is started that the log does not know of.
            with transaction.atomic(using=queue_alias()):
                queued, warnings = _start(backfill, forced=forced, by=request.user.get_username())
                row = Backfill(run_id=queued.id, name=backfill.name)
                self.log_addition(request, row, f"Started{' by force' if forced else ''}. {reason}".strip())
        except JobsError as error:
            self._tell(request, error)
            return HttpResponseRedirect(request.get_full_path())
        for warning in warnings:
            self.message_user(request, printable(warning), messages.WARNING)
        told = f"{backfill.name}: pass {queued.id} is queued, for a worker to sweep"
        self.message_user(request, printable(told), messages.SUCCESS)
        return HttpResponseRedirect(self.list_url())

    def _start_url(self) -> str:
        return reverse(f"{self.admin_site.name}:ultimat3_jobs_backfill_start")


def _start(backfill: Handle, *, forced: bool, by: str) -> tuple[EnqueueResult, tuple[str, ...]]:
    return _asked(backfill, lambda: start(backfill, forced=forced, by=by))


def _asked(backfill: Handle, call: Callable[[], T]) -> T:
    """Do something with a backfill; whatever the project's code raises, of which it is declared, is a refusal."""
    return ask(call, refuse=lambda error: refusal(backfill.name, error))


def _began(one: PassReport) -> str:
    return instant(one.row.created_at) if one.begun else "not yet"


def _ended(one: PassReport) -> str:
    return "" if one.is_live else instant(one.row.finished_at or (one.job.finished_at if one.job else None))


def _progress(one: PassReport) -> dict[str, str]:
    # As text: a template writes numbers as the reader's language does, and an attribute takes none of that.
    percent = "" if one.percent is None else str(one.percent)
    parts = [backfill_texts.progress_text(one)]
    if one.rows_per_second is not None:
        parts.append(backfill_texts.speed_text(one))
    if one.seconds_left is not None:
        parts.append(f"{backfill_texts.left_text(one)} left")
    return {"percent": percent, "text": ", ".join(parts)}
