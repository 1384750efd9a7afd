"""Jobs in the admin: the list begins with dead letters, a job's page with why it died."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse

from ultimat3_jobs.admin.lists import BoundedChangeList, ChoiceFilter, WorkColumns, as_uuid
from ultimat3_jobs.admin.repairs import Repair, RepairingAdmin
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.errors import StepUnknown
from ultimat3_jobs.inspection import repair
from ultimat3_jobs.inspection.lists import Filters, Page, list_jobs, queues, search_jobs
from ultimat3_jobs.inspection.look import Look
from ultimat3_jobs.inspection.masking import bounded, printable, shown
from ultimat3_jobs.inspection.preview import preview
from ultimat3_jobs.inspection.step_texts import output_text, progress, progress_text, state_text, took_text, when_text
from ultimat3_jobs.inspection.steps import MAX_STEPS
from ultimat3_jobs.inspection.story import Story, attempt_line, attempt_text, failure_text, overview, tell
from ultimat3_jobs.models import Job, JobAttempt
from ultimat3_jobs.moments import instant
from ultimat3_jobs.states import LIVE, RETRYABLE, State

RETRY = Repair(
    "retry", "Retried", repair.retry, "Attempts start over; what earlier attempts did outside is not undone."
)
CANCEL = Repair(
    "cancel",
    "Cancelled",
    repair.cancel,
    "A cancelled job never runs again. One that is running stops at its next heartbeat; its body may go on until then.",
)


WHY = "told_why"
"""What the list adds to its rows."""
FROM_STEP = "from_step"
FORGETS = "Steps that run again repeat what they did outside; an event that one of them had taken can be taken again."
MAX_RESULT = 300
"""Characters of a step's result that a page shows."""


class StateFilter(ChoiceFilter):
    """Dead letters unless another state is asked for; a search looks at all."""

    title = "state"
    parameter_name = "state"
    first = "Needs attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("all", "All"), *((state, state) for state in State)]

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            if changelist.query and self.value() is None:
                choice["selected"] = choice["display"] == "All"
            yield choice


class QueueFilter(ChoiceFilter):
    """The queues that have work or dead letters."""

    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(queue, printable(queue)) for queue in queues()]


class JobChangeList(BoundedChangeList):
    """The jobs that state, queue and search mean."""

    def find(self, *, limit: int, before: UUID) -> tuple[Sequence[Model], Page]:
        state = self.chosen("state")
        states: tuple[str, ...] = (state,)
        if state == "all" or (self.query and not state):
            states = ()
        elif not state:
            states = tuple(RETRYABLE)
        filters = Filters(states=states, queue=self.chosen("queue"))
        text = self.query.strip()
        page = search_jobs(text, filters, limit=limit, before=before) if text else None
        page = page or list_jobs(filters, limit=limit, before=before)
        look = Look()  # one for all rows
        for job in page.jobs:
            setattr(job, WHY, overview(job, look))
        return page.jobs, page


