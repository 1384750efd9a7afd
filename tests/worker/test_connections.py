"""A worker's threads keep their connections, and never hand on one that a body spoilt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import IntegrityError, close_old_connections, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import sql

from tests.app.models import Effect, Organization
from tests.composing import Money, teach_money
from tests.processes import wait_for
from tests.working import history, row, run_due, states, working
from ultimat3_jobs import NO_TENANT, Retry, Run, job
from ultimat3_jobs.worker.attempt import in_surroundings
from ultimat3_jobs.worker.connections import (
    _thread,
    prepare_connections,
    replace_spoilt_connections,
)

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture(autouse=True)
def _no_organizations(queue: None) -> Iterator[None]:
    yield
    held.clear()
    Organization.objects.all().delete()


def session() -> Any:
    """Return what tells the thread's connection to the database from others."""
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        return connection.connection
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


def leave_a_transaction_open() -> None:
    """Enter a block and never leave it."""
    transaction.atomic().__enter__()
    Effect.objects.create(label="in a transaction that nobody commits")


def catch_an_integrity_error_in_a_block() -> None:
    """Break a transaction and go on."""
    Organization.objects.create(name="twice")
    with transaction.atomic():
        try:
            Organization.objects.create(name="twice")
        except IntegrityError:
            pass
        else:
            raise AssertionError("the name is not unique")


def break_a_block_and_leave_it_open() -> None:
    """Break a transaction that is never left."""
    transaction.atomic().__enter__()
    transaction.set_rollback(True)


def turn_autocommit_off() -> None:
    """Begin what Django calls manual transaction management."""
    connection.set_autocommit(False)
    Effect.objects.create(label="in a transaction that nobody commits")


def close_the_connection() -> None:
    """Close it as Django does."""
    connection.ensure_connection()
    connection.close()


def close_the_connection_in_a_block() -> None:
    """Close it while Django believes in a transaction."""
    transaction.atomic().__enter__()
    connection.close()


def close_the_connection_behind_django() -> None:
    """Close it without Django's knowledge."""
    connection.ensure_connection()
    connection.connection.close()


def begin_a_transaction_behind_django() -> None:
    """Begin one with a statement."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Effect.objects.create(label="in a transaction that nobody commits")


def break_a_transaction_behind_django() -> None:
    """Begin one with a statement, and break it."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        with pytest.raises(Exception, match="no_such_table"):
            cursor.execute("SELECT * FROM no_such_table")


def close_all() -> None:
    """Do what code for long-running scripts does."""
    connections.close_all()


def change_the_session() -> None:
    """Make the connection look for its tables elsewhere, or stop to check keys."""
    with connection.cursor() as cursor:
        cursor.execute(
            {"postgresql": "SET search_path TO nowhere", "sqlite": "PRAGMA foreign_keys = OFF"}[connection.vendor]
        )


held: list[Any] = []
iterators: list[Any] = []  # never let go: their end would be in another thread than their beginning


def hold_a_read_in_the_middle() -> None:
    """Read the first of several rows, and keep the cursor."""
    Organization.objects.bulk_create(Organization(name=f"of a read {n}") for n in range(500))
    cursor = connection.cursor()
    cursor.execute("SELECT name FROM app_organization")
    held.append((cursor, cursor.fetchone()))


def hold_an_iterator_in_the_middle() -> None:
    """Do the same with the ORM, which reads from a cursor of the server where there is one."""
    if connection.vendor == "sqlite":  # which lets only the thread that has begun to read end it
        hold_a_read_in_the_middle()
        return
    Organization.objects.bulk_create(Organization(name=f"of an iterator {n}") for n in range(500))
    rows = Organization.objects.iterator(chunk_size=10)
    iterators.append((rows, next(rows)))


def share_with_all_threads() -> None:
    """Let other threads use the connection."""
    connection.inc_thread_sharing()


def make_a_temporary_table() -> None:
    """Hide a table behind another of its name."""
    with connection.cursor() as cursor:
        cursor.execute("/* as some tools write */ CREATE TEMPORARY TABLE app_effect (id integer)")


SPOILERS = [
    hold_a_read_in_the_middle,
    hold_an_iterator_in_the_middle,
    share_with_all_threads,
    make_a_temporary_table,
    leave_a_transaction_open,
    catch_an_integrity_error_in_a_block,
    break_a_block_and_leave_it_open,
    turn_autocommit_off,
    close_the_connection,
    close_the_connection_in_a_block,
    close_the_connection_behind_django,
    begin_a_transaction_behind_django,
    break_a_transaction_behind_django,
    close_all,
    change_the_session,
]


