"""Backfills and their passes as text for a terminal and as plain JSON values. Fields are added, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ultimat3_jobs.backfills.commands import backfill_command, environment_setting
from ultimat3_jobs.backfills.declared import declared_under
from ultimat3_jobs.backfills.definition import BackfillDefinition
from ultimat3_jobs.backfills.pending import Difference, PassStatus, Standing, Status
from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.inspection import report
from ultimat3_jobs.inspection.backfill_texts import (
    changed_text,
    commands,
    completed_text,
    left_text,
    may_go_on,
    pace_text,
    progress_text,
    speed_text,
    status_text,
    why_text,
)
from ultimat3_jobs.inspection.backfills import BackfillReport
from ultimat3_jobs.inspection.masking import printable
from ultimat3_jobs.inspection.passes import PassReport, tell_passes


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
            "command": _next(one.name, one.status, one.definition, one.latest, one.refusal),
            "refused": one.refusal and report.error(one.refusal),
            "passes": [report.swept_pass(each) for each in one.passes],
        }
        for one in listed
    ]


def pending(found: Difference) -> str:
    """What keeps a deploy back, each with what mends it."""
    lines = []
    for one, mend in _mends(found):
        why = [] if one.refusal is None else [f"    {_refused(one.refusal)}"]
        lines += [f"{printable(one.name)}  {one.status.value}", *why, f"    {printable(mend)}"]
    live = [one for one in found.standings if one.status in (Status.RUNNING, Status.PAUSED)]
    going_on = [f"{printable(one.name)}  {one.status.value}: its migration waits for its end" for one in live]
    nothing = "nothing else keeps a deploy back" if live else "nothing that is declared is unswept"
    return "\n".join([*(lines or [nothing]), *going_on])


def pending_report(found: Difference) -> dict[str, Any]:
    """The same as plain JSON values, with those that keep nothing back."""
    return {
        "pending": [
            {
                "name": one.name,
                "status": one.status.value,
                "command": mend,
                "refused": one.refusal and report.error(one.refusal),
            }
            for one, mend in _mends(found)
        ],
        "backfills": [
            {"name": one.name, "status": one.status.value, "keeps_back": one.keeps_back} for one in found.standings
        ],
        "undeclared": list(found.undeclared),
    }


def _mends(found: Difference) -> list[tuple[Standing, str]]:
    """Return what keeps a deploy back, each with the command or the line that lets it go on."""
    told = tell_passes([one.latest.run_id for one in found.unswept if one.latest is not None])
    latest = {one.name: told.get(one.latest.run_id) for one in found.unswept if one.latest is not None}
    return [
        (one, _next(one.name, one.status, declared_under(one.name), latest.get(one.name), one.refusal))
        for one in found.unswept
    ]


def _refused(refusal: JobsError) -> str:
    return printable(f"{refusal.code}: {refusal.cause}")


def _next(
    name: str,
    status: Status,
    declared: BackfillDefinition | None,
    latest: PassReport | None,
    refusal: JobsError | None,
) -> str:
    """Return the command or the line that is likely to be wanted; empty where no pass may start or go on."""
    if declared is None or status is Status.EXCLUDED:
        return ""
    if status is Status.UNKNOWN_ENVIRONMENT:
        return environment_setting(declared)
    if refusal is not None:
        return refusal.fix
    if latest is None:
        return backfill_command(name, "--write", *(("--force",) if status is Status.COMPLETED else ()))
    return commands(latest)[0][0]


def ending(told: PassReport) -> str:
    """How a pass ended, and what mends it where it did not complete."""
    lines = [f"{told.run_id}  {printable(told.name)}  {told.status.value}", f"    {printable(status_text(told))}"]
    if told.row.outcome == "":
        lines += [f"    {printable(command)}  # {does}" for command, does in commands(told)]
    return "\n".join(lines)


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
        if changed := changed_text(told):
            yield f"        {changed}"
        if told.is_live:
            yield from (f"        {printable(why)}" for why in [why_text(told)] if why)
        elif told.status is PassStatus.COMPLETED:
            yield f"        {printable(completed_text(told))}"
        elif told.row.outcome == "":
            yield f"        {printable(status_text(told))}"
    if one.refusal is not None:
        yield f"    {_refused(one.refusal)}"
    if (command := _next(one.name, one.status, one.definition, one.latest, one.refusal)) and not _is_over(one):
        yield f"    {printable(command)}"


def _is_over(one: BackfillReport) -> bool:
    """Whether nothing is left to do: to sweep all of it again is not what comes next."""
    has_more = one.latest is not None and (one.latest.is_live or may_go_on(one.latest))
    return one.status is Status.COMPLETED and one.refusal is None and not has_more
