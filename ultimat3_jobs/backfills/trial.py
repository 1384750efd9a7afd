"""`--try`: the first rows of a backfill are handled, looked at, and everything is rolled back."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connections, transaction
from django.db.models import Model

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.facts import facts_of
from ultimat3_jobs.backfills.gate import judge_trial
from ultimat3_jobs.backfills.handlers import call_handler
from ultimat3_jobs.backfills.keyset import Key, Keys, StoredKey, last_key, read_page, stretch
from ultimat3_jobs.backfills.passes import named
from ultimat3_jobs.backfills.source import readable, rows_of
from ultimat3_jobs.backfills.sweep import STRETCH
from ultimat3_jobs.context import Run
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import StepNotAtomic, TransactionBroken
from ultimat3_jobs.forks import leave_if_forked
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.marks import SavepointMark
from ultimat3_jobs.records import Claim, ClaimedJob
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.tenancy import as_tenant
from ultimat3_jobs.traces import message_of
from ultimat3_jobs.transactions import kept_whole, written_alone

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.declare import Backfill
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.backfills.source import Rows

READ_AT_ONCE = 100
"""Keys of one statement that reads rows again: one with many composite keys is too deep for SQLite."""


@dataclass(frozen=True)
class Change:
    """A field of a row that would change."""

    field: str
    old: Any
    new: Any


@dataclass(frozen=True)
class TriedRow:
    """What the handler does to one row."""

    key: StoredKey
    changes: tuple[Change, ...] = ()
    deleted: bool = False


@dataclass(frozen=True)
class Trial:
    """What the handler does to the first rows.

    Attributes:
        name: of the backfill.
        rows: in the order of their keys.
        failure: what the handler raised, in one line, and where; empty where it returned.
        warnings: what should be known before a pass starts.
    """

    name: str
    rows: tuple[TriedRow, ...] = ()
    failure: str = ""
    warnings: tuple[str, ...] = ()


class _Enough(Exception):
    """Undoes what was tried."""


def try_rows(backfill: Backfill, count: int, *, by: str) -> Trial:
    """Handle the first rows of a backfill as one page, see what that changes, and roll it back.

    Hooks for the commit do not run, and work that the handler enqueues is rolled back with its rows. Numbers that
    sequences gave are gone, and what the handler does outside of databases is done.

    Args:
        backfill: what is declared.
        count: rows at most.
        by: who asks, as the handler's `run.enqueued_by` has it.

    Raises:
        BackfillSourceInvalid: where the source gives nothing that can be swept, or its rows cannot be read.
        BackfillMigrationPending: where a migration that it requires is not applied.
        TransactionBroken: where the handler would end the transaction by a statement of its own, or has ended it.
        StepNotAtomic: where it would write to another database than that of its rows.
    """
    tenant = named(backfill.definition).tenant
    run = Run(_claimed(backfill, tenant, by))
    return as_tenant(tenant, lambda: _try(backfill, run, count))


def _try(backfill: Backfill, run: Run, count: int) -> Trial:
    declared = backfill.backfill
    rows = rows_of(declared)
    verdict = judge_trial(declared, facts_of(backfill.definition, declared, rows))
    if verdict.error is not None:
        raise verdict.error
    tried = Trial(declared.name)
    try:
        with transaction.atomic(using=rows.alias, durable=True):
            if rows.alias == queue_alias():
                # Before anything is read: SQLite refuses a transaction that has read and then comes to write.
                get_driver().take_turn()
            with (
                _undone(declared, rows),
                kept_whole(rows.alias, refuse=lambda: _broken(declared)),
                written_alone(rows.alias, refuse=lambda other: _elsewhere(declared, rows, other)),
            ):
                tried = _handle(declared, rows, run, count)
                raise _Enough  # noqa: TRY301 - it unwinds the blocks too that the handler left open
    except _Enough:
        return replace(tried, warnings=verdict.warnings)


@contextmanager
def _undone(declared: BackfillDefinition, rows: Rows) -> Iterator[None]:
    """Undo what is written in the block, and say so where that cannot be done, whatever else is raised.

    Raises:
        TransactionBroken: where the transaction that was open is not there any more.
    """
    mark = SavepointMark(connections[rows.alias])
    try:
        yield
    finally:
        try:
            undone = mark.undone()
        except DatabaseError as error:
            raise _lost(declared, rows) from error
        if not undone:
            raise _ended(declared)


def _handle(declared: BackfillDefinition, rows: Rows, run: Run, count: int) -> Trial:
    with readable(declared, rows):
        page = _first_rows(rows, count)
        keys = [row.pk for row in page]  # before the handler, which may do to its rows whatever it likes
        before = _values(rows, keys)
    process = os.getpid()
    try:
        if page:
            call_handler(declared, run, page)
            leave_if_forked(process)
        if connections[rows.alias].vendor == "postgresql":
            connections[rows.alias].check_constraints()  # those that wait for the commit, which does not come
        return Trial(declared.name, tuple(_compare(declared, rows, keys, before)))
    except (StepNotAtomic, TransactionBroken):
        raise
    except BaseException as error:  # SystemExit too: the command would end with the handler's status, and no word
        leave_if_forked(process, error)
        if type(error) is KeyboardInterrupt:  # of a person
            raise
        return Trial(declared.name, failure=_in_a_line(error))


def _first_rows(rows: Rows, count: int) -> list[Model]:
    """Return the first rows, stretch by stretch: few of a table may match."""
    bound, after, found = last_key(rows), None, list[Model]()
    while bound is not None and after != bound and len(found) < count:
        until = stretch(rows, after, bound, STRETCH * count)
        found += read_page(rows, after, until, count - len(found))
        after = until
    return found


def _compare(
    declared: BackfillDefinition, rows: Rows, keys: list[Key], before: dict[Key, dict[str, Any]]
) -> Iterator[TriedRow]:
    kept = Keys(rows.model, backfill=declared.name)
    after = _values(rows, keys)
    for key in keys:
        new = after.get(key)
        if new is None:
            yield TriedRow(kept.store(key), deleted=True)
            continue
        old = before[key]
        changes = (Change(name, old[name], value) for name, value in new.items() if value != old[name])
        yield TriedRow(kept.store(key), tuple(changes))


def _values(rows: Rows, keys: list[Key]) -> dict[Key, dict[str, Any]]:
    """Return the columns of rows as they are, those of a model's parents too."""
    model = rows.model
    names = [field.attname for field in model._meta.concrete_fields]
    every = model._base_manager.using(rows.alias).values_list("pk", *names)
    found: dict[Key, dict[str, Any]] = {}
    for at in range(0, len(keys), READ_AT_ONCE):
        some = every.filter(pk__in=keys[at : at + READ_AT_ONCE])
        found |= {key: dict(zip(names, values, strict=True)) for key, *values in some}
    return found


