"""Relays beside relays, callers and failing connections: nothing twice, nothing lost, nothing overtaken."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test.utils import override_settings

from tests.app.models import Organization
from tests.outbox.conftest import Background
from tests.outbox.support import Pause, jobs, labels, moved_in_order, note, outcomes, wait_until_blocked
from tests.processes import TIMEOUT, wait_for
from ultimat3_jobs.loops import BackgroundLoop
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.sql import statement

pytestmark = pytest.mark.usefixtures("outbox")
one_writer = "SQLite runs one transaction that writes at a time"
STATEMENTS_OF_A_MOVE = ("pending", "enqueue", "mark")


@pytest.fixture
def two_a_move() -> Iterator[None]:
    """A relay that moves two rows at a time."""
    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"BATCH": 2}}):
        yield


@pytest.fixture
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that try again soon."""
    monkeypatch.setattr("ultimat3_jobs.loops.FIRST_BACKOFF", 0.01)
    monkeypatch.setattr("ultimat3_jobs.loops.LONGEST_BACKOFF", 0.05)


def stage(*given: str) -> list[UUID]:
    """Stage a job for each label, in one transaction."""
    with transaction.atomic():
        return [note.enqueue(label=label).id for label in given]


def relay_and_stop_after(pause: Pause) -> int:
    """Move one batch, and stop on the way."""
    with pause:
        return relay_once()


@pytest.mark.usefixtures("two_a_move")
@pytest.mark.parametrize("name", STATEMENTS_OF_A_MOVE)
def test_a_second_relay_waits_for_the_first_and_overtakes_nothing(background: Background, name: str) -> None:
    stage(*"abcde")
    pause = Pause(name)
    first = background(lambda: relay_and_stop_after(pause))
    pause.wait()
    second = background(relay_once)
    wait_until_blocked(unless=second.done)
    overtaken = second.done() or {outcome for outcome in outcomes().values() if outcome}
    pause.go_on()

    assert not overtaken
    assert (first.result(TIMEOUT), second.result(TIMEOUT)) == (2, 2)
    assert moved_in_order() == list("abcd")
    assert relay_all() == 1
    assert labels() == list("abcde")


@pytest.mark.usefixtures("two_a_move")
def test_a_second_relay_finds_nothing_where_the_first_left_nothing(background: Background) -> None:
    stage(*"ab")
    pause = Pause("enqueue")
    first = background(lambda: relay_and_stop_after(pause))
    pause.wait()
    second = background(relay_once)
    wait_until_blocked(unless=second.done)
    pause.go_on()

    assert (first.result(TIMEOUT), second.result(TIMEOUT)) == (2, 0)
    assert labels() == list("ab")
    assert outcomes() == {"a": "published", "b": "published"}


@pytest.mark.parametrize("name", STATEMENTS_OF_A_MOVE)
def test_a_relay_that_fails_leaves_its_rows_to_the_one_that_waits(background: Background, name: str) -> None:
    stage(*"abc")
    pause = Pause(name)

    def fail() -> None:
        with pause, transaction.atomic():
            relay_once()
            raise LookupError

    first = background(fail)
    pause.wait()
    second = background(relay_once)
    wait_until_blocked(unless=second.done)
    pause.go_on()

    assert isinstance(first.exception(TIMEOUT), LookupError)
    assert second.result(TIMEOUT) == 3
    assert labels() == list("abc")
    assert set(outcomes().values()) == {"published"}


@pytest.mark.postgresql_only(reason="on SQLite whoever has the write lock has it until its process ends")
def test_a_relay_that_falls_silent_on_its_way_holds_the_others_back_for_a_while_only(background: Background) -> None:
    silent, others_are_done = threading.Event(), threading.Event()
    limits: list[str] = []

    def fall_silent(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if sql == statement("postgresql", "pending"):
            with connection.cursor() as cursor:
                cursor.execute("SHOW idle_in_transaction_session_timeout")
                limits.append(cursor.fetchone()[0])
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")  # for the sake of the test
            silent.set()
            assert others_are_done.wait(TIMEOUT)
        return result

    def relay() -> int:
        with connection.execute_wrapper(fall_silent):
            return relay_once()

    stage("a", "b")
    first = background(relay)
    assert silent.wait(TIMEOUT)
    try:
        assert relay_once() == 2
    finally:
        others_are_done.set()

    assert limits == ["30s"]
    assert isinstance(first.exception(TIMEOUT), DatabaseError)
    assert outcomes() == {"a": "published", "b": "published"}
    assert labels() == ["a", "b"]


@pytest.mark.postgresql_only(reason=one_writer)
def test_a_row_of_a_transaction_that_commits_late_is_not_lost(background: Background) -> None:
    staged, relayed = threading.Event(), threading.Event()

    def stage_and_commit_late() -> UUID:
        with transaction.atomic():
            result = note.enqueue(label="first")
            staged.set()
            assert relayed.wait(TIMEOUT)
        return result.id

    late = background(stage_and_commit_late)
    assert staged.wait(TIMEOUT)
    try:
        (second,) = stage("second")
        assert relay_all() == 1
        assert outcomes() == {"second": "published"}
    finally:
        relayed.set()

    assert late.result(TIMEOUT) < second
    assert relay_all() == 1
    assert labels() == ["first", "second"]
    assert outcomes() == {"first": "published", "second": "published"}


@pytest.mark.postgresql_only(reason=one_writer)
@pytest.mark.parametrize("commits", [True, False])
def test_the_relay_waits_for_a_transaction_that_holds_a_key(background: Background, commits: bool) -> None:
    """Outside the outbox, in the mode "direct": the relay decides once it is known who has the key."""
    held, end = threading.Event(), threading.Event()

    def hold() -> UUID:
        with transaction.atomic(), override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "direct"}}):
            result = note.enqueue(label="k")
            held.set()
            assert end.wait(TIMEOUT)
            transaction.set_rollback(not commits)
        return result.id

    (staged,) = stage("k")
    holding = background(hold)
    assert held.wait(TIMEOUT)
    moving = background(relay_once)
    wait_until_blocked(unless=moving.done)
    end.set()

    assert moving.result(TIMEOUT) == 1
    winner = holding.result(TIMEOUT) if commits else staged
    assert jobs() == {str(winner): "k"}
    entry = OutboxEntry.objects.get()
    assert (entry.outcome, entry.job_id) == ("deduped" if commits else "published", winner)


