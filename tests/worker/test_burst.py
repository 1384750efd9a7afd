"""A burst runs what is due, waits for nothing, and misses nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError, transaction

from tests.processes import TIMEOUT
from tests.working import age, declare, row, run_due, states
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.worker import loop
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.inflight import ActiveRun

pytestmark = pytest.mark.usefixtures("queue")


def test_a_burst_runs_what_is_staged_and_what_falls_due_but_waits_for_nothing() -> None:
    work = declare(lambda run, n: None)
    with transaction.atomic():
        staged = work.enqueue(1)
    due, later = work.using(run_after="1h").enqueue(2), work.using(run_after="3h").enqueue(3)
    age(7_200, "run_at")

    assert run_due() is Ending.DRAINED

    assert [row(one.id).state for one in (due, later)] == ["done", "delayed"]
    assert OutboxEntry.objects.get(pk=staged.id).outcome == "published"
    assert states() == {"done": 2, "delayed": 1}


def test_a_burst_runs_what_its_own_jobs_enqueue() -> None:
    def enqueue_another(run: Run, n: int) -> None:
        if n:
            with transaction.atomic():
                work.enqueue(n - 1)

    work = declare(enqueue_another)
    work.enqueue(3)

    run_due(concurrency=1)

    assert states() == {"done": 4}


def test_a_burst_retries_what_is_due_again_at_once() -> None:
    def fail(run: Run, n: int) -> None:
        raise ValueError(n)

    queued = declare(fail, retry=Retry(attempts=4, delay=0)).enqueue(1)

    run_due(concurrency=1)

    assert (row(queued).state, row(queued).attempt) == ("dead", 4)


class Promoting(DatabaseDriver):
    """Another worker makes a job ready just after a claim that found none."""

    promoted = 0

    def claim(self, **asked: Any) -> list[ClaimedJob]:
        jobs = super().claim(**asked)
        if not jobs and not self.promoted:
            age(7_200, "run_at")
            self.promoted = super().promote(limit=10)
        return jobs

    def promote(self, *, limit: int) -> int:
        return 0


def test_a_burst_does_not_miss_what_another_worker_makes_ready_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Promoting()
    monkeypatch.setattr(loop, "get_driver", lambda: driver)
    queued = declare(lambda run, n: None).using(run_after="1h").enqueue(1)

    run_due(concurrency=1)

    assert driver.promoted == 1
    assert row(queued).state == "done"


def test_a_burst_whose_chores_fail_for_a_while_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "FIRST_BACKOFF", 0.01)
    left = [OperationalError("the connection is gone")]

    def relay_all() -> int:
        if left:
            raise left.pop()
        return 0

    monkeypatch.setattr(loop, "relay_all", relay_all)
    queued = declare(lambda run, n: None).enqueue(1)

    assert run_due(concurrency=1) is Ending.DRAINED

    assert row(queued).state == "done"
    assert any(r.message.startswith("jobs.worker.claim-failed") for r in caplog.records)


def test_a_burst_does_not_end_while_its_relay_is_about_to_wake_what_it_met(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, looked = threading.Event(), threading.Event()
    overlapped: list[bool] = []
    claim = loop.claim

    def relay_once(alias: str) -> int:
        if not overlapped:
            begun.set()
            overlapped.append(looked.wait(0.3))
        return 0

    def relay_all() -> int:
        looked.set()
        return 0

    def claim_behind(*given: Any, **options: Any) -> list[ActiveRun]:
        assert begun.wait(TIMEOUT)  # the burst looks for the last time while its relay is on its way
        return claim(*given, **options)

    monkeypatch.setattr(loop, "relay_once", relay_once)
    monkeypatch.setattr(loop, "relay_all", relay_all)
    monkeypatch.setattr(loop, "claim", claim_behind)
    run_due(concurrency=1)

    assert overlapped == [False]
