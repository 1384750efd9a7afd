"""Backfills and their passes as text for a terminal and as plain JSON values. Fields are added, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.pending import Difference, Standing, Status
from ultimat3_jobs.inspection.backfill_texts import (
    commands,
    error_text,
    left_text,
    pace_text,
    paused_text,
    progress_text,
    speed_text,
    status_text,
)
from ultimat3_jobs.inspection.backfills import BackfillReport, PassReport, tell_pass
from ultimat3_jobs.inspection.masking import printable

SETTING = 'ULTIMAT3_JOBS["ENVIRONMENT"]'


def backfills(listed: Iterable[BackfillReport]) -> str:
    """A list of backfills, each with its passes and the command that is likely to be wanted."""
    lines = [line for one in listed for line in _backfill(one)]
    return "\n".join(lines or ["no backfill was found"])


def backfills_report(listed: Iterable[BackfillReport]) -> list[dict[str, Any]]:
    """The same as plain JSON values."""
    return [
        {
            "name": one.name,
            "status": one.status.value,
            "keeps_back": one.keeps_back,
            "declared": None if one.definition is None else one.definition.describe(),
            "passes": [pass_report(each) for each in one.passes],
        }
        for one in listed
    ]


def pending(found: Difference) -> str:
    """What keeps a deploy back, each with what mends it."""
    lines = []
    for one in found.unswept:
        lines += [f"{printable(one.name)}  {one.status.value}", f"    {printable(mend(one))}"]
    return "\n".join(lines or ["nothing that is declared is unswept"])


def pending_report(found: Difference) -> dict[str, Any]:
    """The same as plain JSON values, with those that keep nothing back."""
    return {
        "pending": [{"name": one.name, "status": one.status.value, "command": mend(one)} for one in found.unswept],
        "backfills": [
            {"name": one.name, "status": one.status.value, "keeps_back": one.keeps_back} for one in found.standings
        ],
        "undeclared": list(found.undeclared),
    }


def mend(one: Standing) -> str:
    """Return the command or the line that lets a deploy go on."""
    if one.status is Status.UNKNOWN_ENVIRONMENT:
        return f'{SETTING} = "..."  # in the settings: the name of this environment'
    told = None if one.status is not Status.FAILED or one.latest is None else tell_pass(one.latest.run_id)
    return backfill_command(one.name, "--write") if told is None else commands(told)[0][0]


def ending(told: PassReport) -> str:
    """How a pass ended, and what mends it where it did not complete."""
    lines = [f"{told.run_id}  {printable(told.name)}  {told.status.value}", f"    {printable(status_text(told))}"]
    if told.row.outcome == "":
        lines += [f"    {printable(command)}  # {does}" for command, does in commands(told)]
    return "\n".join(lines)


def pass_report(told: PassReport) -> dict[str, Any]:
    """One pass as plain JSON values."""
    row = told.row
    return {
        "run_id": str(told.run_id),
        "name": told.name,
        "status": told.status.value,
        "forced": row.forced,
        "processed": row.processed,
        "total": row.total,
        "estimated": row.estimated,
        "percent": told.percent,
        "rows_per_second": told.rows_per_second,
        "seconds_left": told.seconds_left,
        "waits_for": told.waits_for,
        "paused": paused_text(told),
        "page_rows": row.batch,
        "rate": row.rate,
        "window": None if told.window is None else str(told.window),
        "table": row.table,
        "environment": row.environment,
        "requested_by": row.requested_by,
        "checksum_changed": told.checksum_changed,
        "release": row.release,
        "error": error_text(told),
        "created_at": row.created_at.isoformat(),
        "finished_at": None if row.finished_at is None else row.finished_at.isoformat(),
        "commands": [{"command": command, "does": does} for command, does in commands(told)],
    }


def _backfill(one: BackfillReport) -> Iterator[str]:
    holds = "; a deploy that needs it must wait" if one.keeps_back else ""
    gone = "" if one.definition is not None else "; no installed code declares it"
    yield f"{printable(one.name)}  {one.status.value}{holds}{gone}"
    for told in one.passes:
        forced = ", forced" if told.row.forced else ""
        facts = [told.status.value + forced, progress_text(told)]
        if told.is_live:
            facts += [speed_text(told), f"{left_text(told)} left", pace_text(told)]
        yield f"    {told.run_id}  {printable('  '.join(facts))}"
        if why := paused_text(told) or (told.is_live and told.waits_for and f"waits for: {told.waits_for}"):
            yield f"        {printable(str(why))}"
        elif not told.is_live and told.row.outcome == "":
            yield f"        {printable(status_text(told))}"
    if one.definition is not None:
        command = commands(one.passes[0])[0][0] if one.passes else backfill_command(one.name, "--write")
        yield f"    {printable(command)}"
