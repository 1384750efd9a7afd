"""A database of its own with a big backlog, filled in two steps so that the statistics can be behind.

Ids, keys and tokens follow from the kind of a row and its number: the tests name rows without looking for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

QUEUES = ("alpha", "bulk", "default", "import", "mail", "reports")
DEEP = "bulk"  # holds most of what is ready, all of it in front of the others
TIED = "reports"  # all that is ready in it was queued by one statement: same priority, same time
DUE = 100  # waiting jobs that are due, whatever the size
RUNNING = 120
LEASES = 5_000  # slots of limits, and workers among them
WORKERS = 50
PASSES = 2_000  # in the ledger of backfills
LAPSED = 60  # of those

TABLES = ("x_jobs", "x_outbox", "x_job_events", "x_job_steps")  # those that grow
ALIAS = "plans"
_KIND = 10_000_000  # the ids of two kinds are this far apart
KINDS = (
    "done",
    "dead",
    "delayed",
    "ready",
    "running",
    "published",
    "pending",
    "new",
    "waits",
    "event",
    "had",
    "concurrency",
    "pass",
)
NAMED = "paid"  # of all events
WAITING_DUE = 50  # runs that wait for an event and are due
YOUNG = 1_000  # events that are younger than the runs which wait; those of no other match than the older ones
EXPIRED = 100  # the oldest events
HAD = 20  # events that the first running run has had: the oldest that have not expired


@dataclass(frozen=True)
class Sizes:
    """How many rows there are of the kinds that grow."""

    done: int
    dead: int  # 1 of 10 is failed
    delayed: int  # 1 of 30 is suspended
    deep: int  # ready rows of the deep queue
    ready: int  # ready rows, the deep queue's included
    published: int
    pending: int
    waits: int  # suspended runs that wait for an event of one name, half of them for any
    events: int  # all of one name
    had: int  # events that runs have had


BIG = Sizes(
    done=900_000,
    dead=100_000,
    delayed=100_000,
    deep=100_000,
    ready=130_000,
    published=100_000,
    pending=5_000,
    waits=20_000,
    events=100_000,
    had=20_000,
)
SMALL = Sizes(
    done=5_000,
    dead=500,
    delayed=500,
    deep=1_000,
    ready=2_200,
    published=2_000,
    pending=500,
    waits=500,
    events=2_000,
    had=1_000,
)
TEN_TIMES = Sizes(
    done=50_000,
    dead=5_000,
    delayed=5_000,
    deep=10_000,
    ready=22_000,
    published=20_000,
    pending=5_000,
    waits=5_000,
    events=20_000,
    had=10_000,
)


def row_id(kind: str, number: int) -> str:
    """Return the id of the row `number` (from 1) of a kind; a running row's claim token is the same."""
    return f"{KINDS.index(kind) * _KIND + number:032x}"


def row_key(kind: str, number: int) -> tuple[str, str | None, str]:
    """Return name, tenant and idempotency key of a row."""
    tenant = f"tenant-{number % 500}" if number % 7 else None
    return f"shop.job{number % 20}", tenant, f"{kind}-{number}"


@contextmanager
def own_database(folder: Path) -> Iterator[BaseDatabaseWrapper]:
    """Make a database beside the test database, with the app's tables; yield a connection to it, then drop it."""
    opened = connection.copy(alias=ALIAS)
    if connection.vendor == "sqlite":
        opened.settings_dict["NAME"] = str(folder / "plans.sqlite3")
    else:
        opened.settings_dict["NAME"] = f"{connection.settings_dict['NAME']}_plans"
        _execute(connection, *_drop(opened), f'CREATE DATABASE "{opened.settings_dict["NAME"]}"')
    connections[ALIAS] = opened
    try:
        executor = MigrationExecutor(opened)
        executor.migrate([node for node in executor.loader.graph.leaf_nodes() if node[0] == "ultimat3_jobs"])
        if opened.vendor == "postgresql":
            # The tests decide when the statistics are renewed; and nothing in here needs to outlive a crash.
            for table in TABLES:
                _execute(opened, f"ALTER TABLE {table} SET UNLOGGED, SET (autovacuum_enabled = false)")
        yield opened
    finally:
        opened.close()
        del connections[ALIAS]
        _execute(connection, *_drop(opened))


