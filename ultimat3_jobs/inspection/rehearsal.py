"""What a pass would do, for people and for programs: its plan, and the rows that were tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.plan import Plan, Reach
from ultimat3_jobs.backfills.trial import Trial
from ultimat3_jobs.inspection import report
from ultimat3_jobs.inspection.masking import MASK, bounded, is_secret, masked, printable
from ultimat3_jobs.moments import span
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.text import counted

TRIED = 10
"""Rows that the line which proposes to try some names."""
MAX_VALUE = 200
"""Characters of the value of a field."""


def plan(made: Plan) -> str:
    """A plan as text."""
    return "\n".join(_plan(made))


def plan_line(made: Plan) -> str:
    """A plan in one line, for a list of several."""
    told = "" if made.reach is None else f"  {_rows(made.reach)}, {_pages(made.reach)}"
    return f"{printable(made.backfill.name)}  would start{told}"


def plan_report(made: Plan) -> dict[str, Any]:
    """A plan as plain JSON values."""
    reach = made.reach
    return {
        "name": made.backfill.name,
        "may_start": made.verdict.error is None,
        "refused": made.verdict.error and report.error(made.verdict.error),
        "warnings": list(made.warnings),
        "tenant": made.tenant,
        "table": made.table,
        "database": made.alias,
        "declared": made.backfill.describe(),
        "environment": get_settings().environment,
        "page_rows": made.size,
        "exactly_once": made.exactly_once,
        "why": made.why,
        "locked": made.locked,
        "beside": list(made.beside),
        "reach": reach
        and {
            "bound": reach.bound,
            "rows": reach.rows,
            "estimated": reach.estimated,
            "pages": reach.pages,
            "seconds": reach.seconds,
            "first": reach.first,
            "statement": reach.statement,
            "scans": reach.scans,
        },
    }


def trial(tried: Trial) -> str:
    """What was tried, as text."""
    return "\n".join(_trial(tried))


def trial_report(tried: Trial) -> dict[str, Any]:
    """What was tried as plain JSON values; those of fields as Python writes them, secrets masked."""
    return {
        "name": tried.name,
        "rolled_back": True,
        "failure": tried.failure,
        "warnings": list(tried.warnings),
        "rows": [
            {
                "key": row.key,
                "deleted": row.deleted,
                "changes": [
                    {"field": one.field, "old": _value(one.field, one.old), "new": _value(one.field, one.new)}
                    for one in row.changes
                ],
            }
            for row in tried.rows
        ],
    }


def _trial(tried: Trial) -> Iterator[str]:
    name = printable(tried.name)
    yield from (f"warning: {printable(one)}" for one in tried.warnings)
    if tried.failure:
        yield f"{name}  the handler raised, and what it wrote was rolled back:"
        yield f"    {printable(bounded(tried.failure))}"
        return
    yield f"{name}  tried, and rolled back: nothing was changed"
    for row in tried.rows:
        if row.deleted:
            yield f"{printable(_key(row.key))}  would be deleted"
        elif row.changes:
            yield printable(_key(row.key))
            for one in row.changes:
                yield f"    {printable(one.field)}: {_value(one.field, one.old)} -> {_value(one.field, one.new)}"
    same = sum(not (row.deleted or row.changes) for row in tried.rows)
    changed = len(tried.rows) - same
    rows = counted(len(tried.rows), "row")
    yield f"{changed} of {rows} would change. Rows of other tables and new rows are not shown."


def _value(name: str, value: Any) -> str:
    if value is not None and is_secret(name):
        return MASK
    text = printable(repr(masked(value)))
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _plan(made: Plan) -> Iterator[str]:
    declared, reach = made.backfill, made.reach
    yield f"{printable(declared.name)}  a dry run: nothing was changed"
    yield ""
    facts = {"table": f"{made.table} on {made.alias!r}"}
    if reach is None:
        facts["rows"] = "not counted before the migration is applied"
    elif reach.bound is None:
        facts["rows"] = "none: the table is empty"
    else:
        facts["rows"] = _rows(reach)
        facts["first keys"] = ", ".join(map(_key, reach.first)) or "none"
        facts["last key"] = f"{_key(reach.bound)}, the bound of the pass were it to start now"
        facts["pages"] = _pages(reach)
    facts["page"] = _page(made)
    facts["handled"] = f"{'exactly' if made.exactly_once else 'at least'} once: {made.why}"
    facts["locked"] = "the rows of a page, until it commits" if made.locked else "nothing: an edit may be overwritten"
    facts |= _declared(made)
    yield from (f"{name + ':':<14}{printable(value)}" for name, value in facts.items())
    if reach is not None and reach.statement:
        yield "first page, as the database means to read it:"
        yield from (f"    {printable(line)}" for line in bounded("\n".join(reach.statement)).split("\n"))
    yield from (f"warning: {printable(one)}" for one in made.warnings)
    if made.verdict.error is None:
        yield f"To see what it would change in {TRIED} rows:"
        yield f"    {printable(backfill_command(declared.name, '--try', str(TRIED)))}"
        yield "To start it:"
        yield f"    {printable(backfill_command(declared.name, '--write'))}"


def _declared(made: Plan) -> dict[str, str]:
    declared = made.backfill
    facts = {"tenant": "(none)" if made.tenant is None else made.tenant}
    if declared.window is not None:
        facts["window"] = str(declared.window)
    if declared.environments is not None:
        facts["environments"] = f"{', '.join(declared.environments)}; this is {get_settings().environment or 'unnamed'}"
    if declared.requires is not None:
        facts["requires"] = ".".join(declared.requires)
    if declared.count is not None:
        facts["count"] = "asked after the last page, and must answer 0"
    if made.beside:
        waits = "; it waits for them" if declared.exclusive else ""
        facts["beside"] = f"{', '.join(made.beside)}: live over the same table{waits}"
    return facts


def _rows(reach: Reach) -> str:
    return f"{reach.rows:,} {'row' if reach.rows == 1 else 'rows'}{' (an estimate)' if reach.estimated else ''}"


def _pages(reach: Reach) -> str:
    return f"{reach.pages:,} {'page' if reach.pages == 1 else 'pages'} or more, {span(reach.seconds)} or more"


def _page(made: Plan) -> str:
    tuned = ", tuned from there" if made.backfill.batch == "auto" else ""
    return f"{counted(made.size, 'row')} at most{tuned}; {made.backfill.rate:g} pages a second at most"


def _key(stored: list[str | int]) -> str:
    return repr(stored[0]) if len(stored) == 1 else repr(tuple(stored))
