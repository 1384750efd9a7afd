"""Background loops: when passes follow one another, what a failing one costs, and how a loop ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.processes import TIMEOUT, wait_for
from ultimat3_jobs.loops import BackgroundLoop, close_thread_connections

NEVER = 3600.0  # seconds until a loop looks by itself


class Passes:
    """A step that does what a test says, pass by pass, and nothing more after that."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)
        self.count = 0

    def __call__(self) -> bool:
        self.count += 1
        return bool(self._steps.pop(0)()) if self._steps else False

    def wait(self, count: int) -> None:
        """Wait until this many passes have begun."""
        wait_for(lambda: self.count >= count, f"pass {count}")


class Gate:
    """A pass that says that it is on its way, and stays there until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.open.wait(TIMEOUT)


def fail() -> None:
    raise LookupError("on purpose")


def ended(loop: BackgroundLoop) -> bool:
    """Stop a loop, and tell whether it has ended."""
    loop.stop(TIMEOUT)
    return loop.name not in {thread.name.removeprefix("ultimat3_jobs.") for thread in threading.enumerate()}


def failures(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """Return what was logged of passes that failed."""
    return [vars(record)["fields"] for record in caplog.records if vars(record).get("event") == "jobs.loop.failed"]


def test_a_pass_follows_at_once_while_there_is_more() -> None:
    passes = Passes(lambda: True, lambda: True, lambda: False)
    loop = BackgroundLoop("more", interval=NEVER, step=passes)
    loop.start()
    passes.wait(3)

    assert ended(loop)
    assert passes.count == 3


def test_a_pass_follows_after_the_interval() -> None:
    passes = Passes()
    loop = BackgroundLoop("interval", interval=0.001, step=passes)
    loop.start()
    passes.wait(3)

    assert ended(loop)


def test_a_loop_that_waits_is_woken() -> None:
    passes = Passes()
    loop = BackgroundLoop("woken", interval=NEVER, step=passes)
    loop.start()
    passes.wait(1)
    loop.wake()
    passes.wait(2)

    assert ended(loop)
    assert passes.count == 2


def test_a_wake_during_a_pass_is_not_lost() -> None:
    gate = Gate()
    passes = Passes(gate)
    loop = BackgroundLoop("busy", interval=NEVER, step=passes)
    loop.start()
    assert gate.reached.wait(TIMEOUT)
    loop.wake()
    gate.open.set()
    passes.wait(2)

    assert ended(loop)


def test_a_failing_pass_is_logged_and_the_loop_backs_off_and_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ultimat3_jobs.loops.FIRST_BACKOFF", 0.001)
    monkeypatch.setattr("ultimat3_jobs.loops.LONGEST_BACKOFF", 0.003)
    passes = Passes(fail, fail, fail, fail, lambda: True, fail)
    loop = BackgroundLoop("failing", interval=NEVER, step=passes)
    loop.start()
    passes.wait(7)

    assert ended(loop)
    assert [one["next_try_seconds"] for one in failures(caplog)] == [0.001, 0.002, 0.003, 0.003, 0.001]
    assert {(one["loop"], one["error"]) for one in failures(caplog)} == {("failing", "LookupError")}
    record = caplog.records[0]
    assert record.levelno == logging.ERROR
    assert record.exc_info
    assert "on purpose" in caplog.text


def test_a_loop_that_backs_off_ends_at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("ultimat3_jobs.loops.FIRST_BACKOFF", NEVER)
    monkeypatch.setattr("ultimat3_jobs.loops.LONGEST_BACKOFF", NEVER)
    loop = BackgroundLoop("backing-off", interval=NEVER, step=Passes(fail))
    loop.start()
    wait_for(lambda: failures(caplog), "the pass has failed")

    assert ended(loop)


def test_stopping_waits_for_the_pass_on_its_way_and_starts_no_other() -> None:
    gate = Gate()

    def more() -> bool:
        gate()
        return True

    passes = Passes(more, fail)
    loop = BackgroundLoop("stopping", interval=NEVER, step=passes)
    loop.start()
    assert gate.reached.wait(TIMEOUT)
    stopped = threading.Event()
    stopping = threading.Thread(target=lambda: (loop.stop(), stopped.set()))
    stopping.start()
    loop.stop(0)
    assert not stopped.is_set()
    gate.open.set()

    stopping.join(TIMEOUT)
    assert stopped.is_set()
    assert passes.count == 1
    assert ended(loop)


def test_a_loop_that_never_started_can_be_stopped() -> None:
    passes = Passes()
    loop = BackgroundLoop("unborn", interval=NEVER, step=passes)

    assert ended(loop)
    assert passes.count == 0


@pytest.mark.django_db(transaction=True)
def test_a_loop_has_a_connection_of_its_own_and_closes_it_at_its_end() -> None:
    used: list[BaseDatabaseWrapper] = []

    def use() -> None:
        connection.ensure_connection()
        used.append(connections["default"])

    passes = Passes(use)
    loop = BackgroundLoop("connected", interval=NEVER, step=passes)
    loop.start()
    wait_for(lambda: used, "the pass has used a connection")
    assert used[0] is not connections["default"]

    assert ended(loop)
    assert used[0].connection is None


@pytest.mark.django_db(transaction=True)
def test_a_pass_after_a_failing_one_has_a_fresh_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ultimat3_jobs.loops.FIRST_BACKOFF", 0.001)
    seen: list[bool] = []

    def spoil() -> None:
        connection.set_autocommit(False)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        seen.append(connection.get_autocommit())
        fail()

    def look() -> None:
        seen.append(connection.get_autocommit())

    passes = Passes(spoil, look)
    loop = BackgroundLoop("spoilt", interval=NEVER, step=passes)
    loop.start()
    wait_for(lambda: len(seen) == 2, "the second pass")

    assert ended(loop)
    assert seen == [False, True]


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_cannot_be_closed_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def close(self) -> None:
            raise OSError("the line is dead")

    def break_and_close() -> None:
        connection.ensure_connection()
        connection.connection.close()
        connection.connection = Broken()
        close_thread_connections()
        assert connection.connection is None
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        connection.close()

    thread = threading.Thread(target=break_and_close)
    thread.start()
    thread.join(TIMEOUT)

    assert [vars(record)["event"] for record in caplog.records] == ["jobs.connection.close-failed"]
