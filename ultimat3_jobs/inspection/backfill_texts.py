"""Passes of backfills in the words that every surface uses."""

from __future__ import annotations

from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.declared import declared_under
from ultimat3_jobs.backfills.passes import needs_another_pass
from ultimat3_jobs.backfills.pending import PassStatus
from ultimat3_jobs.inspection.error_texts import error_line
from ultimat3_jobs.inspection.passes import PassReport, window_of
from ultimat3_jobs.inspection.people_texts import by_and_why
from ultimat3_jobs.models import Backfill
from ultimat3_jobs.moments import instant, span
from ultimat3_jobs.states import RETRYABLE, State
from ultimat3_jobs.text import command_line, counted

UNKNOWN = "-"


def progress_text(one: PassReport) -> str:
    """Return how far a pass is: "5,000 of about 10,000 rows (50 %)"."""
    row = one.row
    if row.total is None:
        return counted(row.processed, "row") if row.processed else "not counted yet"
    about = "about " if row.estimated else ""
    return f"{row.processed:,} of {about}{counted(row.total, 'row')} ({one.percent} %)"


def speed_text(one: PassReport) -> str:
    """Return how fast a pass sweeps: "420 rows a second", or a dash where that is not known."""
    speed = one.rows_per_second
    if speed is None:
        return UNKNOWN
    return f"{speed:,.0f} rows a second" if speed >= 10 else f"{speed:.2g} rows a second"  # noqa: PLR2004 - digits


def left_text(one: PassReport) -> str:
    """Return how much time of sweeping is left: "12 min", or a dash where that is not known."""
    return UNKNOWN if one.seconds_left is None else span(one.seconds_left)


def pace_text(one: PassReport) -> str:
    """Return what paces a pass: "1,000 rows a page, 10 pages a second at most, 22:00-06:00"."""
    row = one.row
    parts = [f"{counted(row.batch, 'row')} a page" if row.batch else "pages of a tuned size"]
    if row.rate is not None:
        parts.append(f"{row.rate:g} pages a second at most")
    if one.window is not None:
        parts.append(str(one.window))
    return ", ".join(parts)


def limits_text(row: Backfill) -> str:
    """Return how fast a pass may sweep and when, both said where there is no limit: "at any speed, 22:00-06:00"."""
    rate = "at any speed" if row.rate is None else f"{row.rate:g} pages a second at most"
    window = window_of(row)
    return f"{rate}, {'at any hour' if window is None else window}"


def paused_text(one: PassReport) -> str:
    """Return who has paused a pass, since when and why; empty where nobody has."""
    if one.status is not PassStatus.PAUSED:
        return ""
    return f"paused at {instant(one.row.paused_at)}{by_and_why(one.row.paused_by, one.row.pause_reason)}"


def ending_text(one: PassReport) -> str:
    """Return how a pass ended, as the end of a sentence that begins with it: "was cancelled"."""
    return "was cancelled" if one.status is PassStatus.CANCELLED else one.status.value


def completed_text(one: PassReport) -> str:
    """Return when a pass completed and who had started it."""
    by = f", started by {one.row.requested_by}" if one.row.requested_by else ""
    return f"completed at {instant(one.row.finished_at)}{by}"


def changed_text(one: PassReport) -> str:
    """Return that the declaration is not the one that was swept; empty where it is, or where that cannot be told."""
    return f"the declaration has changed since {_swept(one)}" if one.checksum_changed else ""


def _swept(one: PassReport) -> str:
    return "it was swept" if one.status is PassStatus.COMPLETED else "it began"


def error_text(one: PassReport) -> str:
    """Return the error of the last attempt that failed, in a line."""
    job = one.job
    if job is None or not job.error_class or one.status is PassStatus.COMPLETED:
        return ""
    return error_line(job)


def failed_text(one: PassReport) -> str:
    """Return which attempt of a live pass was the last one to fail, and its error; empty where none has."""
    job, error = one.job, error_text(one)
    if job is None or not one.is_live or not error:
        return ""
    used = job.attempt - (1 if job.state == State.RUNNING else 0)
    return f"attempt {used} of {job.max_attempts} failed: {error}" if used > 0 else ""


def attempts_text(one: PassReport) -> str:
    """Return which attempt of a pass failed, its error, and when the next one is due; empty where none is to come."""
    failed, job = failed_text(one), one.job
    if not failed or job is None or job.state != State.DELAYED:
        return ""
    return f"{failed}; its next attempt is due {'since' if one.is_due else 'at'} {instant(job.run_at)}"


def waiting_text(one: PassReport) -> str:
    """Return why no worker sweeps a live pass, and what failed before, in a line; empty where all goes well."""
    failed = failed_text(one)
    if not one.waits_for:
        return f"{failed}; another attempt goes on" if failed else ""
    if attempts := attempts_text(one):
        return f"{attempts}, and waits for {one.waits_for}" if one.is_due else attempts
    return "; ".join(filter(None, (f"waits for: {_awaited(one)}", failed)))


