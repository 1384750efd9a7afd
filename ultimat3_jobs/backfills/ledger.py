"""The ledger of passes: what each one swept and how far it is, and the controls of a live one.

It is a report: a pass goes on from its cursor, and whether it is live is for its job's row to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from django.apps import apps
from django.db import connections

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.windows import Window
from ultimat3_jobs.drivers.database.rows import encode, parse_instant
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run, statement

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.cursor import Cursor
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.records import Claim

MAX_LEASE_KEY = 255


@dataclass(frozen=True)
class Controls:
    """What people may change while a pass is live, and the time by the queue's clock."""

    rate: float | None
    window: Window | None
    paused: bool
    paused_by: str
    now: datetime
    told_at: datetime | None = None
    """When a page was last told of."""


def open_pass(
    backfill: BackfillDefinition, run_id: UUID, *, table: str, forced: bool, requested_by: str, checksum: str = ""
) -> bool:
    """Open the row of a pass, with its controls as they are declared. One that is there stays as it is.

    Returns whether it was not there.

    Args:
        backfill: what is swept.
        run_id: of the job that sweeps.
        table: name of the table; "" where that is not known yet: it is kept where it is told later.
        forced: whether it sweeps although another pass has completed.
        requested_by: who asked for it.
        checksum: of the declaration.
    """
    settings, window = get_settings(), backfill.window
    return _changes(
        "open_pass",
        {
            "run_id": run_id.hex,
            "name": backfill.name,
            "table_name": table,
            "batch": 0 if backfill.batch == "auto" else backfill.batch,
            "rate": backfill.rate,
            "window_start": None if window is None else window.start.isoformat(),
            "window_end": None if window is None else window.end.isoformat(),
            "environment": settings.environment,
            "requested_by": requested_by,
            "forced": forced,
            "checksum": checksum,
            "release": settings.release,
        },
    )


def start_pass(run_id: UUID, cursor: Cursor, *, checksum: str) -> None:
    """Write down what a pass is about to sweep, and by which code."""
    run(
        queue_alias(),
        "start_pass",
        {
            "run_id": run_id.hex,
            "bound": msgspec.json.encode(cursor.bound).decode(),
            "total": cursor.total,
            "estimated": cursor.estimated,
            "checksum": checksum,
            "release": get_settings().release,
        },
    )


def tell_progress(run_id: UUID, cursor: Cursor) -> bool:
    """Write down how far a pass is; return whether it has a row: somebody may have deleted it."""
    parameters = {"run_id": run_id.hex, "processed": cursor.handled, "total": cursor.total, "batch": cursor.size}
    return _changes("progress_pass", parameters)


def complete_pass(run_id: UUID, cursor: Cursor) -> bool:
    """Write down that a pass has completed; return whether it has a row."""
    return _changes("complete_pass", {"run_id": run_id.hex, "processed": cursor.handled})


def read_controls(run_id: UUID, declared: BackfillDefinition) -> Controls:
    """Return the controls of a pass: as they are declared, where it has no row yet.

    Args:
        run_id: of the job that sweeps.
        declared: what it sweeps.
    """
    found = run(queue_alias(), "pass_controls", {"run_id": run_id.hex})
    if not found:
        ((now,),) = run(queue_alias(), "clock", {})
        return Controls(declared.rate, declared.window, paused=False, paused_by="", now=parse_instant(now))
    rate, start, end, paused, paused_by, now, told_at = found[0]
    window = Window(time.fromisoformat(start), time.fromisoformat(end)) if start and end else None
    return Controls(rate, window, bool(paused), paused_by, parse_instant(now), parse_instant(told_at))


def take_table(run_id: UUID, alias: str, table: str) -> bool:
    """Take a table for a pass; return False where a live pass has it.

    Args:
        run_id: of the job that sweeps.
        alias: of the table's database.
        table: its name.
    """
    return _take("table", _key_of_table(alias, table), run_id)


def holder_of_table(alias: str, table: str) -> UUID | None:
    """Return the pass that took a table last, whether or not it is live; None where none has.

    Args:
        alias: of the table's database.
        table: its name.
    """
    return _holder(_key_of_table(alias, table))


def take_name(run_id: UUID, name: str) -> bool:
    """Take one of the names of a backfill for a pass; return False where a live pass has it.

    Args:
        run_id: of the job that sweeps.
        name: the backfill's own, or one that it had before.
    """
    return _take("backfill", _key_of_name(name), run_id)


def holder_of_name(name: str) -> UUID | None:
    """Return the pass that took a name last, whether or not it is live; None where none has."""
    return _holder(_key_of_name(name))


def let_go(claim: Claim, run_id: UUID, *, names: Iterable[str], alias: str, tables: Iterable[str]) -> None:
    """Let go of what a pass has taken of names and tables, where its claim still holds.

    Args:
        claim: of the attempt that lets go.
        run_id: of the job that sweeps.
        names: of the backfill.
        alias: of the database of the tables.
        tables: that it may have taken.
    """
    keys = [*map(_key_of_name, names), *(_key_of_table(alias, one) for one in tables)]
    rows = encode({"lease_key": one} for one in keys)
    _changes("let_go", {"rows": rows, "holder": run_id.hex, "id": claim.id.hex, "token": claim.token.hex})


def _take(kind: str, key: str, run_id: UUID) -> bool:
    return bool(run(queue_alias(), "take_lease", {"kind": kind, "key": key, "holder": run_id.hex}))


def _holder(key: str) -> UUID | None:
    leases = apps.get_model("ultimat3_jobs", "JobLease").objects.using(queue_alias())
    holder = leases.filter(lease_key=key, slot=0).values_list("holder", flat=True).first()
    return None if holder is None else UUID(holder)


def _changes(name: str, parameters: Mapping[str, Any]) -> bool:
    """Run one named statement that changes a row; return whether there is one."""
    connection = connections[queue_alias()]
    with connection.cursor() as cursor:
        cursor.execute(statement(connection.vendor, name), parameters)
        return bool(cursor.rowcount)


def _key_of_table(alias: str, table: str) -> str:
    return _short(f"backfill:{alias}:{table}")


def _key_of_name(name: str) -> str:
    return _short(f"backfill-name:{name}")


def _short(key: str) -> str:
    if len(key) > MAX_LEASE_KEY:
        key = f"backfill:{hashlib.sha256(key.encode()).hexdigest()}"
    return key
