"""Passes that fail: said in the log, nothing lost, and the loop goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from django.db import connection, transaction

from tests.outbox.conftest import Background
from tests.outbox.support import Pause, labels, outcomes, stage
from tests.processes import TIMEOUT, wait_for
from ultimat3_jobs.loops import BackgroundLoop
from ultimat3_jobs.outbox.relay import relay_all, relay_once

pytestmark = pytest.mark.usefixtures("outbox")
STATEMENTS_OF_A_MOVE = ("pending", "enqueue", "mark")


@pytest.fixture
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that try again soon."""
    monkeypatch.setattr("ultimat3_jobs.loops.FIRST_BACKOFF", 0.01)
    monkeypatch.setattr("ultimat3_jobs.loops.LONGEST_BACKOFF", 0.05)


def test_a_move_that_fails_after_it_queued_queued_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    stage("a")
    with monkeypatch.context() as patch:
        patch.setattr("ultimat3_jobs.outbox.move._mark", fail)
        with pytest.raises(LookupError):
            relay_once()
    assert labels() == []
    assert relay_all() == 1
    assert outcomes() == {"a": "published"}


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