class JobAdmin(WorkColumns, RepairingAdmin):
    """Jobs."""

    list_display = ("shown_name", "state", "why", "ended", "shown_tenant", "shown_key", "shown_queue")
    list_display_links = ("shown_name",)
    list_filter = (StateFilter, QueueFilter)
    search_fields = ("idempotency_key",)  # shows the box; the change list knows what to look for
    search_help_text = "The whole of an id, key, name or tenant, or at least 8 digits an id begins with."
    repairs: ClassVar = (RETRY, CANCEL)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        return JobChangeList

    @admin.display(description="why")
    def why(self, job: Job) -> str:
        return printable(getattr(job, WHY))

    @admin.display(description="ended")
    def ended(self, job: Job) -> str:
        return instant(job.finished_at)

    def rows(self, ids: Sequence[UUID]) -> dict[UUID, Job]:
        return Job.objects.using(queue_alias()).in_bulk(ids)

    def aliases(self) -> tuple[str, ...]:
        return (queue_alias(),)

    def narrowed(self, request: HttpRequest, repair: Repair, ids: Sequence[UUID]) -> Repair:
        """Return the action; a retry that names a step is one from that step, with its preview."""
        step = request.POST.get(FROM_STEP)
        if step is None or repair is not RETRY:
            return repair
        if len(ids) != 1:
            raise StepUnknown(
                f"a step is named for one job, and {len(ids)} were selected",
                fix='press "From here…" beside the step on the page of the one job',
            )
        return replace(
            repair,
            move=partial(repair.move, from_step=step),
            warning=f"{repair.warning} {FORGETS}",
            narrowed_to=printable(f"from step {step!r}"),
            fields=((FROM_STEP, step),),
            options=f"--from-step {printable(shlex.quote(step))}",
            preview=preview(ids[0], step),
        )

    def summary(self, row: Job) -> str:
        return printable(f"{row.name}, key {row.idempotency_key}, {row.state}")

    def _pass_url(self, request: HttpRequest, story: Story) -> str:
        if story.backfill is None or not request.user.has_perm("ultimat3_jobs.view_backfill"):
            return ""
        return reverse(f"{self.admin_site.name}:ultimat3_jobs_backfill_change", args=[story.backfill.run_id])

    def page_of(self, request: HttpRequest, object_id: str) -> dict[str, Any] | None:
        job_id = as_uuid(object_id)
        story = None if job_id is None else tell(job_id)
        if not isinstance(story, Story):
            return None
        job = story.job
        newest = next((one for one in story.attempts if one.kind == "failure"), None)
        return {
            "title": printable(job.name),
            "subtitle": str(job.id),
            "story": story,
            "pass_url": self._pass_url(request, story),
            "why": printable(story.why),
            "alarm": job.state in RETRYABLE,
            "progress": _progress(job),
            "steps": _steps(story),
            "more_command": f"python manage.py jobs show {job.id} --steps {MAX_STEPS}",
            "facts": [(name, printable(value)) for name, value in _facts(job).items() if value],
            "input": printable(shown(job.input), lines=True),
            "result": None if job.result is None else printable(shown(job.result), lines=True),
            "last_error": "" if story.attempts else printable(bounded(job.last_error), lines=True),
            "attempts": [(_heading(one), _text(one), one is newest) for one in story.attempts],
            "commands": [(printable(command), does) for command, does in story.commands],
            "retry": RETRY if job.state in RETRYABLE and self.may(request, RETRY) else None,
            "whole": story.backfill is not None,  # from its step on, it would sweep all rows again
            "cancel": CANCEL if job.state in LIVE and self.may(request, CANCEL) else None,
        }


def _steps(story: Story) -> list[dict[str, Any]]:
    return [
        {
            "key": step.name,
            "name": printable(step.name),
            "kind": printable(step.kind),
            "state": printable(state_text(step, story.job, story.now)),
            "attempt": step.attempt,
            "took": took_text(step),
            "when": when_text(step),
            "output": printable(output_text(step, MAX_RESULT)),
        }
        for step in story.steps
    ]


def _progress(job: Job) -> dict[str, str] | None:
    found = progress(job)
    if found is None:
        return None
    done, total = found
    # As text: a template writes numbers as the reader's language does, and an attribute takes none of that.
    return {"done": str(done), "total": "" if total is None else str(total), "text": progress_text(job)}


def _facts(job: Job) -> dict[str, str]:
    return {
        "State": job.state + (f" ({job.stop})" if job.stop else ""),
        "Queue": job.queue,
        "Tenant": "(none)" if job.tenant_id is None else job.tenant_id,
        "Key": job.idempotency_key,
        "Attempts": attempt_text(job),
        "Priority": str(job.priority) if job.priority else "",
        "Due": instant(job.run_at),
        "Created": instant(job.created_at),
        "Started": instant(job.started_at),
        "Ended": instant(job.finished_at),
        "Worker": job.claimed_by,
        "Enqueued by": job.enqueued_by,
        "Cause": job.cause,
    }


def _heading(attempt: JobAttempt) -> str:
    line = attempt_line(attempt)
    return printable(line[:1].upper() + line[1:])


def _text(attempt: JobAttempt) -> str:
    return printable(bounded(failure_text(attempt)), lines=True)