def fill_finished(opened: BaseDatabaseWrapper, sizes: Sizes) -> None:
    """Insert what a queue has behind it: done jobs and published outbox rows."""
    with _indexes_built_at_the_end(opened):
        _insert(opened, "jobs", "done", sizes.done)
        _insert(opened, "outbox", "published", sizes.published)


def fill_work(opened: BaseDatabaseWrapper, sizes: Sizes) -> None:
    """Insert what an incident leaves: a backlog, dead letters, lapsed leases, and what the relay did not get to."""
    _insert(opened, "jobs", "dead", sizes.dead)
    _insert(opened, "jobs", "delayed", sizes.delayed)
    _insert(opened, "jobs", "ready", sizes.ready, deep=sizes.deep)
    _insert(opened, "jobs", "running", RUNNING)
    _insert(opened, "outbox", "pending", sizes.pending)
    _insert(opened, "waits", "waits", sizes.waits)
    _insert(opened, "events", "event", sizes.events)
    _insert(opened, "steps", "had", sizes.had)
    _insert(opened, "leases", "concurrency", LEASES)
    _insert(opened, "passes", "pass", PASSES)


def empty(opened: BaseDatabaseWrapper) -> None:
    """Delete all, and have the statistics tell of tables with many pages and hardly a row."""
    for table in TABLES:
        _execute(
            opened,
            f"DELETE FROM {table} WHERE ctid NOT IN (SELECT max(ctid) FROM {table})",
            f"VACUUM (ANALYZE) {table}",
            f"DELETE FROM {table}",
        )
    _execute(opened, "DELETE FROM x_job_leases", "DELETE FROM x_backfills")


def analyze(opened: BaseDatabaseWrapper) -> None:
    """Renew the statistics."""
    _execute(opened, "ANALYZE")


def forget_statistics(opened: BaseDatabaseWrapper) -> None:
    """Leave SQLite without statistics, as it is unless somebody asks for them."""
    _execute(opened, "DELETE FROM sqlite_stat1", "ANALYZE sqlite_master")


@contextmanager
def _indexes_built_at_the_end(opened: BaseDatabaseWrapper) -> Iterator[None]:
    """Take PostgreSQL's indexes away meanwhile: to add a million rows to each one by one takes most of the time."""
    if opened.vendor != "postgresql":
        yield
        return
    with opened.cursor() as cursor:
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('x_jobs', 'x_outbox')"
            " AND indexname NOT IN (SELECT conname FROM pg_constraint)"
        )
        indexes = cursor.fetchall()
    _execute(opened, *(f'DROP INDEX "{name}"' for name, _ in indexes))
    yield
    _execute(opened, *(definition for _, definition in indexes))


def _insert(opened: BaseDatabaseWrapper, table: str, kind: str, count: int, *, deep: int = 0) -> None:
    statement = (Path(__file__).parent / "sql" / opened.vendor / f"{table}.sql").read_text(encoding="utf-8")
    base = KINDS.index(kind) * _KIND
    parameters = {"kind": kind, "count": count, "base": base, "deep": deep, "due": DUE, "lapsed": LAPSED}
    parameters |= {"named": NAMED, "waiting_due": WAITING_DUE, "young": YOUNG, "expired": EXPIRED}
    parameters |= {"run": row_id("running", 1), "had": HAD}
    with opened.cursor() as cursor:
        cursor.execute(statement, parameters)


def _drop(opened: BaseDatabaseWrapper) -> list[str]:
    name = opened.settings_dict["NAME"]
    return [f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'] if opened.vendor == "postgresql" else []


def _execute(opened: BaseDatabaseWrapper, *statements: str) -> None:
    with opened.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
