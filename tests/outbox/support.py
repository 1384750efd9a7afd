"""Jobs, and what the tests of the outbox look at and stop at."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from tests.app.models import Effect
from tests.locks import waiting_in_this_database
from tests.processes import INTERVAL, TIMEOUT, wait_for
from ultimat3_jobs import NO_TENANT, Run, job
from ultimat3_jobs import Job as Handle
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.sql import statement


@job(name="outbox.note", idempotency_key="note:{label}", tenant=NO_TENANT)
def note(run: Run, label: str, detail: str = "") -> None:
    """Write a line. The key does not hold the detail: another detail is another input under the same key."""
    Effect.objects.create(label=label, detail=detail, attempt=run.attempt, pid=os.getpid())


@job(name="outbox.again", idempotency_key="again:{label}", tenant=NO_TENANT, while_running="again")
def again(run: Run, label: str) -> None:
    """A job that is to run again where it has begun."""


@job(name="outbox.lenient", idempotency_key="lenient:{label}", tenant=NO_TENANT, on_key_reuse="warn")
def lenient(run: Run, label: str, detail: str = "") -> None:
    """A job whose key may be reused."""


@job(name="outbox.daily", idempotency_key="daily:{label}", tenant="org", dedupe_for="24h", queue="slow", priority=7)
def daily(run: Run, label: str, org: str) -> None:
    """A job that holds its key for a day."""


class TakenBackError(Exception):
    """Rolls a transaction back."""


@contextmanager
def taken_back(**options: Any) -> Iterator[None]:
    """An atomic block that an exception leaves."""
    with suppress(TakenBackError), transaction.atomic(**options):
        yield
        raise TakenBackError


def stage(*given: str, handle: Handle[..., None] = note, **inputs: str) -> list[UUID]:
    """Stage a job for each label, in one transaction; return their ids."""
    with transaction.atomic():
        return [handle.enqueue(label=label, **inputs).id for label in given]


def jobs() -> dict[UUID, str]:
    """Return the label of every queued job by its id."""
    return {job_id: data["label"] for job_id, data in Job.objects.values_list("id", "input")}


def labels() -> list[str]:
    """Return the labels of the queued jobs, in the order in which workers would claim them."""
    return [row["label"] for row in Job.objects.order_by("-priority", "run_at", "id").values_list("input", flat=True)]


def outcomes() -> dict[str, str | None]:
    """Return what became of each staged row, by its label."""
    return {row["label"]: outcome for row, outcome in OutboxEntry.objects.values_list("input", "outcome")}


def moved_in_order() -> list[str]:
    """Return the labels in the order in which relays moved them; those of one move in the order of staging."""
    entries = OutboxEntry.objects.exclude(published_at=None).order_by("published_at", "staged_at", "id")
    return [row["label"] for row in entries.values_list("input", flat=True)]


def database_now() -> datetime:
    """Return what time it is for the database."""
    now = {"postgresql": "clock_timestamp() AT TIME ZONE 'UTC'", "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')"}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {now[connection.vendor]}")
        value = cursor.fetchone()[0]
    return (value if isinstance(value, datetime) else datetime.fromisoformat(value)).replace(tzinfo=UTC)


def count(table: str, on: BaseDatabaseWrapper) -> int:
    """Count the rows that another connection sees."""
    with on.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


class Pause:
    """Stops the thread that enters it right after it ran a named statement, until it is told to go on."""

    def __init__(self, name: str, alias: str = "default") -> None:
        self._name = name
        self._alias = alias
        self._reached = threading.Event()
        self._go_on = threading.Event()
        self._wrapper: AbstractContextManager[None] | None = None

    def __enter__(self) -> Pause:
        self._wrapper = connections[self._alias].execute_wrapper(self._execute)
        self._wrapper.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        assert self._wrapper is not None
        self._wrapper.__exit__(*exception)

    def wait(self) -> None:
        """Wait until the thread has stopped there."""
        assert self._reached.wait(TIMEOUT), f"nothing ran {self._name!r}"

    def go_on(self) -> None:
        """Let the thread go on, and do not stop it again."""
        self._go_on.set()

    def _execute(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if sql == statement(connections[self._alias].vendor, self._name):
            self._reached.set()
            assert self._go_on.wait(TIMEOUT), f"still stopped after {self._name!r}"
        return result


def wait_until_blocked(*, unless: Callable[[], bool]) -> None:
    """On PostgreSQL, wait until a session waits for a lock, or `unless` has come about.

    SQLite does not show who waits for its one write lock.
    """

    if connection.vendor == "postgresql":
        wait_for(lambda: waiting_in_this_database() or unless(), "a session waits for a lock")


def stop_after(name: str, until: str = "") -> None:
    """Make the calling process stop right after it ran a named statement, until a file exists or it is killed."""

    def execute(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if sql == statement(connection.vendor, name):
            stop(name, until)
        return result

    def watch(connection: BaseDatabaseWrapper, **_: Any) -> None:
        connection.execute_wrappers.append(execute)

    connection_created.connect(watch, weak=False)


def stop(name: str, until: str = "") -> None:
    """Say where the calling process stops, and wait for a file or to be killed."""
    print(f"stopped after {name}", flush=True)
    while not until or not Path(until).exists():
        time.sleep(INTERVAL)
