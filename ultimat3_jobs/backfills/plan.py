"""What a pass would do: whether it may start, over how many rows, how long at least, and by which statement."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, connections, transaction

from ultimat3_jobs.aliases import in_transaction, queue_alias
from ultimat3_jobs.backfills.facts import facts_of
from ultimat3_jobs.backfills.gate import Verdict, judge
from ultimat3_jobs.backfills.keyset import Key, Keys, StoredKey, last_key, page_of, stretch, unsorted, up_to
from ultimat3_jobs.backfills.pacing import Sizes
from ultimat3_jobs.backfills.passes import named
from ultimat3_jobs.backfills.source import Rows, readable, rows_of
from ultimat3_jobs.backfills.sweep import STRETCH
from ultimat3_jobs.backfills.totals import PATIENCE, bounded, count_rows
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.enqueue import queue_at_once
from ultimat3_jobs.errors import BackfillMigrationPending
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import Job
from ultimat3_jobs.sqlstates import QUERY_CANCELLED, sqlstate
from ultimat3_jobs.states import LIVE
from ultimat3_jobs.tenancy import as_tenant

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.declare import Backfill
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.enqueue import EnqueueResult

FIRST_KEYS = 5
"""Keys of the first rows that a plan names."""


@dataclass(frozen=True)
class Reach:
    """The rows that a pass would sweep, as they are now.

    Attributes:
        bound: the last key that it would look at; None where the table is empty.
        rows: to be handled.
        estimated: whether that is an estimate.
        pages: at least.
        seconds: that it takes at least, at its rate.
        first: keys of the first rows.
        statement: the database's own plan for the first page, a line each.
        scans: whether the first page looks at the whole table.
    """

    bound: StoredKey | None = None
    rows: int = 0
    estimated: bool = False
    pages: int = 0
    seconds: float = 0.0
    first: list[StoredKey] = field(default_factory=list)
    statement: list[str] = field(default_factory=list)
    scans: bool = False


@dataclass(frozen=True)
class Plan:
    """What a pass would do.

    Attributes:
        backfill: what is declared.
        verdict: whether it may start.
        tenant: for which it would run.
        table: that it sweeps.
        alias: of the table's database.
        size: rows of the first page at most.
        exactly_once: whether a page and the cursor commit together.
        locked: whether the rows of a page are locked.
        reach: the rows; None where they cannot be looked at before a migration is applied.
        beside: names of other backfills with a live pass over the table.
    """

    backfill: BackfillDefinition
    verdict: Verdict
    tenant: str | None
    table: str
    alias: str
    size: int
    exactly_once: bool
    locked: bool
    reach: Reach | None
    beside: tuple[str, ...]

    @property
    def why(self) -> str:
        """Why its pages are handled exactly once, or at least once."""
        if self.exactly_once:
            return "a page and the cursor behind it commit in one transaction"
        if self.alias != queue_alias():
            return f"the rows are in {self.alias!r} and the cursor is in {queue_alias()!r}: the page commits first"
        return "atomic=False: the page commits first, then the cursor"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before it starts."""
        scan = f"the first page looks at all of {self.table}: is there an index that its filters need, or a newer one?"
        return (*self.verdict.warnings, *((scan,) if self.reach is not None and self.reach.scans else ()))


def make_plan(backfill: Backfill) -> Plan:
    """Return what a pass would do, as it stands now. Writes nothing.

    Args:
        backfill: what is declared.

    Raises:
        BackfillSourceInvalid: where the source gives nothing that can be swept.
        BackfillMigrationPending: where it requires a migration that the project does not have.
    """
    tenant = named(backfill.definition).tenant
    return as_tenant(tenant, lambda: _plan(backfill, tenant))