@pytest.mark.parametrize("fails", [False, True], ids=["ends well", "fails"])
@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
def test_the_outcome_is_stored_and_the_next_job_gets_a_sound_connection(spoil: Callable[[], None], fails: bool) -> None:
    # Neither is on its last attempt: the mark of one is written first, which opens a connection or replaces one.
    once = Retry(attempts=2, terminal=(ValueError,))

    @job(name="t.spoiler", idempotency_key="key", tenant=NO_TENANT, retry=once)
    def spoiler(run: Run) -> str:
        spoil()
        if fails:
            raise ValueError("after that")
        return "worked"

    @job(name="t.next", idempotency_key="key", tenant=NO_TENANT, retry=once, priority=-1)
    def following(run: Run) -> list[bool]:
        sound = [connection.in_atomic_block, not connection.get_autocommit(), connection.needs_rollback]
        sound.append(connection.allow_thread_sharing)
        # Written meanwhile: who still reads in the middle has an old snapshot, and cannot write.
        in_another_thread(lambda: Organization.objects.create(name="meanwhile"))
        Effect.objects.create(label="next")
        with transaction.atomic():
            Effect.objects.create(label="next, in a block")
        return sound

    first, second = spoiler.enqueue(), following.enqueue()
    run_due(concurrency=1)

    assert row(first).state == ("dead" if fails else "done")
    assert row(first).result == (None if fails else "worked")
    assert len(history(first)) == (1 if fails else 0)
    assert (row(second).state, row(second).result) == ("done", [False] * 4)
    assert set(Effect.objects.values_list("label", flat=True)) == {"next", "next, in a block"}