def _awaited(one: PassReport) -> str:
    """Return what a pass waits for and, where it is parked with a moment, when it looks again."""
    if one.job is None or one.job.state != State.SUSPENDED or one.is_due:
        return one.waits_for
    return f"{one.waits_for}; it looks again at {instant(one.job.run_at)}"


def why_text(one: PassReport) -> str:
    """Return why a pass stands where it does, in a line; empty where a worker sweeps it, or it has completed."""
    if one.is_live:
        return paused_text(one) or waiting_text(one)
    if one.status is PassStatus.CANCELLED and one.job is not None:
        return f"cancelled{by_and_why(one.job.cancel_requested_by, one.job.cancel_reason)}"
    return error_text(one)


def status_text(one: PassReport) -> str:
    """Return where a pass stands, in a sentence."""
    row = one.row
    match one.status:
        case PassStatus.COMPLETED:
            told = f"It completed at {instant(row.finished_at)}: it handled {counted(row.processed, 'row')}."
        case PassStatus.SKIPPED:
            told = "It swept nothing: another pass had completed when it began."
        case PassStatus.PAUSED:
            told = f"It is {paused_text(one)}."
        case PassStatus.RUNNING:
            told = _running(one)
        case _:
            told = _ended(one)
    return told


def _running(one: PassReport) -> str:
    failed = failed_text(one)
    if failed and one.job is not None and one.job.state == State.DELAYED:
        return f"{_capitalized(waiting_text(one))}."
    if not one.waits_for:
        told = "A worker sweeps it."
    elif one.is_due:
        told = f"It waits for {one.waits_for}."
    else:
        told = f"It waits for its turn: {_awaited(one)}."
    return f"{told} {_capitalized(failed)}" if failed else told


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ended(one: PassReport) -> str:
    job = one.job
    if job is None:
        return "It did not complete, and its job has been deleted."
    if one.status is PassStatus.CANCELLED:
        return (
            f"It was cancelled at {instant(job.finished_at)}{by_and_why(job.cancel_requested_by, job.cancel_reason)}."
        )
    if job.state in RETRYABLE:
        return f"It failed ({job.stop or 'no reason was kept'}): {error_text(one) or 'no error was kept'}"
    return f"It ended without completing: its job is {job.state}."


def facts(one: PassReport) -> dict[str, str]:
    """Return what there is to know of a pass, by what it is called."""
    row, job = one.row, one.job
    as_it = "as it was swept" if one.status is PassStatus.COMPLETED else "as it began"
    changed = {True: f"changed since {_swept(one)}", False: as_it}
    return {
        "backfill": one.name,
        "pass": one.status.value + (", forced" if row.forced else ""),
        "progress": progress_text(one),
        "speed": speed_text(one),
        "time left": left_text(one),
        "waits for": one.waits_for,
        "paused": paused_text(one),
        "pace": pace_text(one),
        "table": row.table,
        "environment": row.environment,
        "requested by": row.requested_by,
        "declaration": "" if one.checksum_changed is None else changed[one.checksum_changed],
        "release": row.release,
        "stop": job.stop if job else "",
        "error": error_text(one),
    }


def commands(one: PassReport) -> list[tuple[str, str]]:
    """Return the command lines that mend or steer a pass, each with what it does; the most likely one first."""
    run_id = str(one.run_id)
    forced = ("--force",) if one.swept else ()
    does = "sweeps all of it again" if one.status is PassStatus.COMPLETED else "starts another pass, from the first row"
    # Of what no code declares any more, none can be started.
    again = [(backfill_command(one.name, "--write", *forced), does)] if declared_under(one.name) else []
    match one.status:
        case PassStatus.PAUSED:
            return [
                (command_line("jobs", "resume", run_id), "lets it go on"),
                (command_line("jobs", "cancel", run_id), "stops it for good"),
            ]
        case PassStatus.RUNNING:
            return [
                (command_line("jobs", "pause", run_id), "lets it rest until it is resumed"),
                (command_line("jobs", "pace", run_id, "--rate", f"{one.row.rate or 1:g}"), "sets its pages a second"),
                (command_line("jobs", "cancel", run_id), "stops it for good"),
            ]
        case PassStatus.FAILED if may_go_on(one):
            return [(command_line("jobs", "retry", run_id), "lets it go on from its last page"), *again]
    return again


def may_go_on(one: PassReport) -> bool:
    """Whether a pass has failed and a retry of it has rows before it."""
    return (
        one.status is PassStatus.FAILED
        and one.job is not None
        and one.job.state in RETRYABLE
        and not needs_another_pass(one.job.error_class)
        and (one.row.forced or not one.swept)  # another pass has done it all
    )