def start(backfill: Backfill, *, forced: bool, by: str) -> tuple[EnqueueResult, tuple[str, ...]]:
    """Queue a pass for a person; return what was queued and what should be known of it.

    It goes straight to the queue: a person at a terminal has no transaction that an outbox could want.

    Args:
        backfill: what is declared.
        forced: whether to sweep again what has been swept.
        by: who asks.

    Raises:
        JobsError: where no pass may start.
    """
    if in_transaction(queue_alias()):
        # Before anything is read: SQLite refuses a transaction that has read and then comes to write.
        get_driver().take_turn()
    named(backfill.definition)  # a tenant that cannot be told is a refusal
    request = backfill.on_behalf_of(by).call(forced=forced).request
    return backfill.start(lambda: queue_at_once(request, on_conflict="join"), forced=forced)


def _plan(backfill: Backfill, tenant: str | None) -> Plan:
    declared = backfill.backfill
    rows = rows_of(declared)
    verdict = judge(declared, facts_of(backfill.definition, declared, rows), forced=False)
    size = Sizes(declared.batch).size
    return Plan(
        backfill=declared,
        verdict=verdict,
        tenant=tenant,
        table=rows.table,
        alias=rows.alias,
        size=size,
        exactly_once=rows.in_one,
        locked=rows.locked is not None,
        # What it filters by may be a column that is not there yet.
        reach=None if isinstance(verdict.error, BackfillMigrationPending) else _reach(declared, rows, size),
        beside=_beside(backfill, rows.table),
    )


def _reach(declared: BackfillDefinition, rows: Rows, size: int) -> Reach:
    with readable(declared, rows):
        return _look(declared, rows, size)


def _look(declared: BackfillDefinition, rows: Rows, size: int) -> Reach:
    bound = last_key(rows)
    if bound is None:
        return Reach()
    keys = Keys(rows.model, backfill=declared.name)
    total, estimated = count_rows(up_to(rows.queryset, bound))
    table_rows, _ = count_rows(up_to(rows.everything, bound))
    pages = max(math.ceil(total / size), math.ceil(table_rows / (STRETCH * size)), 1)
    until = stretch(rows, None, bound, STRETCH * size)
    # A lock is asked for in a transaction alone; a plan takes none.
    with transaction.atomic(using=rows.alias), unsorted(rows):
        page = page_of(rows, None, until, size)
        statement = page.explain().splitlines()
        scans = table_rows > STRETCH * size and _scans(page, rows.table)
    return Reach(
        bound=keys.store(bound),
        rows=total,
        estimated=estimated,
        pages=pages,
        seconds=pages / declared.rate,
        first=[keys.store(one) for one in _first_keys(rows, bound)],
        statement=statement,
        scans=scans,
    )


def _first_keys(rows: Rows, bound: Key) -> list[Key]:
    """Return the first keys, or none where few rows match and finding them takes long."""
    first = up_to(rows.queryset, bound).order_by("pk").values_list("pk", flat=True)[:FIRST_KEYS]
    if connections[rows.alias].vendor != "postgresql":
        return list(first)
    try:
        with transaction.atomic(using=rows.alias), bounded(rows.alias, PATIENCE):
            return list(first)
    except OperationalError as error:
        if sqlstate(error) != QUERY_CANCELLED:
            raise
        return []


def _scans(page: Any, table: str) -> bool:
    """Whether the database means to look at every row of a table."""
    if connections[page.db].vendor == "postgresql":
        plan = json.loads(page.explain(format="json"))[0]["Plan"]
        return any(node["Node Type"] == "Seq Scan" and node["Relation Name"] == table for node in _nodes(plan))
    return any(line.endswith(f"SCAN {table}") for line in page.explain().splitlines())


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for one in node.get("Plans", ()):
        yield from _nodes(one)


def _beside(backfill: Backfill, table: str) -> tuple[str, ...]:
    alias, own = queue_alias(), named(backfill.definition).names
    others = Ledger.objects.using(alias).filter(table=table, outcome="").exclude(name__in=own)
    live = Job.objects.using(alias).filter(state__in=LIVE, pk__in=others.values("run_id"))
    return tuple(sorted(set(live.values_list("name", flat=True))))