def in_another_thread(work: Callable[[], Any]) -> None:
    """Do it on another connection."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_connections_are_kept_between_runs_whatever_the_settings_say() -> None:
    assert connection.settings_dict["CONN_MAX_AGE"] == 0

    @job(name="t.kept", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1, delay=0))
    def kept(run: Run, n: int) -> int:
        close_old_connections()  # as code that is used in threads does
        Effect.objects.count()
        if n % 3 == 0:
            raise ValueError(n)
        if n % 3 == 1:
            with pytest.raises(Exception, match="no_such_table"), connection.cursor() as cursor:
                cursor.execute("SELECT * FROM no_such_table")
        seen.append(session())
        return n

    seen: list[Any] = []
    kept.enqueue_many([{"n": n} for n in range(30)])
    run_due(concurrency=1)

    assert states() == {"done": 20, "dead": 10}
    assert len(seen) == 20
    assert len(set(seen)) == 1


@pytest.mark.postgresql_only(reason="SQLite has no connection that a server can cut")
def test_a_connection_that_the_server_cut_between_two_runs_costs_no_attempt() -> None:
    pids: list[Any] = []

    @job(name="t.cut", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=2, delay="1h"))
    def cut(run: Run, n: int) -> None:
        pids.append(session())

    cut.enqueue(1)
    with working(concurrency=1):
        wait_for(lambda: states() == {"done": 1}, "the first is done")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pids[0]])
        cut.enqueue(2)
        wait_for(lambda: "ready" not in states() and "running" not in states(), "the second has ended")

    assert states() == {"done": 2}
    assert len(set(pids)) == 2


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("SET lock_timeout = '7s'", False),
        ("  set session lock_timeout to '7s'", False),
        ("SELECT set_config('lock_timeout', '7s', false)", False),
        ("BEGIN; SET LOCAL lock_timeout = '7s'; COMMIT", True),
        ("SELECT 'SET lock_timeout = 7'", True),
        ("/* a tool */ -- says\nSET lock_timeout = '7s'", False),
        ("SELECT 1; SET lock_timeout = '7s'", False),
        ("SELECT pg_advisory_lock(7)", False),
        ("SELECT pg_try_advisory_lock_shared(7)", False),
        ("BEGIN; SELECT pg_advisory_xact_lock(7); COMMIT", True),
        ("LISTEN anything", False),
        ("PREPARE anything AS SELECT 1", False),
        ("DECLARE anything CURSOR WITH HOLD FOR SELECT 1", False),
        ("SELECT 1 AS one INTO TEMP anything", False),
        (b"SET lock_timeout = '7s'", False),
        (sql.SQL("SET lock_timeout = '7s'"), False),
        (sql.SQL("SET {} = {}").format(sql.Identifier("lock_timeout"), sql.Literal("7s")), False),
        (sql.SQL("SELECT {}").format(sql.Literal("SET lock_timeout = 7")), True),
        ("SELECT 1 AS dataset_config", True),
        (f"SELECT '{'long' * 1_000}'; SET lock_timeout = '7s'", False),
    ],
    ids=lambda one: str(one)[:60],
)
@pytest.mark.postgresql_only(reason="about settings of a PostgreSQL session")
def test_what_a_body_sets_for_its_session_is_not_seen_by_the_next(statement: Any, kept: bool) -> None:
    seen: list[Any] = []

    @job(name="t.setter", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1))
    def setter(run: Run, n: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout')")
            seen.append((session(), cursor.fetchone()[0]))
            cursor.execute(statement)

    setter.enqueue(1), setter.enqueue(2)
    run_due(concurrency=1)

    assert states() == {"done": 2}
    assert [setting for _, setting in seen] == ["0", "0"]
    assert (seen[0][0] == seen[1][0]) is kept


@pytest.mark.postgresql_only(reason="SQLite's driver composes no statements")
@pytest.mark.parametrize("atomic", [True, False])
def test_values_that_the_connection_alone_can_write_are_no_trouble(atomic: bool) -> None:
    def body(run: Run, n: int) -> None:
        teach_money()
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT {}").format(sql.Literal(Money())))
            seen.append(cursor.fetchone())

    seen: list[Any] = []
    job(name="t.money", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1), atomic=atomic)(body).enqueue(
        1
    )
    run_due(concurrency=1)

    assert states() == {"done": 1}
    assert len(seen) == 1


@pytest.fixture
def second_alias() -> Iterator[str]:
    """Another alias of the same database, which bodies open anew."""
    connections.databases["of_the_test"] = dict(connections.databases["default"])
    yield "of_the_test"
    del connections.databases["of_the_test"]


def test_what_the_project_sets_in_each_of_its_sessions_is_no_change_of_a_body(second_alias: str) -> None:
    statements = {"postgresql": "SET lock_timeout = 7000", "sqlite": "PRAGMA cache_size = 7"}
    seen: list[Any] = []

    def prepare(connection: BaseDatabaseWrapper, **_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statements[connection.vendor])

    @job(name="t.second", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1))
    def second(run: Run, n: int) -> None:
        with connections[second_alias].cursor() as cursor:
            cursor.execute("SELECT 1")
            if n == 3:
                cursor.execute(statements[connection.vendor])
        seen.append(connections[second_alias].connection)

    second.enqueue_many([{"n": n} for n in (1, 2, 3, 4)])
    # As it is for a project: its receivers are there before the worker's.
    before, connection_created.receivers = connection_created.receivers, []
    try:
        connection_created.connect(prepare)
        connection_created.receivers += before
        connection_created.sender_receivers_cache.clear()
        run_due(concurrency=1)
    finally:
        connection_created.receivers = before
        connection_created.sender_receivers_cache.clear()

    assert states() == {"done": 4}
    assert seen[0] is seen[1] is seen[2]
    assert seen[3] is not seen[2], "what the third set would be seen by the fourth"


def test_a_session_of_a_pool_stays_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is opened anew may be the one that was given back."""
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", True)
    prepare_connections()
    try:
        watch = _thread.watch
        watch.changed.add(connection.alias)
        connection_created.send(type(connection), connection=connection)
        assert connection.alias in watch.changed
        monkeypatch.delitem(connection.settings_dict["OPTIONS"], "pool")
        connection_created.send(type(connection), connection=connection)
        assert connection.alias not in watch.changed
    finally:
        replace_spoilt_connections()


def test_a_body_may_share_its_connection_with_a_thread_and_what_that_changes_is_known() -> None:
    seen: list[Any] = []
    statements = {"postgresql": "SET lock_timeout = 7", "sqlite": "PRAGMA cache_size = 7"}

    @job(name="t.sharer", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1))
    def sharer(run: Run, n: int) -> None:
        seen.append(session())
        own = connections["default"]
        own.inc_thread_sharing()
        failed: list[Exception] = []

        def change() -> None:
            try:
                with own.cursor() as cursor:
                    cursor.execute(statements[own.vendor])
            except Exception as error:
                failed.append(error)

        in_another_thread(change)
        own.dec_thread_sharing()
        assert failed == []

    sharer.enqueue(1), sharer.enqueue(2)
    run_due(concurrency=1)

    assert states() == {"done": 2}
    assert seen[0] != seen[1]


def test_a_callers_transaction_is_never_touched() -> None:
    Organization.objects.create(name="before")

    with transaction.atomic():
        Organization.objects.create(name="caller")
        assert in_surroundings(None, Organization.objects.count) == 2
        with pytest.raises(ValueError, match="x"):
            in_surroundings(None, raise_it)
        Organization.objects.create(name="still open")
        transaction.set_rollback(True)

    assert set(Organization.objects.values_list("name", flat=True)) == {"before"}


def raise_it() -> Any:
    """Be a body that fails."""
    raise ValueError("x")
