"""The way down of a worker: running jobs end, the rest is handed back without burning an attempt."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from tests.processes import wait_for
from tests.working import Failing, history, row, states, working
from ultimat3_jobs import NO_TENANT, EnqueueResult, Job, Retry, Run, job
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.records import Ack, ClaimedJob, Nack, QueueSelection
from ultimat3_jobs.worker import drain, loop
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight

pytestmark = pytest.mark.usefixtures("queue")

JOBS = {"POLL": "50ms", "LEASE": "30s", "RENEWAL": "10s", "DRAIN_TIMEOUT": "30s"}


@pytest.fixture(autouse=True)
def _settings(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ULTIMAT3_JOBS = JOBS
    monkeypatch.setattr(drain, "LAST_WORDS", 30.0)


class Body:
    """A body that waits until it is let go, and tells how often it began and which runs it had."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.started = threading.Semaphore(0)
        self.ended = threading.Event()
        self.runs: list[Run] = []

    def wait(self, run: Run) -> str:
        """Be the body."""
        self.runs.append(run)
        self.started.release()
        assert self.let_go.wait(30)
        self.ended.set()
        return "worked"


@pytest.fixture
def body() -> Iterator[Body]:
    """A body that is let go at the end of the test."""
    one = Body()
    yield one
    one.let_go.set()


def declare(work: Any, *, name: str = "t.drained", attempts: int = 2) -> Job[..., Any]:
    """Declare a job whose body is `work`."""

    def drained(run: Run, n: int) -> Any:
        return work(run)

    return job(name=name, idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=attempts))(drained)


def started(body: Body, times: int = 1) -> None:
    """Wait until the body has begun that often."""
    for _ in range(times):
        assert body.started.acquire(timeout=30)


def test_a_worker_without_runs_ends_at_once() -> None:
    with working() as worker:
        worker.stop()
        assert worker.ended() is Ending.DRAINED


def test_running_jobs_end_and_no_other_is_claimed(body: Body, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ultimat3_jobs")
    ship = declare(body.wait)
    queued = [ship.enqueue(n) for n in range(3)]
    with working(concurrency=2) as worker:
        started(body, 2)
        worker.stop()
        wait_for(lambda: [r for r in caplog.records if r.message.startswith("jobs.worker.draining")], "it drains")
        body.let_go.set()
        assert worker.ended() is Ending.DRAINED

    assert [row(one).state for one in queued] == ["done", "done", "ready"]
    assert row(queued[2]).attempt == 0


def test_leases_are_renewed_until_the_last_run_has_ended(body: Body, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "LEASE": "900ms", "RENEWAL": "200ms"}
    queued = declare(body.wait).enqueue(1)
    with working(concurrency=1) as worker:
        started(body)
        worker.stop()
        ends = {row(queued).visible_at}
        wait_for(lambda: ends.add(row(queued).visible_at) or len(ends) > 4, "the lease is renewed while draining")
        assert worker.endings == []
        body.let_go.set()
        assert worker.ended() is Ending.DRAINED

    assert (row(queued).state, row(queued).attempt) == ("done", 1)


def handed_back(worker: Any, body: Body, queued: EnqueueResult) -> None:
    """Expect that a run was given back as it was claimed, and that its late end changes nothing."""
    assert worker.ended() is Ending.HANDED_BACK
    assert body.runs[0].cancelled.is_set()
    job_row = row(queued)
    assert (job_row.state, job_row.attempt, job_row.claim_token) == ("ready", 0, None)
    body.let_go.set()
    assert body.ended.wait(30)
    assert history(queued) == []
    assert row(queued).state == "ready"


@pytest.mark.parametrize("attempts", [1, 3])
def test_what_does_not_end_in_time_is_handed_back_without_burning_an_attempt(
    body: Body, settings: Any, attempts: int
) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "100ms"}
    queued = declare(body.wait, attempts=attempts).enqueue(1)
    with working(concurrency=1) as worker:
        started(body)
        worker.stop()
        handed_back(worker, body, queued)


def obedient(body: Body) -> Callable[[Run], None]:
    """Return what a body does that stops when it is told to."""

    def obey(run: Run) -> None:
        body.runs.append(run)
        body.started.release()
        assert run.cancelled.wait(30)
        body.ended.set()
        run.check_cancelled()

    return obey


def failing_when_told(body: Body) -> Callable[[Run], None]:
    """Return what a body does that fails in a way of its own when it is told to stop."""

    def fail(run: Run) -> None:
        body.runs.append(run)
        body.started.release()
        assert run.cancelled.wait(30)
        body.ended.set()
        raise ValueError("interrupted in the middle")

    return fail


def test_a_body_that_stops_when_it_is_told_to_burns_no_attempt(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "100ms"}
    one = Body()

    queued = declare(obedient(one), attempts=1).enqueue(1)
    with working(concurrency=1) as worker:
        started(one)
        worker.stop()
        handed_back(worker, one, queued)