def _claimed(backfill: Backfill, tenant: str | None, by: str) -> ClaimedJob:
    """Return a job as a worker would have it; no queue knows it."""
    job, run_id = backfill.definition, uuid7()
    return ClaimedJob(
        claim=Claim(run_id, run_id),
        run_id=run_id,
        name=job.name,
        queue=job.queue or get_settings().default_queue,
        input="{}",
        tenant_id=tenant,
        attempt=1,
        max_attempts=job.retry.attempts,
        lapses=0,
        parks=0,
        enqueued_by=by,
        traceparent="",
    )


def _broken(declared: BackfillDefinition) -> TransactionBroken:
    return TransactionBroken(
        f"the handler of backfill {declared.name!r} would end the transaction of its page by a statement of its own; "
        "what it wrote is undone",
        fix="with transaction.atomic(): ...  # a part that can be undone by itself",
    )


def _ended(declared: BackfillDefinition) -> TransactionBroken:
    return TransactionBroken(
        f"the handler of backfill {declared.name!r} ended the transaction of its page past Django: ROWS WERE CHANGED, "
        "and what it committed stays written; only what it did not commit is undone",
        fix="with transaction.atomic(): ...  # a part that can be undone by itself, instead of what commits",
    )


def _lost(declared: BackfillDefinition, rows: Rows) -> TransactionBroken:
    return TransactionBroken(
        f"the connection to {rows.alias!r} was closed or lost while backfill {declared.name!r} was tried: what was not "
        "committed by then is undone, and nothing tells whether its handler had committed",
        fix=backfill_command(declared.name),  # says what is left to do
    )


def _elsewhere(declared: BackfillDefinition, rows: Rows, other: str) -> StepNotAtomic:
    return StepNotAtomic(
        f"the handler of backfill {declared.name!r} writes to {other!r}, which is not rolled back with its rows; "
        "what it wrote is undone",
        fix="atomic=False  # in the declaration: what a page writes elsewhere happens at least once"
        if rows.in_one
        else backfill_command(declared.name, "--write"),  # a pass that commits its pages first may write so
    )


def _in_a_line(error: BaseException) -> str:
    """Return the last line of a traceback, and the place that it is about."""
    first = next((one for one in message_of(error).splitlines() if one.strip()), "")
    *_, frame = traceback.extract_tb(error.__traceback__)
    told = f"{type(error).__qualname__}: {first}" if first else type(error).__qualname__
    return f"{told} ({frame.filename}:{frame.lineno})"
