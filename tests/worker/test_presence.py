"""Workers say that they are alive, and what they serve; what they cannot write costs them nothing."""

from __future__ import annotations

import logging
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from tests.processes import TIMEOUT, Processes, wait_for
from tests.working import Failing, declare, run_due, working
from ultimat3_jobs import Run
from ultimat3_jobs.inspection.workers import AliveWorker, alive_workers
from ultimat3_jobs.models import JobLease
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.worker import loop, presence
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.presence import Presence

pytestmark = pytest.mark.usefixtures("queue")

LONG = 3600.0


def make(worker: str = "w", *, only: tuple[str, ...] = (), excluded: tuple[str, ...] = (), **options: Any) -> Presence:
    given: dict[str, Any] = {"concurrency": 2, "burst": False, "every": LONG, "waits": lambda: False}
    return Presence(worker, queues=QueueSelection(only, excluded), **given | options)


def silence(worker: str) -> None:
    """Let the time of a worker's row run out."""
    row = JobLease.objects.get(holder=worker)
    assert row.expires_at is not None
    JobLease.objects.filter(holder=worker).update(expires_at=row.expires_at - timedelta(days=1))


def ids(queue: str | None = None) -> list[str]:
    return [one.id for one in alive_workers(queue)]


def test_a_worker_is_alive_while_it_works_and_no_longer(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "RELEASE": "r7"}
    with working(queues=QueueSelection(("mail",), ()), concurrency=3) as running:
        (one,) = wait_for(alive_workers)

        assert one == AliveWorker(
            id=running.worker.id,
            queues=QueueSelection(("mail",), ()),
            concurrency=3,
            burst=False,
            release="r7",
            since=one.since,
            until=one.until,
        )
        assert one.since < one.until
    assert JobLease.objects.count() == 0


def test_a_burst_says_so_too() -> None:
    seen: list[AliveWorker] = []

    def work(run: Any, n: int) -> None:
        seen.extend(wait_for(alive_workers))

    declare(work).enqueue(n=1)

    run_due()

    assert [one.burst for one in seen] == [True]
    assert JobLease.objects.count() == 0


def test_workers_are_found_by_the_queue_that_they_serve() -> None:
    make("all").step()
    make("mail", only=("mail", "slow")).step()
    make("not mail", excluded=("mail",)).step()

    assert ids() == ["all", "mail", "not mail"]
    assert ids("mail") == ["all", "mail"]
    assert ids("other") == ["all", "not mail"]


def test_a_row_is_renewed_when_that_is_due() -> None:
    rare, often = make("rare"), make("often", every=0.0)
    for one in (rare, often):
        one.step()
    # SQLite's clock tells milliseconds: two steps can be of the same.
    JobLease.objects.update(expires_at=F("expires_at") - timedelta(seconds=1))
    before = {one.id: one for one in alive_workers()}
    for one in (rare, often):
        one.step()
    after = {one.id: one for one in alive_workers()}

    assert after["rare"] == before["rare"]
    assert after["often"].until > before["often"].until
    assert after["often"].since == before["often"].since


def test_a_worker_that_went_silent_is_not_alive_and_is_forgotten_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "FORGOTTEN", 2)
    for worker in ("a", "b", "c", "alive"):
        make(worker).step()
    for worker in ("a", "b", "c"):
        silence(worker)
    JobLease.objects.create(lease_key="backfill:default:t", slot=0, kind="table", holder="x")
    assert ids() == ["alive"]

    another = make("another", every=0.0)
    another.step()
    assert JobLease.objects.filter(kind="worker").count() == 3
    another.step()

    assert sorted(JobLease.objects.values_list("holder", flat=True)) == ["alive", "another", "x"]


def test_a_worker_that_was_taken_for_silent_comes_back() -> None:
    one = make("a", every=0.0)
    one.step()
    silence("a")
    make("b").step()
    assert ids() == ["b"]

    one.step()

    assert sorted(ids()) == ["a", "b"]


def test_a_worker_removes_its_own_row_alone() -> None:
    one, other = make("a"), make("b")
    one.step()
    other.step()
    one.end()

    assert ids() == ["b"]
    make("never began").end()
    assert ids() == ["b"]


def test_what_cannot_be_written_is_a_warning_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    one = make("a", every=0.0)
    with connections["default"].execute_wrapper(Failing(2)), caplog.at_level(logging.WARNING):
        assert one.step() is False
        one.end()

    assert [vars(record)["event"] for record in caplog.records] == ["jobs.worker.presence-failed"] * 2
    one.step()
    assert ids() == ["a"]


def test_a_worker_whose_presence_cannot_be_written_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(alias: str, name: str, parameters: Any) -> None:
        raise LookupError("on purpose")

    monkeypatch.setattr(presence, "run", failing)
    done = threading.Event()
    declare(lambda run, n: done.set()).enqueue(n=1)

    with working():
        assert done.wait(TIMEOUT)


def test_it_waits_where_a_body_of_the_process_keeps_all_writers_waiting() -> None:
    busy = True
    one = make("a", waits=lambda: busy)

    one.step()
    assert ids() == []
    busy = False
    one.step()
    assert ids() == ["a"]


def test_what_another_release_says_of_itself_is_read_as_far_as_it_goes() -> None:
    make("a").step()
    JobLease.objects.update(data=None)

    (one,) = alive_workers("any")

    assert (one.queues, one.concurrency, one.release) == (QueueSelection(), 0, "")


def test_a_process_that_is_told_to_stop_leaves_no_row_and_one_that_is_killed_leaves_it(processes: Processes) -> None:
    for number, left in ((signal.SIGTERM, 0), (signal.SIGKILL, 1)):
        worker = processes.manage("jobs_worker", "--queues", "mail")
        wait_for(lambda: ids("mail"), "the worker is alive")
        worker.kill(number)
        worker.wait()
        assert JobLease.objects.count() == left


def test_a_worker_that_hands_back_leaves_no_row(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "DRAIN_TIMEOUT": "50ms"}
    monkeypatch.setattr(loop, "LAST_WORD", TIMEOUT)
    let_go, running, over = threading.Event(), threading.Event(), threading.Event()
    end = presence.Presence.end

    def slow_end(self: presence.Presence) -> None:
        over.wait(0.5)  # a worker that does not wait for it has ended by then
        end(self)

    def body(run: Run, n: int) -> None:
        running.set()
        let_go.wait(TIMEOUT)

    monkeypatch.setattr(presence.Presence, "end", slow_end)
    declare(body).enqueue(n=1)
    with working() as worker:
        assert running.wait(TIMEOUT)
        wait_for(JobLease.objects.exists, "the worker is alive")
        worker.stop()
        assert worker.ended() is Ending.HANDED_BACK
        left = JobLease.objects.count()
        over.set()
        let_go.set()

    assert left == 0