class Slow(DatabaseDriver):
    """Hands back only after the bodies that were told to stop have ended and tried to settle."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended

    def nack(self, nacks: Sequence[Nack]) -> list[bool]:
        if nacks and nacks[0].kind == "hand-back":
            assert self._ended.wait(30)
        return super().nack(nacks)


def test_the_end_of_a_body_that_was_told_to_stop_does_not_come_before_the_hand_back(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "100ms"}
    one, out = Body(), threading.Event()
    monkeypatch.setattr(loop, "get_driver", lambda: Slow(out))

    class Watched(loop.Inflight):
        def remove(self, active: Any) -> None:
            super().remove(active)
            out.set()

    monkeypatch.setattr(loop, "Inflight", Watched)

    queued = declare(failing_when_told(one), attempts=1).enqueue(1)
    with working(concurrency=1) as worker:
        started(one)
        worker.stop()
        handed_back(worker, one, queued)


def test_a_job_whose_body_has_ended_is_not_handed_back(body: Body, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "100ms"}

    def unlucky(run: Run) -> str:
        body.started.release()
        connection.execute_wrappers.append(Failing(2))  # its ack is written late, after the drain's time
        return "worked"

    queued = declare(unlucky).enqueue(1)
    body.let_go.set()
    with working(concurrency=1) as worker:
        started(body)
        worker.stop()
        assert worker.ended() is Ending.DRAINED

    assert (row(queued).state, row(queued).result, row(queued).attempt) == ("done", "worked", 1)


def test_a_second_signal_ends_the_worker_at_once_and_leaves_the_job_to_the_sweep(body: Body, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "1h"}
    queued = declare(body.wait).enqueue(1)
    with working(concurrency=1) as worker:
        started(body)
        worker.stop()
        worker.stop()
        assert worker.ended() is Ending.AT_ONCE

    assert (row(queued).state, row(queued).attempt) == ("running", 1)


class Mute(DatabaseDriver):
    """Cannot hand back the first `times` times."""

    def __init__(self, times: int) -> None:
        self._left = times

    def nack(self, nacks: Sequence[Nack]) -> list[bool]:
        if self._left and nacks and nacks[0].kind == "hand-back":
            self._left -= 1
            raise OperationalError("the connection is gone")
        return super().nack(nacks)


@pytest.mark.parametrize(("times", "ended"), [(1, (Ending.HANDED_BACK, "ready")), (2, (Ending.AT_ONCE, "running"))])
def test_a_hand_back_is_tried_again_on_a_fresh_connection_and_its_failure_is_told(
    body: Body, settings: Any, monkeypatch: pytest.MonkeyPatch, times: int, ended: tuple[Ending, str]
) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "100ms"}
    monkeypatch.setattr(loop, "get_driver", lambda: Mute(times))
    queued = declare(body.wait).enqueue(1)
    with working(concurrency=1) as worker:
        started(body)
        worker.stop()
        assert (worker.ended(), row(queued).state) == ended


class Round(DatabaseDriver):
    """Keeps the answer of a claim that took something until it is let go."""

    def __init__(self) -> None:
        self.claimed = threading.Event()
        self.go = threading.Event()

    def claim(self, **asked: Any) -> list[ClaimedJob]:
        jobs = super().claim(**asked)
        if jobs:
            self.claimed.set()
            assert self.go.wait(30)
        return jobs


def test_a_worker_that_is_stopped_during_a_claim_runs_what_it_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Round()
    monkeypatch.setattr(loop, "get_driver", lambda: driver)
    ship = declare(lambda run: "worked")
    for n in range(4):
        ship.enqueue(n)
    with working(concurrency=2) as worker:
        assert driver.claimed.wait(30)
        worker.stop()
        driver.go.set()
        assert worker.ended() is Ending.DRAINED

    assert states() == {"done": 2, "ready": 2}


class Late(DatabaseDriver):
    """Keeps an ack on the wire until it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()

    def ack(self, acks: Sequence[Ack]) -> list[bool]:
        self.asked.set()
        assert self.go.wait(30)
        return super().ack(acks)


def test_the_drain_waits_for_settlements_that_are_under_way(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "50ms"}
    driver = Late()
    monkeypatch.setattr(loop, "get_driver", lambda: driver)
    queued = declare(lambda run: None).enqueue(1)
    with working(concurrency=1) as worker:
        assert driver.asked.wait(30)
        worker.stop()
        driver.go.set()
        assert worker.ended() is Ending.DRAINED

    assert row(queued).state == "done"


class Gone(DatabaseDriver):
    """A database that went away while a body ran."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def _check(self) -> None:
        if self._body.runs:
            raise OperationalError("the database is away")

    def ack(self, acks: Sequence[Ack]) -> list[bool]:
        self._check()
        return super().ack(acks)

    def nack(self, nacks: Sequence[Nack]) -> list[bool]:
        self._check()
        return super().nack(nacks)


@pytest.mark.parametrize("ends", [True, False])
def test_a_drain_while_the_database_is_away_ends_and_says_that_it_could_not_tell(
    body: Body, settings: Any, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(drain, "LAST_WORDS", 0.1)
    settings.ULTIMAT3_JOBS = {**JOBS, "DRAIN_TIMEOUT": "100ms", "LEASE": "600ms", "RENEWAL": "200ms"}
    monkeypatch.setattr(loop, "get_driver", lambda: Gone(body))
    queued = declare(body.wait).enqueue(1)
    with working(concurrency=1) as worker:
        started(body)
        worker.stop()
        if ends:
            body.let_go.set()
        assert worker.ended() is Ending.AT_ONCE

    assert (row(queued).state, row(queued).attempt) == ("running", 1)


def test_a_signal_that_does_not_end_a_wait_is_heard_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it comes just as the main thread begins to wait: its handler runs when the wait is over."""
    monkeypatch.setattr(drain, "LONGEST_DEAF", 0.01)
    declare(lambda run: None).enqueue(1)
    driver = DatabaseDriver()
    (claimed,) = driver.claim(worker="w", limit=1, lease=timedelta(seconds=30), queues=QueueSelection())
    inflight = Inflight()
    inflight.add(ActiveRun(claimed, confirmed_at=0.0))
    told = itertools.count()

    ending = drain.drain(
        driver, inflight, bell=queue.SimpleQueue(), at_once=lambda: next(told) > 2, timeout=timedelta(seconds=5)
    )

    assert ending is Ending.AT_ONCE
