"""Jobs, stories and outcomes as plain JSON values: what `--json` prints. Fields are added, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.inspection import backfill_texts
from ultimat3_jobs.inspection.lists import COLUMNS, Page
from ultimat3_jobs.inspection.masking import masked
from ultimat3_jobs.inspection.passes import PassReport
from ultimat3_jobs.inspection.preview import Preview, preview_command
from ultimat3_jobs.inspection.repair import Outcome, mending
from ultimat3_jobs.inspection.staged import StagedPage, staged_command
from ultimat3_jobs.inspection.step_texts import Waits, waits
from ultimat3_jobs.inspection.steps import RecordedStep
from ultimat3_jobs.inspection.story import StagedStory, Story
from ultimat3_jobs.models import Backfill, Job, JobAttempt, OutboxEntry
from ultimat3_jobs.states import LIVE
from ultimat3_jobs.text import command_line

VERSION = 1
"""Of all reports. It grows where a field goes or means something else."""

_STORY = (
    "run_id", "priority", "lapses", "claimed_by", "visible_at", "started_at", "key_until", "enqueued_by",
    "cancel_requested_at", "cancel_requested_by", "cancel_reason", "last_error", "origin", "progress",
)  # fmt: skip
_ATTEMPT = (
    "kind", "attempt", "worker", "release", "error_class", "message", "traceback", "rule", "decision", "by", "reason",
    "started_at", "finished_at", "next_run_at",
)  # fmt: skip
_STEP = (
    "name", "seq", "kind", "state", "attempt", "until", "started_at", "finished_at", "seconds", "output", "output_size",
)  # fmt: skip
_WAITS = ("event", "match", "until", "poll")
_PASS = (
    "run_id", "name", "table", "outcome", "processed", "total", "estimated", "batch", "rate", "environment",
    "requested_by", "forced", "checksum", "release", "bound", "paused_at", "paused_by", "pause_reason", "created_at",
    "updated_at", "finished_at",
)  # fmt: skip
_ENTRY = (
    "id", "kind", "name", "queue", "tenant_id", "idempotency_key", "outcome", "job_id", "attempts", "error",
    "enqueued_by", "staged_at", "published_at", "run_at",
)  # fmt: skip


def page(listed: Page) -> dict[str, Any]:
    """A list of jobs."""
    return {
        "jobs": [job(one) for one in listed.jobs],
        "before": _plain(listed.before),
        "walked": listed.walked,
    }


def staged_page(listed: StagedPage) -> dict[str, Any]:
    """A list of outbox rows, each with the command that mends it."""
    return {
        "staged": [{**_fields(one, _ENTRY), "command": staged_command(one)} for one in listed.entries],
        "before": _plain(listed.before),
        "walked": listed.walked,
    }


def job(one: Job) -> dict[str, Any]:
    """One job of a list, with the command that mends it."""
    mend = mending(one)
    stop = command_line("jobs", "cancel", str(one.id)) if one.state in LIVE else None
    return {**_fields(one, COLUMNS), "command": stop if mend is None else mend[0]}


def story(told: Story | StagedStory) -> dict[str, Any]:
    """All that is known of one job or outbox row, secrets masked."""
    commands = [{"command": command, "does": does} for command, does in told.commands]
    if isinstance(told, StagedStory):
        entry = {**_fields(told.entry, _ENTRY), "input": masked(told.entry.input)}
        return {"staged": entry, "why": told.why, "commands": commands}
    found = waits(told.job)
    return {
        "job": {
            **job(told.job),
            **_fields(told.job, _STORY),
            "input": masked(told.job.input),
            "result": masked(told.job.result),
        },
        "why": told.why,
        "holder": _plain(told.holder),
        "attempts": [_fields(attempt, _ATTEMPT) for attempt in told.attempts],
        "more_attempts": told.more_attempts,
        "steps": [{**_fields(step, _STEP), "is_over": step.is_over(told.now)} for step in told.steps],
        "more_steps": told.more_steps,
        "waits_for": None if found is None else _fields(found, _WAITS),
        "pass": told.backfill and swept_pass(told.backfill),
        "commands": commands,
    }


def swept_pass(one: PassReport) -> dict[str, Any]:
    """One pass of a backfill, with the commands that steer or mend it."""
    job = one.job
    return {
        **_fields(one.row, _PASS),
        "begun": one.begun,
        "status": one.status.value,
        "job_state": None if job is None else job.state,
        "percent": one.percent,
        "rows_per_second": one.rows_per_second,
        "seconds_left": one.seconds_left,
        "waits_for": one.waits_for,
        "window": None if one.window is None else str(one.window),
        "checksum_changed": one.checksum_changed,
        "stop": "" if job is None else job.stop,
        "error": backfill_texts.error_text(one),
        "commands": [{"command": command, "does": does} for command, does in backfill_texts.commands(one)],
    }


def preview(one: Preview) -> dict[str, Any]:
    """What a retry would do, with the command that does it."""
    return {
        "id": str(one.id),
        "name": one.name,
        "from_step": one.from_step,
        "kept": [{"name": name, "kind": kind} for name, kind in one.kept],
        "again": [{"name": name, "kind": kind} for name, kind in one.again],
        "notes": one.notes,
        "command": preview_command(one),
    }


def outcome(one: Outcome) -> dict[str, Any]:
    """What became of one id."""
    return {"id": str(one.id), "done": one.done, "verdict": str(one.verdict), "error": one.error and error(one.error)}


def error(raised: JobsError) -> dict[str, Any]:
    """An error with what mends it."""
    return {"code": raised.code, "cause": raised.cause, "fix": raised.fix, "docs": raised.docs}


def _fields(
    row: Job | JobAttempt | OutboxEntry | RecordedStep | Waits | Backfill, names: tuple[str, ...]
) -> dict[str, Any]:
    return {name: _plain(getattr(row, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value
