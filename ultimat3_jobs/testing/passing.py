"""Time that passes in a test: the database's clock cannot be moved, so what waits for it comes nearer."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Case, F, Min, Q, When

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import WAITING

BATCH = 500


def time_to_the_next(served: QueueSelection, longest: timedelta) -> timedelta:
    """Return how long it takes until another job of the served queues is due, at most `longest`."""
    from ultimat3_jobs.models import Job  # noqa: PLC0415 - needs loaded apps

    waiting = Job.objects.using(queue_alias()).filter(state__in=WAITING)
    if served.only:
        waiting = waiting.filter(queue__in=served.only)
    # What waits for an event waits for its time-out alone: nothing is published while nothing runs.
    due = Case(When(wait_event="", then=F("run_at")), default=F("wait_until"))
    first: datetime | None = waiting.aggregate(first=Min(due))["first"]
    if first is None:
        return longest
    ((text,),) = run(queue_alias(), "clock", {})
    return min(longest, max(timedelta(0), first - rows.parse_instant(text)))


def pass_time(length: timedelta) -> None:
    """Let time pass for the queue: whatever it waits for comes nearer by `length`."""
    from ultimat3_jobs.models import Job, JobEvent, JobStep  # noqa: PLC0415 - needs loaded apps

    alias = queue_alias()
    moved = []
    for job in Job.objects.using(alias).filter(Q(state__in=WAITING) | Q(key_until__isnull=False)):
        if job.state in WAITING:
            job.run_at -= length
        if job.key_until is not None:
            job.key_until -= length
        if job.wait_until is not None:
            job.wait_until -= length
        moved.append(job)
    Job.objects.using(alias).bulk_update(moved, ["run_at", "key_until", "wait_until"], batch_size=BATCH)
    steps = list(JobStep.objects.using(alias).filter(until__isnull=False))
    for step in steps:
        step.until = None if step.until is None else step.until - length
    JobStep.objects.using(alias).bulk_update(steps, ["until"], batch_size=BATCH)
    events = list(JobEvent.objects.using(alias))
    for event in events:
        event.expires_at -= length
    JobEvent.objects.using(alias).bulk_update(events, ["expires_at"], batch_size=BATCH)
