"""The worker as a whole: how many jobs at once, of which queues, woken by what."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from tests import raising
from tests.processes import wait_for
from tests.working import age, declare, history, row, run_due, states, working
from ultimat3_jobs import NO_TENANT, EnqueueResult, Retry, Run, job, registry
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.records import ClaimedJob, QueueSelection
from ultimat3_jobs.worker import loop
from ultimat3_jobs.worker.claim import claim
from ultimat3_jobs.worker.drain import Ending

pytestmark = pytest.mark.usefixtures("queue")


class AtOnce:
    """Counts the bodies that run at the same time, and the jobs that are claimed meanwhile."""

    def __init__(self, parties: int) -> None:
        self.most = self.now = self.claimed = 0
        self._lock = threading.Lock()
        self._meet = threading.Barrier(parties, timeout=30)

    def body(self, run: Run, n: int) -> None:
        """Meet the others."""
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.claimed = max(self.claimed, states()["running"])
        self._meet.wait()
        with self._lock:
            self.now -= 1


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_bodies_run_at_once_as_were_asked_for_and_no_more(concurrency: int) -> None:
    together = AtOnce(concurrency)
    declare(together.body).enqueue_many([{"n": n} for n in range(4 * concurrency)])

    assert run_due(concurrency=concurrency) is Ending.DRAINED

    assert together.most == together.claimed == concurrency
    assert states() == {"done": 4 * concurrency}


def test_the_setting_says_how_many_where_the_worker_does_not(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "CONCURRENCY": 2}
    together = AtOnce(2)
    declare(together.body).enqueue_many([{"n": n} for n in range(4)])

    run_due()

    assert together.most == 2


def test_a_slow_job_holds_up_neither_its_queue_nor_another(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "1h"}
    let_go = threading.Event()
    slow = declare(lambda run, n: let_go.wait(30), name="t.slow", queue="slow")
    fast = declare(lambda run, n: n, name="t.fast", queue="fast")
    held = slow.enqueue(1)
    fast.enqueue_many([{"n": n} for n in range(20)])
    slow.enqueue(2), slow.enqueue(3)
    try:
        with working(concurrency=4):
            wait_for(lambda: states().get("done") == 20, "the fast ones are done")
            assert row(held).state == "running"
            let_go.set()
            wait_for(lambda: states() == {"done": 23}, "the slow ones are done")
    finally:
        let_go.set()


@pytest.mark.parametrize(
    ("selection", "done"),
    [
        (QueueSelection(only=("a", "b")), {"a", "b"}),
        (QueueSelection(excluded=("b", "c")), {"a", "default"}),
        (QueueSelection(), {"a", "b", "c", "default"}),
    ],
)
def test_a_worker_serves_its_queues_alone(selection: QueueSelection, done: set[str]) -> None:
    work = declare(lambda run, n: None)
    queued = {name: work.using(queue=name).enqueue(n) for n, name in enumerate(("a", "b", "c", "default"))}

    run_due(queues=selection)

    assert {name for name, one in queued.items() if row(one).state == "done"} == done


def test_a_worker_without_a_relay_leaves_the_outbox_alone() -> None:
    with transaction.atomic():
        staged = declare(lambda run, n: None).enqueue(1)

    run_due(relay=False)

    assert OutboxEntry.objects.get(pk=staged.id).outcome is None
    assert states() == {}


def test_a_slot_is_used_again_the_moment_its_job_has_settled(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "1h"}

    def enqueue_another(run: Run, n: int) -> None:
        if n > 0:
            work.enqueue(n - 1)  # outside a transaction: straight into the queue

    work = declare(enqueue_another)
    work.enqueue_many([{"n": -n} for n in range(1, 21)])
    work.enqueue(5)
    with working(concurrency=2):
        wait_for(lambda: states() == {"done": 26}, "all are done, without a poll")


class Looked(DatabaseDriver):
    """Makes due jobs ready only after a claim that found none."""

    def __init__(self) -> None:
        self.found_nothing = threading.Event()

    def claim(self, **asked: Any) -> list[ClaimedJob]:
        jobs = super().claim(**asked)
        self.found_nothing.set()
        return jobs

    def promote(self, *, limit: int) -> int:
        assert self.found_nothing.wait(30)
        return super().promote(limit=limit)


def test_the_relay_wakes_the_worker(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "1h"}
    driver, relay_once = Looked(), loop.relay_once

    def relay_later(alias: str) -> int:
        assert driver.found_nothing.wait(30)
        return relay_once(alias)

    monkeypatch.setattr(loop, "get_driver", lambda: driver)
    monkeypatch.setattr(loop, "relay_once", relay_later)
    with transaction.atomic():
        declare(lambda run, n: None).enqueue(1)
    with working(concurrency=2):
        wait_for(lambda: states() == {"done": 1}, "what was staged is done, without a poll")


def test_promotion_wakes_the_worker(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "1h"}
    driver = Looked()
    monkeypatch.setattr(loop, "get_driver", lambda: driver)
    declare(lambda run, n: None).using(run_after="1h").enqueue(1)
    age(7_200, "run_at")
    with working(concurrency=2):
        wait_for(lambda: states() == {"done": 1}, "what was due is done, without a poll")


class Unlucky(DatabaseDriver):
    """Cannot claim the first times."""

    left = 2

    def claim(self, **asked: Any) -> list[ClaimedJob]:
        if self.left:
            self.left -= 1
            raise OperationalError("the connection is gone")
        return super().claim(**asked)


@pytest.mark.parametrize("burst", [True, False])
def test_a_claim_that_fails_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, burst: bool
) -> None:
    driver = Unlucky()
    monkeypatch.setattr(loop, "get_driver", lambda: driver)
    monkeypatch.setattr(loop, "FIRST_BACKOFF", 0.01)
    queued = declare(lambda run, n: None).enqueue(1)

    if burst:
        run_due(concurrency=1)
    else:
        with working(concurrency=1):
            wait_for(lambda: row(queued).state == "done")

    assert row(queued).state == "done"
    assert sum(r.message.startswith("jobs.worker.claim-failed") for r in caplog.records) == 2


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_nothing_that_goes_wrong_around_a_body_takes_its_slot_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    real, left = loop.execute, [error]

    def execute(one: ClaimedJob, run: Run, **rest: Any) -> Any:
        if left:
            raise left.pop()
        return real(one, run, **rest)

    monkeypatch.setattr(loop, "execute", execute)
    work = declare(lambda run, n: None)
    first, second = work.enqueue(1), work.enqueue(2)

    run_due(concurrency=1)

    assert (row(first).state, row(second).state) == ("running", "done")
    assert any(r.message.startswith("jobs.worker.attempt-failed") for r in caplog.records)


def test_unknown_and_unreadable_jobs_hold_up_no_other() -> None:
    unknown = declare(lambda run, n: None, name="t.of_another_release").enqueue(1)
    unreadable = declare(lambda run, n: None, name="t.changed").enqueue(2)
    good = declare(lambda run, n: None, name="t.good").enqueue(3)

    def changed(run: Run, order: str) -> None:
        raise AssertionError("the body ran")

    with registry.isolated():
        registry._by_name.clear()
        job(name="t.changed", idempotency_key="key", tenant=NO_TENANT)(changed)
        declare(lambda run, n: None, name="t.good")
        run_due(concurrency=1)

    assert (row(unknown).state, row(unknown).attempt, row(unknown).parks) == ("suspended", 0, 1)
    assert row(unknown).park_reason == "no job named 't.of_another_release' in the code of this worker"
    assert (row(unreadable).state, row(unreadable).stop, row(unreadable).attempt) == ("dead", "terminal", 1)
    assert row(good).state == "done"
    # The release that knows the name takes it when its time has come.
    age(61, "run_at")
    run_due(concurrency=1)
    assert (row(unknown).state, row(unknown).attempt, row(unknown).parks) == ("done", 1, 0)


def test_every_kind_of_exception_settles_its_job_and_the_worker_goes_on() -> None:
    kinds = list(raising.KINDS)

    def fail(run: Run, n: int) -> None:
        raise raising.KINDS[kinds[n]]()

    queued = {kind: declare(fail, retry=Retry(attempts=1)).enqueue(n) for n, kind in enumerate(kinds)}
    last = declare(lambda run, n: None, name="t.last", priority=-1).enqueue(1)

    run_due(concurrency=1)

    assert row(last).state == "done"
    for kind, one in queued.items():
        job_row = row(one)
        assert (kind, job_row.state, job_row.stop) == (kind, "dead", "attempts-exhausted")
        assert job_row.last_error.endswith("\nverdict: dead (attempts-exhausted): attempt 1 of 1 was the last")
        assert job_row.error_class
        (kept,) = history(one)
        assert (kept.error_class, kept.decision) == (job_row.error_class, "attempts-exhausted")
        assert "in fail" in kept.traceback


def test_each_worker_has_an_identity_of_its_own() -> None:
    work = declare(lambda run, n: None)
    first, second = work.enqueue(1), work.enqueue(2)
    run_due(queues=QueueSelection(excluded=("x",)))
    third = work.enqueue(3)
    run_due()

    assert row(first).claimed_by == row(second).claimed_by != row(third).claimed_by
    assert len(row(third).claimed_by) == 32


def test_a_job_whose_claim_is_lost_before_its_body_begins_is_not_started() -> None:
    started: list[int] = []
    queued = declare(lambda _, n: started.append(n)).enqueue(n=1)
    worker = loop.Worker(loop.WorkerOptions())
    lease = timedelta(seconds=30)
    (active,) = claim(DatabaseDriver(), worker=worker.id, free=1, lease=lease, queues=QueueSelection(), lapsed=1)
    worker._inflight.add(active)
    assert worker._inflight.lose(active)

    worker._attempt(active)

    assert started == []
    assert len(worker._inflight) == 0
    assert row(queued).state == "running"  # whoever owns it now has not been disturbed


def gone_silent(*jobs: EnqueueResult) -> None:
    """Let jobs be taken from a worker that went silent."""
    get_driver().claim(worker="silent", limit=len(jobs), lease=timedelta(seconds=30), queues=QueueSelection())
    age(60, "visible_at")
    assert len(get_driver().sweep(limit=10)) == len(jobs)


def test_jobs_of_workers_that_went_silent_run_one_at_a_time_beside_others() -> None:
    """One of them may be what ended its worker: it must not take the others along a second time."""
    at_once: list[set[int]] = []
    running: set[int] = set()
    lock = threading.Lock()

    def body(run: Run, n: int) -> None:
        with lock:
            running.add(n)
            at_once.append(running & {0, 1, 2})
        with lock:
            running.discard(n)

    work = declare(body)
    suspects = work.enqueue_many([{"n": n} for n in range(3)])
    gone_silent(*suspects)
    work.enqueue_many([{"n": n} for n in range(3, 20)])
    claims: list[list[ClaimedJob]] = []

    class Noting(DatabaseDriver):
        def claim(self, **asked: Any) -> list[ClaimedJob]:
            claims.append(super().claim(**asked))
            return claims[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "get_driver", Noting)
        run_due(concurrency=10)

    assert states() == {"done": 20}
    assert max(map(len, at_once)) == 1
    assert len(claims[0]) == 10, "one suspect and nine others"
    assert sum(job.lapses > 0 for job in claims[0]) == 1


def test_a_last_attempt_is_marked_before_its_body_and_others_are_not_written_again() -> None:
    begun: dict[int, bool] = {}

    class Marking(DatabaseDriver):
        def begin(self, claims: Any) -> list[bool]:
            begun[row(claims[0].id).input["n"]] = True
            return super().begin(claims)

    def body(run: Run, n: int) -> None:
        assert row(run.id).started_at is not None

    last = declare(body, retry=Retry(attempts=1)).enqueue(1)
    first = declare(body, name="t.other").enqueue(2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "get_driver", Marking)
        run_due(concurrency=1)

    assert (row(last).state, row(first).state, begun) == ("done", "done", {1: True})


def test_a_last_attempt_whose_job_is_another_workers_is_not_started() -> None:
    started: list[int] = []
    queued = declare(lambda _, n: started.append(n), retry=Retry(attempts=1)).enqueue(1)

    class Late(DatabaseDriver):
        def claim(self, **asked: Any) -> list[ClaimedJob]:
            jobs = super().claim(**asked)
            if jobs:
                age(60, "visible_at")
                super().sweep(limit=10)
            return jobs

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "get_driver", Late)
        worker = loop.Worker(loop.WorkerOptions(concurrency=1))
        assert worker._claim(1) == 1
        (active,) = worker._inflight.all()
        worker._attempt(active)

    assert (started, row(queued).state, row(queued).attempt) == ([], "ready", 0)


def test_the_mark_of_a_last_attempt_is_tried_again_on_a_fresh_connection() -> None:
    queued = declare(lambda run, n: None, retry=Retry(attempts=1)).enqueue(1)
    left = [OperationalError("the connection is gone")]

    class Unlucky(DatabaseDriver):
        def begin(self, claims: Any) -> list[bool]:
            if left:
                raise left.pop()
            return super().begin(claims)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "get_driver", Unlucky)
        run_due(concurrency=1)

    assert (row(queued).state, left) == ("done", [])
