"""The backfills that the installed code declares, by name."""

from __future__ import annotations

import difflib

from ultimat3_jobs import registry
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.declare import Backfill
from ultimat3_jobs.backfills.declared import backfill_of, declared_backfills
from ultimat3_jobs.enqueue import EnqueueOptions
from ultimat3_jobs.errors import BackfillUnknown
from ultimat3_jobs.text import command_line


def all_backfills() -> list[Backfill]:
    """Return every declared backfill once, in the order of their names."""
    return [Backfill(one, EnqueueOptions()) for one, _ in declared_backfills()]


def find_backfill(name: str) -> Backfill:
    """Return the backfill that is declared under a name, or under an earlier one of its own.

    Raises:
        BackfillUnknown: where none is; it names the one that is most like it.
    """
    found = registry.find(name)
    if found is not None and backfill_of(found) is not None:
        return Backfill(found, EnqueueOptions())
    if found is not None:
        raise BackfillUnknown(f"{name!r} is a job and no backfill", fix=command_line("backfill", "--list"))
    names = [one.name for _, one in declared_backfills()]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not close:
        raise BackfillUnknown(f"no installed app declares a backfill {name!r}", fix=command_line("backfill", "--list"))
    raise BackfillUnknown(
        f"no installed app declares a backfill {name!r}; did you mean {close[0]!r}?", fix=backfill_command(close[0])
    )
