"""`manage.py backfill --wait`: a pass is followed to its end, and what keeps it is said once."""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from tests.app.models import Item
from tests.backfills.commanding import as_json, refused, run
from tests.backfills.ledger_rows import ledger_row
from tests.backfills.sweeping import declare, handled, sweep
from tests.working import Failing, age, run_due, working
from ultimat3_jobs import Retry
from ultimat3_jobs.backfills.controls import pause, resume
from ultimat3_jobs.inspection.repair import cancel
from ultimat3_jobs.management import following
from ultimat3_jobs.models import Job

pytestmark = pytest.mark.usefixtures("queue", "nothing_declared")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow one another quickly, and every one may print a line."""
    monkeypatch.setattr(following, "LOOK", 0.02)
    monkeypatch.setattr(following, "PLAIN", 0.0)


class Told(io.StringIO):
    """Collects what is printed, and does what a test says when it reads something."""

    def __init__(self, *hooks: tuple[str, Callable[[], object]], tty: bool = False) -> None:
        super().__init__()
        self._hooks = list(hooks)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._hooks and self._hooks[0][0] in self.getvalue():
            self._hooks.pop(0)[1]()
        return written


def follow(out: Told, *arguments: str) -> str:
    call_command("backfill", *arguments, stdout=out)
    return out.getvalue()


def make_items(count: int) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(count))


def sleeping(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], Any]) -> None:
    """Call `sleep` where the follower alone would sleep: `time` itself is every thread's."""
    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))


@pytest.fixture
def worker() -> Iterator[None]:
    """A worker at work."""
    with working():
        yield


def failing(run: Any, rows: list[Item]) -> None:
    raise ValueError("never")


def test_a_pass_is_started_and_followed_to_its_end(worker: None) -> None:
    make_items(20)
    declare(None, Item, batch=5)

    told = follow(Told(), "t.backfill", "--write", "--wait")

    assert "started: job" in told
    assert "[##############################]  20 of 20 rows (100 %)" in told
    assert told.splitlines()[-1].strip().startswith("It completed at ")
    assert handled(Item) == {1: 20}


def test_a_terminal_has_one_line_that_is_drawn_over(worker: None) -> None:
    make_items(20)
    declare(None, Item, batch=5)

    told = follow(Told(tty=True), "t.backfill", "--write", "--wait")

    assert "\r\x1b[K[" in told
    assert re.search(r"\]  20 of 20 rows \(100 %\)[^\n]*\n", told)


def test_the_end_as_json(worker: None) -> None:
    make_items(3)
    declare(None, Item)

    found = as_json("t.backfill", "--write", "--wait")

    (one,) = found["passes"]
    assert found["started"]["id"] == one["run_id"]
    assert (one["status"], one["percent"]) == ("completed", 100)


def test_a_live_pass_is_attached_to_by_its_name() -> None:
    make_items(3)
    started = declare(None, Item).enqueue()

    told = follow(Told(("no worker", run_due)), "t.backfill", "--wait")

    assert f"{started.run_id}  t.backfill  completed" in told


def test_that_no_worker_serves_the_queue_is_said_once_with_the_command_that_starts_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_items(3)
    declare(None, Item, queue="slow")
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            run_due()

    sleeping(monkeypatch, look)
    told = follow(Told(), "t.backfill", "--write", "--wait")

    assert told.count("no worker that serves the queue 'slow' is alive") == 1
    assert "    python manage.py jobs_worker --queues slow" in told
    assert looks == [0.02] * 3


def test_that_no_worker_serves_the_queue_is_said_beside_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    make_items(3)
    declare(None, Item, queue="slow")
    sleeping(monkeypatch, lambda seconds: run_due())
    told, aside = io.StringIO(), io.StringIO()

    call_command("backfill", "t.backfill", "--write", "--wait", "--json", stdout=told, stderr=aside)

    (line,) = told.getvalue().splitlines()
    assert [one["status"] for one in json.loads(line)["passes"]] == ["completed"]
    assert aside.getvalue().splitlines() == [
        "no worker that serves the queue 'slow' is alive; to start one:",
        "    python manage.py jobs_worker --queues slow",
    ]


def test_a_paused_pass_is_said_to_be_and_followed_on() -> None:
    make_items(3)
    started = declare(None, Item).enqueue()
    pause(started.run_id, by="ann", reason="too hot")

    def go_on() -> None:
        resume(started.run_id, by="ann")
        run_due()

    told = follow(Told(("too hot", go_on)), "t.backfill", "--wait")

    assert told.count("by ann: too hot") == 1
    assert "completed" in told


def test_a_pass_that_fails_is_told_with_why_and_the_command_that_mends_it(worker: None) -> None:
    make_items(3)
    declare(failing, Item, retry=Retry(attempts=1))
    out = Told()

    with pytest.raises(CommandError, match=r"t\.backfill: the pass failed") as raised:
        call_command("backfill", "t.backfill", "--write", "--wait", stdout=out)

    assert raised.value.returncode == 1
    assert "ValueError: never" in out.getvalue()
    job = Job.objects.get()
    (mend, _) = [line.strip() for line in out.getvalue().splitlines() if line.strip().startswith("python manage.py")][
        -2:
    ]
    assert mend.startswith(f"python manage.py jobs retry {job.id}")
    call_command(*shlex.split(mend, comments=True)[2:], stdout=io.StringIO())
    assert as_json("t.backfill", "--wait", status=1)["passes"][0]["status"] == "failed"


