"""The file that a new backfill begins as: it declares itself, and says what to fill in."""

from __future__ import annotations

from dataclasses import dataclass

from ultimat3_jobs.backfills.commands import backfill_command

PLACEHOLDER = "NameOfTheModel"
_WIDTH = 79
"""Characters of a line that no formatter breaks."""

IMPORTED = frozenset({"NO_TENANT", "Run", "annotations", "apps", "backfill", "Model", "MODEL"})
"""Names that the file has a use for itself."""

_FILE = '''\
"""Say here what this backfill mends, and when its file can go.

A dry run, then a pass that is followed to its end:

    {look}
    {start}
"""

from __future__ import annotations

{imports}
{named}

@backfill(
    name="{name}",
    tenant=NO_TENANT,
    # The rows to sweep: no order, no slice, no distinct, no join. A filter may
    # leave few of them; those it leaves out are not handled.
    source=lambda: {rows}.all(),
    # Rows a page at most, or "auto"; and pages a second at most.
    batch=1_000,
    rate=5,
    # The migration that must be applied before:
    # requires=("{label}", "{migration}"),
    # Where it is meant to run, compared with the setting ENVIRONMENT:
    # environments=["staging", "production"],
    # The rows that are left: it has not completed before this answers 0.
    # count=lambda: {rows}.filter(...).count(),
)
{definition}
    """Handle one page: its rows are locked until it commits."""
    for row in rows:
        raise NotImplementedError("change the row here")
    # Then write them all at once:
    # {rows}.bulk_update(rows, ["the", "changed", "fields"])
'''


@dataclass(frozen=True)
class Swept:
    """The model whose rows are swept."""

    module: str
    name: str
    manager: str


def text_of(*, name: str, function: str, label: str, migration: str, swept: Swept | None) -> str:
    """Return the text of a backfill's file: it can be imported as it stands, and keeps its form where it is formatted.

    Args:
        name: of the backfill, in the queue and the ledger.
        function: the handler's.
        label: of the app whose rows are swept.
        migration: the latest one of that app.
        swept: the model; None leaves it to be named.
    """
    imports = ["from ultimat3_jobs import NO_TENANT, Run, backfill"]
    if swept is None or swept.name in IMPORTED:
        comment, model = ("  # name it", PLACEHOLDER) if swept is None else ("", swept.name)
        row, rows, named = "Model", "apps.get_model(MODEL)._default_manager", f'\nMODEL = "{label}.{model}"{comment}\n'
        imports = ["from django.apps import apps", "from django.db.models import Model", *imports]
    else:
        row, rows, named = swept.name, f"{swept.name}.{swept.manager}", ""
        imports += ["", f"from {swept.module} import {swept.name}"]
    return _FILE.format(
        name=name,
        look=backfill_command(name),
        start=backfill_command(name, "--write", "--wait"),
        imports="\n".join(imports),
        named=named,
        rows=rows,
        label=label,
        migration=migration,
        definition=_definition(function, row),
    )


def _definition(function: str, row: str) -> str:
    line = f"def {function}(run: Run, rows: list[{row}]) -> None:"
    return line if len(line) <= _WIDTH else f"def {function}(\n    run: Run,\n    rows: list[{row}],\n) -> None:"