@pytest.mark.postgresql_only(reason=one_writer)
def test_a_deadlock_with_a_caller_costs_one_of_the_two_a_retry(background: Background) -> None:
    """In the mode "direct", where a caller takes two keys against their order."""
    held, blocked = threading.Event(), threading.Event()

    def take_both() -> None:
        with transaction.atomic(), override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "direct"}}):
            note.enqueue(label="b")
            held.set()
            assert blocked.wait(TIMEOUT)
            note.enqueue(label="a")

    stage("a", "b")
    caller = background(take_both)
    assert held.wait(TIMEOUT)
    moving = background(relay_once)
    wait_until_blocked(unless=moving.done)
    blocked.set()

    failed = [one.exception(TIMEOUT) for one in (caller, moving)]
    assert sum(error is None for error in failed) == 1
    assert any(isinstance(error, OperationalError) for error in failed)
    relay_all()
    assert sorted(labels()) == ["a", "b"]
    assert None not in outcomes().values()


def relay_until(done: threading.Event) -> None:
    """Relay as a loop does, and once more when all is staged."""
    while not done.is_set():
        relay_once()
    relay_all()


@pytest.mark.parametrize("relays", [1, 2])
def test_what_many_callers_stage_at_once_arrives_exactly_once(background: Background, relays: int) -> None:
    """Each caller commits, rolls back, stages alone and in batches; keys of all callers overlap."""
    callers, rounds = 4, 25
    start = threading.Barrier(callers, timeout=TIMEOUT)

    def call(caller: int) -> list[str]:
        kept = []
        start.wait()
        for number in range(rounds):
            mine = [f"{caller}-{number}", f"{caller}-{number}-b", f"shared-{number}"]
            with transaction.atomic():
                Organization.objects.create(name=mine[0])
                note.enqueue(label=mine[0])
                note.enqueue_many([{"label": label} for label in mine[1:]])
                note.enqueue(label=f"never-{caller}-{number}") if number % 5 == 0 else None
                transaction.set_rollback(number % 5 == 0)
            if number % 5:
                kept += mine
        return kept

    done = threading.Event()
    relaying = [background(lambda: relay_until(done)) for _ in range(relays)]
    calling: list[Future[list[str]]] = [background(lambda caller=caller: call(caller)) for caller in range(callers)]  # type: ignore[misc]
    try:
        kept = [label for one in calling for label in one.result(TIMEOUT)]
    finally:
        done.set()
    for one in relaying:
        one.result(TIMEOUT)
    relay_all()

    assert sorted(labels()) == sorted(set(kept))
    assert OutboxEntry.objects.count() == len(kept)
    by_label = {label: UUID(job_id) for job_id, label in jobs().items()}
    for entry in OutboxEntry.objects.all():
        assert entry.job_id == by_label[entry.input["label"]]
        assert entry.outcome == ("published" if entry.job_id == entry.id else "deduped")
    assert Organization.objects.count() == callers * rounds * 4 // 5


def test_two_relays_keep_the_order_of_what_both_could_see(background: Background) -> None:
    given = [f"{number:03}" for number in range(60)]
    for label in given:
        stage(label)
    start = threading.Barrier(2, timeout=TIMEOUT)

    def relay() -> list[int]:
        start.wait()
        return list(itertools.takewhile(bool, iter(relay_once, None)))

    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"BATCH": 3}}):
        moves = [background(relay), background(relay)]
        assert sum(sum(one.result(TIMEOUT)) for one in moves) == 60

    assert moved_in_order() == given
    assert labels() == given