def test_what_a_pass_waits_for_between_attempts_is_told() -> None:
    make_items(3)
    declare(failing, Item, retry=Retry(attempts=2, delay="1h")).enqueue()
    run_due()

    def again() -> None:
        age(7200, "run_at")
        run_due()

    out = Told(("its next attempt", again))
    with pytest.raises(CommandError):
        call_command("backfill", "t.backfill", "--wait", stdout=out)

    told = out.getvalue()
    assert "attempt 1 of 2 failed: ValueError: never; its next attempt is due at " in told
    assert told.count("ValueError: never") == 2  # and where it has failed for good


def test_a_pass_that_is_cancelled_ends_the_waiting() -> None:
    make_items(3)
    started = declare(None, Item).enqueue()
    out = Told(("is alive", lambda: cancel([started.id], by="ann", reason="on purpose")))

    with pytest.raises(CommandError, match="the pass was cancelled"):
        call_command("backfill", "t.backfill", "--wait", stdout=out)

    assert "by ann: on purpose" in out.getvalue()
    assert "python manage.py backfill t.backfill --write" in out.getvalue()


def test_ctrl_c_detaches_and_says_how_to_come_back() -> None:
    make_items(3)
    declare(None, Item)
    out = Told(("is alive", lambda: signal.raise_signal(signal.SIGINT)))

    with pytest.raises(SystemExit) as exited:
        call_command("backfill", "t.backfill", "--write", "--wait", stdout=out)

    assert exited.value.code == 3
    back = out.getvalue().splitlines()[-1].strip()
    assert back == "python manage.py backfill t.backfill --wait"
    assert Job.objects.get().state == "ready"
    run_due()
    assert "completed" in run(*shlex.split(back)[3:])


def test_ctrl_c_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(None, Item)
    sleeping(monkeypatch, lambda seconds: signal.raise_signal(signal.SIGINT))

    found = as_json("t.backfill", "--write", "--wait", status=3)

    assert found["detached"] == found["started"]["id"]
    assert found["command"] == "python manage.py backfill t.backfill --wait"


def test_a_pass_that_has_ended_is_told_of() -> None:
    make_items(3)
    sweep(declare(None, Item))

    assert "t.backfill  completed" in run("t.backfill", "--wait")


def test_a_backfill_without_a_pass_has_none_to_wait_for() -> None:
    make_items(1)
    declare(None, Item)

    error = as_json("t.backfill", "--wait", status=1)["error"]

    assert error["code"] == "X_BACKFILL_NOT_LIVE"
    assert "started" in run(*shlex.split(error["fix"])[3:])


def test_a_database_that_is_away_for_a_while_is_asked_again() -> None:
    make_items(3)
    declare(None, Item)
    away = Failing(3)

    def cut() -> None:
        connection.execute_wrappers.append(away)

    def mend() -> None:
        connection.execute_wrappers.remove(away)
        run_due()

    told = follow(Told(("is alive", cut), ("is asked again", mend)), "t.backfill", "--write", "--wait")

    assert told.count("cannot be asked, and is asked again: the connection is gone") == 1
    assert "completed" in told


def test_a_pass_that_was_skipped_has_not_failed() -> None:
    make_items(4)
    declare(None, Item).enqueue()
    ledger_row("t.backfill", outcome="completed")

    told = follow(Told(("[", run_due)), "t.backfill", "--wait")

    assert "It swept nothing: another pass had completed when it began." in told
    assert handled(Item) == {0: 4}


def test_all_that_was_started_is_followed(worker: None) -> None:
    make_items(3)
    declare(None, Item, name="a.one", exclusive=False)
    declare(None, Item, name="b.two", exclusive=False)

    found = as_json("--all", "--write", "--wait")

    assert [(one["name"], one["status"]) for one in found["passes"]] == [("a.one", "completed"), ("b.two", "completed")]


def test_of_all_one_that_fails_is_an_exit_with_1(worker: None) -> None:
    make_items(3)
    declare(failing, Item, name="a.one", exclusive=False, retry=Retry(attempts=1))
    declare(None, Item, name="b.two", exclusive=False)

    told, why = refused("--all", "--write", "--wait")

    assert why == "a.one: the pass failed"
    assert "b.two  completed" in told
    assert json.dumps(told)


def test_of_all_the_pass_that_is_live_already_is_followed_too() -> None:
    make_items(3)
    live = declare(None, Item, name="a.one", exclusive=False).enqueue()
    declare(None, Item, name="b.two", exclusive=False)

    told = follow(Told(("no worker", run_due)), "--all", "--write", "--wait")

    assert "a.one  not started: X_BACKFILL_RUNNING" in told
    assert f"{live.run_id}  a.one  completed" in told
    assert "b.two  completed" in told


def test_of_all_a_live_pass_that_fails_is_an_exit_with_1_beside_what_was_refused() -> None:
    make_items(3)
    declare(failing, Item, name="a.one", exclusive=False, retry=Retry(attempts=1)).enqueue()
    declare(None, Item, name="b.two", exclusive=False, source=lambda: {}["source"])
    declare(None, Item, name="c.three", exclusive=False)
    out = Told(("no worker", run_due))

    with pytest.raises(CommandError) as raised:
        follow(out, "--all", "--write", "--wait")

    assert str(raised.value).startswith("X_BACKFILL_SOURCE_INVALID")
    assert str(raised.value).splitlines()[-1] == "a.one: the pass failed"
    assert "c.three  completed" in out.getvalue()


def test_of_all_a_pass_that_is_deleted_does_not_end_the_waiting_for_the_others() -> None:
    make_items(3)
    gone = declare(None, Item, name="a.one", exclusive=False).enqueue()
    declare(None, Item, name="b.two", exclusive=False)

    def delete() -> None:
        Job.objects.filter(pk=gone.id).delete()
        run_due()

    out = Told(("no worker", delete))
    with pytest.raises(CommandError, match="X_BACKFILL_NOT_LIVE"):
        follow(out, "--all", "--write", "--wait")

    assert "b.two  completed" in out.getvalue()
