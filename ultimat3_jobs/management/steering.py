"""`manage.py jobs pause | resume | pace`: what people do to a live pass from the shell."""

from __future__ import annotations

import argparse
from typing import Any
from uuid import UUID

from ultimat3_jobs.backfills import controls
from ultimat3_jobs.backfills.commands import list_command
from ultimat3_jobs.backfills.controls import UNCHANGED, Controlled, Verdict
from ultimat3_jobs.backfills.declared import declared_under
from ultimat3_jobs.backfills.find import find_backfill
from ultimat3_jobs.backfills.pacing import HIGHEST_RATE, LOWEST_RATE, check_rate
from ultimat3_jobs.backfills.windows import Window, parse_window
from ultimat3_jobs.errors import BackfillNotLive, DeclarationInvalid, UnknownJob
from ultimat3_jobs.inspection import backfill_texts, report
from ultimat3_jobs.inspection.backfills import list_passes
from ultimat3_jobs.inspection.ids import id_range, resolve
from ultimat3_jobs.inspection.look import Look
from ultimat3_jobs.inspection.passes import PassReport, tell_pass
from ultimat3_jobs.inspection.step_texts import why_suspended
from ultimat3_jobs.management.reporting import add_json, storable
from ultimat3_jobs.states import State
from ultimat3_jobs.text import command_line

ACTIONS = {
    "pause": "have a live pass of a backfill rest before its next page",
    "resume": "let a paused pass go on",
    "pace": "change how fast a live pass may sweep, or when",
}


def add_arguments(actions: Any, *, reason: Any) -> dict[str, Any]:
    """Add the actions to a command; return their parsers by name.

    Args:
        actions: what sub-commands are added to.
        reason: reads the text of a reason.
    """
    parsers = {}
    for action, what in ACTIONS.items():
        parser = parsers[action] = actions.add_parser(action, help=what)
        parser.add_argument(
            "which", type=storable, metavar="ID|NAME", help="a pass, or the backfill whose pass is live"
        )
        parser.add_argument("--reason", type=reason, default="", help="why, kept in the job's history")
        add_json(parser)
    pace = parsers["pace"]
    pace.add_argument("--rate", type=_rate, help="pages a second at most")
    hours = pace.add_mutually_exclusive_group()
    hours.add_argument("--window", type=_window, metavar="22:00-06:00", help="hours in which it may sweep")
    hours.add_argument("--no-window", action="store_true", help="it may sweep at any hour")
    return parsers


def steer(action: str, options: dict[str, Any], *, by: str) -> Controlled:
    """Do to a live pass what was asked.

    Raises:
        JobsError: where there is no such pass, or it has ended.
    """
    which, reason = find_pass(options["which"]), options["reason"]
    if action == "pause":
        return controls.pause(which, by=by, reason=reason)
    if action == "resume":
        return controls.resume(which, by=by, reason=reason)
    window = None if options["no_window"] else options["window"] or UNCHANGED
    return controls.pace(which, by=by, rate=options["rate"], window=window, reason=reason)


def changes_nothing(options: dict[str, Any]) -> bool:
    """Whether a pace was asked for that says neither how fast nor when."""
    return options["rate"] is None and options["window"] is None and not options["no_window"]


def find_pass(text: str) -> UUID:
    """Return the live pass of a backfill, by its name, or a pass by its id or the first digits of it.

    Raises:
        BackfillNotLive: where the backfill has no live pass.
        BackfillUnknown: where it is the name of none, or empty.
        UnknownJob, AmbiguousId: where it looks like an id, and is not that of one row.
    """
    passes = list_passes(text).passes if text else []  # of no name they would be those of all
    live = next((one for one in passes if one.is_live), None)
    if live is not None:
        return live.run_id
    if not passes and id_range(text) is not None:
        try:
            return resolve(text)
        except UnknownJob as error:
            raise UnknownJob(error.cause, fix=command_line("backfill", "--list")) from None
    name = passes[0].name if passes else find_backfill(text).name
    raise BackfillNotLive(f"no pass of backfill {name!r} is live", fix=list_command(name))


def told(done: Controlled) -> str:
    """Return what became of it, and what can be done next, as text."""
    one = tell_pass(done.run_id)
    said = {
        Verdict.PAUSED: "is paused: it rests before its next page",
        Verdict.RESUMED: _resumed(done, one),
        Verdict.NOT_PAUSED: "was not paused; nothing was changed",
        Verdict.PACED: "has a new pace",
    }
    lines = [f"{done.run_id} {done.name} {said[done.verdict]}"]
    if one is not None:
        lines.append(f"    {backfill_texts.progress_text(one)}; {backfill_texts.pace_text(one)}")
        lines.extend(f"    {command}  # {does}" for command, does in backfill_texts.commands(one))
    return "\n".join(lines)


def _resumed(done: Controlled, one: PassReport | None) -> str:
    if one is None or one.job is None:
        return "goes on"
    job = one.job
    if job.state != State.SUSPENDED or not job.parks or declared_under(done.name) is not None:
        return "goes on"
    # No code here declares it, and it is left until some does.
    return f"is not paused any more. {why_suspended(job, Look(one.now))}"


def as_json(done: Controlled) -> dict[str, Any]:
    """Return what became of it as plain JSON values."""
    one = tell_pass(done.run_id)
    return {"verdict": done.verdict.value, "pass": one and report.swept_pass(one)}


def _rate(text: str) -> float:
    try:
        return check_rate(float(text))
    except (ValueError, DeclarationInvalid):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of pages a second from {LOWEST_RATE:g} to {HIGHEST_RATE:,.0f}"
        ) from None


def _window(text: str) -> Window:
    try:
        return parse_window(text)
    except DeclarationInvalid as error:
        raise argparse.ArgumentTypeError(f"{error.cause}: give hours as 22:00-06:00") from None
