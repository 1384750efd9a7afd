"""Recorded steps, waits and progress in the words that every surface uses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from ultimat3_jobs.backfills.declared import declared_under
from ultimat3_jobs.inspection.look import Look
from ultimat3_jobs.inspection.masking import masked_match
from ultimat3_jobs.inspection.steps import MAX_OUTPUT, RecordedStep
from ultimat3_jobs.models import Job
from ultimat3_jobs.moments import instant, span
from ultimat3_jobs.records import StepKind, StepState
from ultimat3_jobs.states import FINAL, WAITING, State

EXACT = 10
"""Seconds from which on a step's time is told without fractions."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What a suspended run waits for.

    Attributes:
        event: the event's name; empty where it merely sleeps.
        match: what the event must match, secrets masked; empty takes every event of the name.
        until: when the sleep or the wait is over; None waits for as long as it takes.
        poll: seconds between two looks for the event, should no publication wake the run.
    """

    event: str
    match: str
    until: datetime | None
    poll: float | None


def waits(job: Job) -> Waits | None:
    """Return what a job waits for, or None where it does not, or is parked because no code knows its name."""
    if job.state != State.SUSPENDED:
        return None
    if job.wait_event:
        return Waits(job.wait_event, masked_match(job.wait_match), job.wait_until, job.wait_poll)
    return None if job.parks else Waits("", "", job.run_at, None)


def is_due(job: Job, look: Look) -> bool:
    """Whether a job waits for a worker and for nothing else. Why it was suspended or delayed is over then."""
    return job.state == State.READY or (job.state in WAITING and look.is_due(job.run_at))


def is_silent(job: Job, look: Look) -> bool:
    """Whether a job runs in a worker that no longer says so: another may take it."""
    return job.state == State.RUNNING and job.visible_at is not None and look.is_due(job.visible_at)


def why_suspended(job: Job, look: Look) -> str:
    """Return what a suspended job waits for, and when it is looked at again, in a sentence or two."""
    if look.is_due(job.run_at):
        return _why_due(job, look)
    reason = job.park_reason or "no reason was kept"
    found = waits(job)
    if found is None:
        return f"It is parked: {reason}. It is looked at again at {instant(job.run_at)}."
    if not found.event:
        # What a pass waits for may hold then, too.
        then = "is looked at again" if declared_under(job.name) else "goes on"
        return f"It is suspended: {reason}. It {then} at {instant(job.run_at)}; no worker is held until then."
    looks = f"looked at again every {found.poll:g} s, next" if found.poll else "looked at again"
    return f"{_awaits(job)}; it is {looks} at {instant(job.run_at)}."


def _why_due(job: Job, look: Look) -> str:
    """Return what a suspended job waits for whose moment has come; what it was suspended for may hold no longer."""
    since, worker = instant(job.run_at), look.worker_for(job.queue)
    if job.wait_event:
        return f"{_awaits(job)}. It is due to be looked at again since {since}, and waits for {worker}."
    was = f"parked: {job.park_reason or 'no reason was kept'}" if job.parks else "suspended"
    return f"It was {was}. It is due since {since} and waits for {worker}."


def _awaits(job: Job) -> str:
    match = f" {masked_match(job.wait_match)}" if job.wait_match else ""
    end = f"until {instant(job.wait_until)}" if job.wait_until else "for as long as it takes"
    return f"It waits for the event {job.wait_event!r}{match} {end}"


def progress(job: Job) -> tuple[float, float | None] | None:
    """Return how much a job has done and of how much, as it says; None where it says nothing that can be read."""
    value = job.progress if isinstance(job.progress, dict) else {}
    done, total = value.get("done"), value.get("total")
    if not _is_number(done):
        return None
    return done, total if _is_number(total) and total > 0 else None


def progress_text(job: Job) -> str:
    """Return how far a job is: "done 5 of 10 (50 %)"."""
    found = progress(job)
    if found is None:
        return ""
    done, total = found
    return f"done {done:,}" if total is None else f"done {done:,} of {total:,} ({100 * done // total:.0f} %)"


def state_text(step: RecordedStep, job: Job, now: datetime) -> str:
    """Return how a step of a job stands."""
    if step.state != StepState.WAITING:
        return step.state
    if job.state in FINAL and not step.is_over(now):
        return "not ended"
    if step.kind == StepKind.SLEEP:
        return "over" if step.is_over(now) else "asleep"
    return "waiting"


def when_text(step: RecordedStep) -> str:
    """Return when it was done, or until when it lasts."""
    if step.state == StepState.WAITING and step.until is not None:
        return f"until {instant(step.until)}"
    return instant(step.finished_at or step.until or step.started_at)


def took_text(step: RecordedStep) -> str:
    """Return how long a step took."""
    seconds = step.seconds
    if seconds is None:
        return ""
    return f"{seconds:.3f} s" if seconds < EXACT else span(seconds)


def output_text(step: RecordedStep, limit: int) -> str:
    """Return what a step returned in one line of at most `limit` characters, masked."""
    if not step.output_size:
        return ""
    if step.output_size > MAX_OUTPUT:
        return f"[{step.output_size} characters]"
    text = json.dumps(step.output, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
