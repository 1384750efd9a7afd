"""Connections that the server cuts: whose they were opens another, nothing is lost and nothing is stuck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction

from tests.app.models import Effect
from tests.processes import database_url, wait_for
from tests.working import declare, history, row, states, working
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.worker.drain import Ending

pytestmark = [
    pytest.mark.usefixtures("queue"),
    pytest.mark.postgresql_only(reason="SQLite has no connection that a server can cut"),
]

# What each of a worker's connections says last, or hangs in; the server keeps the first thousand characters.
ROLES = {
    "claiming": "heads AS ",
    "renewing": "mine AS MATERIALIZED.*SET visible_at",
    "settling": "SET state = 'done'",
    "relaying": "x_outbox.*FOR UPDATE",
    "housekeeping": "queues AS .*'delayed', 'suspended'|lapsed AS MATERIALIZED",
}
IDLE = {**ROLES, "relaying": "^COMMIT"}
CUT = (
    "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ %s AND state = ANY (%s)"
)
JOBS = {"POLL": "20ms", "LEASE": "3s", "RENEWAL": "50ms"}


@pytest.fixture
def outside() -> Iterator[psycopg.Connection[Any]]:
    """A connection that no test cuts."""
    with psycopg.connect(database_url(), autocommit=True) as one:
        yield one


def cut(outside: psycopg.Connection[Any], role: str, state: str) -> None:
    """Cut a role's connection once it is idle, or once it hangs in its statement."""
    query = (IDLE if state == "idle" else ROLES)[role]
    wait_for(lambda: outside.execute(CUT, [query, [state]]).fetchone() != (0,), f"{role} is {state}")


@contextmanager
def hanging(table: str) -> Iterator[None]:
    """Let no statement write to a table for the length of the block."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("state", ["idle", "active"])
@pytest.mark.parametrize("role", ROLES)
def test_each_connection_of_a_worker_is_cut_and_everything_goes_on(
    role: str, state: str, settings: Any, outside: psycopg.Connection[Any]
) -> None:
    settings.ULTIMAT3_JOBS = JOBS
    go, began = threading.Event(), threading.Semaphore(0)

    def work(run: Run, n: int) -> str:
        began.release()
        if n == 0:
            assert go.wait(30)
        return "worked"

    handle = declare(work, retry=Retry(attempts=1))
    handle.enqueue(0)
    with working(concurrency=2) as worker:
        assert began.acquire(timeout=30)
        handle.enqueue(1)
        wait_for(lambda: states().get("done") == 1, "the worker settles")
        if state == "idle":
            cut(outside, role, "idle")
        else:
            if role == "settling":
                handle.enqueue(2)  # its body ends while the queue is locked
                assert began.acquire(timeout=30)
            with hanging("x_outbox" if role == "relaying" else "x_jobs"):
                go.set()
                cut(outside, role, "active")
        with transaction.atomic():
            handle.enqueue_many([{"n": n} for n in range(10, 20)])
        handle.enqueue_many([{"n": n} for n in range(20, 30)])
        go.set()
        count = 23 if (role, state) == ("settling", "active") else 22
        wait_for(lambda: states() == {"done": count}, "all is relayed and done")
        worker.stop()
        assert worker.ended() is Ending.DRAINED

    assert set(OutboxEntry.objects.values_list("outcome", flat=True)) == {"published"}


@pytest.mark.parametrize("state", ["idle", "busy", "in a transaction"])
def test_a_body_whose_connection_is_cut_fails_and_its_next_attempt_has_another(
    state: str, settings: Any, outside: psycopg.Connection[Any]
) -> None:
    settings.ULTIMAT3_JOBS = JOBS
    pids: list[int] = []

    def sleep() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")

    def kill() -> None:
        with psycopg.connect(database_url(), autocommit=True) as killer:
            if state == "busy":
                asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
                wait_for(lambda: killer.execute(asleep, [pids[-1]]).fetchone(), "it sleeps")
            killer.execute("SELECT pg_terminate_backend(%s, 10000)", [pids[-1]])

    def work(run: Run, n: int) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.append(cursor.fetchone()[0])
        if run.attempt == 1:
            killer = threading.Thread(target=kill)
            if state == "busy":
                killer.start()
                try:
                    sleep()
                finally:
                    killer.join()
            elif state == "idle":
                kill()
            else:
                with transaction.atomic():
                    Effect.objects.create(label="in the transaction that is cut")
                    kill()
                    Effect.objects.create(label="after the cut")
        Effect.objects.create(label="its effect")
        return "worked"

    queued = declare(work, retry=Retry(attempts=2, delay=0)).enqueue(1)
    with working(concurrency=1):
        wait_for(lambda: row(queued).state in ("done", "dead"), "it has ended")

    assert (row(queued).state, row(queued).attempt) == ("done", 2)
    assert [kept.error_class for kept in history(queued)] == [f"django.db.utils.{OperationalError.__name__}"]
    assert len(set(pids)) == 2
    assert [effect.label for effect in Effect.objects.all()] == ["its effect"]
    connections.close_all()