@pytest.mark.postgresql_only(reason="SQLite has no levels of isolation")
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_stricter_isolation_costs_retries_and_no_work(background: Background, isolation: str) -> None:
    """A project that raises the default level: the relay that has waited must begin anew."""
    for number in range(20):
        stage(f"{number:02}")
    start = threading.Barrier(2, timeout=TIMEOUT)

    def relay() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{isolation}'")
        start.wait()
        while OutboxEntry.objects.filter(outcome=None).exists():
            with suppress(OperationalError):
                relay_once()

    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"BATCH": 2}}):
        for one in [background(relay), background(relay)]:
            one.result(TIMEOUT)

    assert labels() == [f"{number:02}" for number in range(20)]
    assert moved_in_order() == labels()
    assert set(outcomes().values()) == {"published"}


def run_loop(first_pass: Callable[[], object]) -> BackgroundLoop:
    """Start the relay's loop with an addition to its first pass."""
    todo = [first_pass]

    def step() -> bool:
        if todo:
            todo.pop()()
        return relay_once() > 100

    loop = BackgroundLoop("relay", interval=0.01, step=step)
    loop.start()
    return loop


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what loops logged of passes that failed."""
    return [record for record in caplog.records if getattr(record, "event", "") == "jobs.loop.failed"]


@pytest.mark.usefixtures("short_backoff")
@pytest.mark.postgresql_only(reason="SQLite has no sessions that could end")
@pytest.mark.parametrize("name", STATEMENTS_OF_A_MOVE)
def test_a_pass_whose_connection_ends_is_logged_and_the_next_one_moves_its_rows(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    pause = Pause(name)
    sessions: list[int] = []

    def stop_on_the_way() -> None:
        connection.ensure_connection()
        sessions.append(connection.connection.info.backend_pid)
        pause.__enter__()

    stage("a", "b")
    loop = run_loop(stop_on_the_way)
    pause.wait()
    assert outcomes() == {"a": None, "b": None}
    terminate(sessions[0])
    pause.go_on()

    wait_for(lambda: outcomes() == {"a": "published", "b": "published"}, "the loop goes on")
    loop.stop(TIMEOUT)
    assert labels() == ["a", "b"]
    assert [record.levelno for record in failures(caplog)] == [logging.ERROR]
    assert "note:" not in caplog.text


@pytest.mark.usefixtures("short_backoff")
@pytest.mark.postgresql_only(reason="SQLite has no sessions that could end")
def test_a_connection_that_ends_between_two_passes_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    sessions: list[int] = []

    def note_session() -> None:
        connection.ensure_connection()
        sessions.append(connection.connection.info.backend_pid)

    loop = run_loop(note_session)
    wait_for(lambda: sessions, "the first pass")
    terminate(sessions[0])
    wait_for(lambda: failures(caplog), "a pass on the connection that ended")
    stage("a")
    wait_for(lambda: outcomes() == {"a": "published"}, "the loop goes on")
    loop.stop(TIMEOUT)

    assert len(failures(caplog)) == 1


@pytest.mark.usefixtures("short_backoff")
def test_a_table_that_stays_locked_is_logged_and_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    def wait_briefly_for_locks() -> None:
        with connection.cursor() as cursor:
            short = {"postgresql": "SET lock_timeout = 20", "sqlite": "PRAGMA busy_timeout = 20"}
            cursor.execute(short[connection.vendor])

    stage("a")
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("LOCK TABLE x_outbox IN EXCLUSIVE MODE")
        loop = run_loop(wait_briefly_for_locks)
        wait_for(lambda: failures(caplog), "a pass that met the lock")
    wait_for(lambda: outcomes() == {"a": "published"}, "the loop goes on")
    loop.stop(TIMEOUT)

    assert labels() == ["a"]
    (first, *_) = failures(caplog)
    assert first.exc_info
    assert first.levelno == logging.ERROR


@pytest.mark.usefixtures("short_backoff")
def test_a_row_that_cannot_be_queued_is_logged_by_the_loop_until_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (obstacle,) = stage("a")
    relay_all()
    Job.objects.update(idempotency_key="another")
    OutboxEntry.objects.update(outcome=None, job_id=None, published_at=None)
    stage("b")
    loop = run_loop(lambda: None)
    wait_for(lambda: len(failures(caplog)) >= 2, "two passes that failed")
    assert outcomes() == {"a": None, "b": None}
    assert "IntegrityError" in failures(caplog)[0].getMessage()
    Job.objects.filter(id=obstacle).delete()

    wait_for(lambda: outcomes() == {"a": "published", "b": "published"}, "the loop goes on")
    loop.stop(TIMEOUT)
    assert labels() == ["a", "b"]


def test_stopping_waits_for_the_move_on_its_way(background: Background) -> None:
    pause = Pause("enqueue")
    stage("a", "b")
    loop = run_loop(pause.__enter__)
    pause.wait()
    stopping = background(lambda: loop.stop(TIMEOUT))
    wait_for(lambda: loop._stopping, "the loop is told to stop")
    assert not stopping.done()
    pause.go_on()
    stopping.result(TIMEOUT)

    assert outcomes() == {"a": "published", "b": "published"}


def terminate(session: int) -> None:
    """End a session of the server, and wait until it is gone."""

    def gone() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = %s", [session])
            return cursor.fetchone()[0] == 0

    wait_for(gone, "the session has ended")
