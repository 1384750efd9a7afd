"""Leases are renewed together; a run whose lease is lost is told to stop, and no other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext

from tests.conftest import InThreads
from tests.processes import wait_for
from tests.working import Failing, age, row, working
from ultimat3_jobs import NO_TENANT, Run, job
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.records import Ack, Claim, QueueSelection, Renewal
from ultimat3_jobs.worker.claim import claim
from ultimat3_jobs.worker.heartbeat import Heartbeat
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic

pytestmark = pytest.mark.usefixtures("queue")

LEASE = timedelta(seconds=30)


def beating(inflight: Inflight, driver: DatabaseDriver | None = None) -> Heartbeat:
    """Return the heartbeat of these runs."""
    return Heartbeat(driver or get_driver(), inflight, lease=LEASE, renewal=timedelta(seconds=10))


def claimed(count: int, *, lease: timedelta = LEASE) -> tuple[Inflight, list[ActiveRun]]:
    """Queue jobs and claim them; return them as the runs of a process."""

    @job(name="t.beat", idempotency_key="{n}", tenant=NO_TENANT)
    def beat(run: Run, n: int) -> None: ...

    beat.enqueue_many([{"n": n} for n in range(count)])
    runs = claim(get_driver(), worker="w1", free=count, lease=lease, queues=QueueSelection(), lapsed=1)
    assert len(runs) == count
    inflight = Inflight()
    for one in runs:
        inflight.add(one)
    return inflight, runs


def lost(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Return the ids of the jobs that were reported as lost."""
    return [vars(r)["fields"]["job"] for r in caplog.records if r.message.startswith("jobs.lease.lost")]


def lease_end(one: ActiveRun) -> datetime:
    """Return when a run's lease ends."""
    moment = row(one.job.claim.id).visible_at
    assert moment is not None
    return moment


def test_one_beat_renews_every_lease_in_one_statement() -> None:
    inflight, runs = claimed(3)
    age(25, "visible_at")
    before = [lease_end(one) for one in runs]
    asked_at = monotonic()

    with CaptureQueriesContext(connection) as statements:
        beating(inflight).beat()

    assert len(statements) == 1
    assert all(lease_end(one) - end > timedelta(seconds=20) for one, end in zip(runs, before, strict=True))
    assert all(one.confirmed_at >= asked_at for one in runs)


def test_a_beat_without_runs_asks_nothing() -> None:
    with connection.execute_wrapper(Failing(1)):
        assert beating(Inflight()).beat() is False


@pytest.mark.parametrize(("lease", "renewal", "interval"), [(30, 10, 10), (30, 5, 5), (30, 30, 10), (3, 60, 1)])
def test_beats_come_at_least_three_times_a_lease(lease: int, renewal: int, interval: int) -> None:
    heartbeat = Heartbeat(get_driver(), Inflight(), lease=timedelta(seconds=lease), renewal=timedelta(seconds=renewal))

    assert heartbeat.interval == interval


def test_a_run_whose_job_was_swept_is_told_to_stop_once_and_its_neighbour_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inflight, (taken, kept) = claimed(2)
    age(60, "visible_at")
    get_driver().heartbeat([kept.job.claim], lease=LEASE)
    assert [swept.id for swept in get_driver().sweep(limit=10)] == [taken.job.claim.id]

    heartbeat = beating(inflight)
    heartbeat.beat()
    heartbeat.beat()

    assert taken.run.cancelled.is_set()
    assert not kept.run.cancelled.is_set()
    assert lost(caplog) == [taken.job.claim.id]


def test_a_run_whose_job_was_claimed_again_renews_nothing(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (old,) = claimed(1)
    age(60, "visible_at")
    get_driver().sweep(limit=10)
    (again,) = claim(get_driver(), worker="w2", free=1, lease=LEASE, queues=QueueSelection(), lapsed=1)
    before = lease_end(again)

    beating(inflight).beat()

    assert lost(caplog) == [old.job.claim.id]
    assert lease_end(again) == before


def test_a_lapsed_lease_that_nobody_took_is_renewed() -> None:
    inflight, (one,) = claimed(1)
    age(60, "visible_at")

    beating(inflight).beat()

    assert get_driver().sweep(limit=10) == []
    assert not one.run.cancelled.is_set()


class Held(DatabaseDriver):
    """Keeps the answer of a heartbeat until it is let go."""

    one_writer = False

    def __init__(self, *, one_writer: bool = False) -> None:
        self.one_writer = one_writer
        self.answered = threading.Event()
        self.go = threading.Event()

    def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewal]:
        answer = super().heartbeat(claims, lease=lease)
        self.answered.set()
        assert self.go.wait(30)
        return answer


def finish(inflight: Inflight, one: ActiveRun) -> None:
    """Do what a body's thread does when its body has ended, up to the moment before the run is counted out."""
    assert inflight.end(one)
    assert get_driver().ack([Ack(one.job.claim)]) == [True]


def test_a_run_that_ends_before_the_statement_is_never_lost(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (one,) = claimed(1)
    finish(inflight, one)

    beating(inflight).beat()

    assert lost(caplog) == []
    assert not one.run.cancelled.is_set()


@pytest.mark.parametrize("counted_out", [True, False])
def test_a_run_that_ends_while_the_answer_is_on_the_wire_is_never_lost(
    counted_out: bool, in_threads: InThreads, caplog: pytest.LogCaptureFixture
) -> None:
    inflight, (one,) = claimed(1)
    # Another claim owns the job by then: the answer is that it is lost.
    late = Claim(one.job.claim.id, one.job.claim.id)
    one.job = type(one.job)(**{n: getattr(one.job, n) for n in one.job.__struct_fields__} | {"claim": late})
    inflight.add(one)
    driver = Held()

    def end() -> None:
        assert driver.answered.wait(30)
        assert inflight.end(one)
        if counted_out:
            inflight.remove(one)
        driver.go.set()

    in_threads(lambda: beating(inflight, driver).beat(), end)

    assert late.id not in lost(caplog)
    assert not one.run.cancelled.is_set()


def test_the_leases_of_runs_that_are_being_settled_are_renewed_too() -> None:
    inflight, (one,) = claimed(1)
    assert inflight.end(one)
    age(60, "visible_at")

    beating(inflight).beat()

    assert get_driver().sweep(limit=10) == []


def test_a_beat_that_fails_is_a_warning_and_the_next_one_is_right(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (one,) = claimed(1)
    heartbeat = beating(inflight)

    with connection.execute_wrapper(Failing(1)):
        heartbeat.beat()
    heartbeat.watch()

    assert lost(caplog) == []
    (record,) = [r for r in caplog.records if r.message.startswith("jobs.heartbeat.failed")]
    assert record.levelno == logging.WARNING
    heartbeat.beat()
    assert not one.run.cancelled.is_set()


def test_a_run_for_which_no_beat_lands_for_the_length_of_the_lease_is_told_to_stop_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inflight, (silent, fresh) = claimed(2)
    silent.confirmed_at -= LEASE.total_seconds() + 1
    heartbeat = beating(inflight)

    heartbeat.watch()
    heartbeat.watch()

    assert silent.run.cancelled.is_set()
    assert not fresh.run.cancelled.is_set()
    assert lost(caplog) == [silent.job.claim.id]


def test_a_run_that_is_over_is_not_lost_by_silence(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (one,) = claimed(1)
    one.confirmed_at -= 3_600
    inflight.end(one)

    beating(inflight).watch()

    assert lost(caplog) == []


@contextmanager
def queue_locked() -> Iterator[None]:
    """Let no statement write to the queue for the length of the block."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE x_jobs IN EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("one_writer", [False, True])
def test_a_beat_that_hangs_is_silence_unless_all_writers_wait_with_it(
    one_writer: bool, in_threads: InThreads, caplog: pytest.LogCaptureFixture
) -> None:
    inflight, (one,) = claimed(1)
    driver = Held(one_writer=one_writer)
    heartbeat = beating(inflight, driver)
    one.confirmed_at -= 3_600

    def look() -> None:
        assert driver.answered.wait(30)
        heartbeat.watch()
        driver.go.set()

    in_threads(heartbeat.beat, look)

    assert one.run.cancelled.is_set() is not one_writer
    assert one.confirmed_at > monotonic() - 60
    heartbeat.watch()
    assert one.run.cancelled.is_set() is not one_writer


@pytest.mark.postgresql_only(reason="on SQLite all writers wait with the beat, and nobody can take the job")
def test_a_run_is_told_to_stop_while_a_beat_hangs(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "LEASE": "600ms", "RENEWAL": "200ms"}
    started, let_go = threading.Event(), threading.Event()
    runs: list[Run] = []

    @job(name="t.long", idempotency_key="key", tenant=NO_TENANT)
    def long(run: Run) -> None:
        runs.append(run)
        started.set()
        assert let_go.wait(30)

    long.enqueue()
    with working(concurrency=1):
        assert started.wait(30)
        try:
            with queue_locked():
                assert runs[0].cancelled.wait(30)
        finally:
            let_go.set()


def test_a_healthy_worker_keeps_a_job_that_takes_longer_than_its_lease(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "LEASE": "1500ms", "RENEWAL": "1h"}
    let_go = threading.Event()
    attempts = []

    @job(name="t.long", idempotency_key="key", tenant=NO_TENANT)
    def long(run: Run) -> None:
        attempts.append(run.attempt)
        assert let_go.wait(30)

    queued = long.enqueue()
    with working(concurrency=2), working(concurrency=2):
        first = wait_for(lambda: row(queued).visible_at, "the job is claimed")
        wait_for(lambda: (row(queued).visible_at or first) - first > timedelta(seconds=2), "its lease is renewed")
        let_go.set()
        wait_for(lambda: row(queued).state == "done", "it is done")

    assert attempts == [1]
    assert row(queued).lapses == 0
    assert lost(caplog) == []


@pytest.mark.postgresql_only(reason="SQLite locks the whole database, not a row")
def test_a_row_that_is_locked_is_left_for_the_next_beat_and_is_not_lost(
    new_connection: Callable[[], BaseDatabaseWrapper],
) -> None:
    inflight, (locked, free) = claimed(2)
    age(25, "visible_at")
    before = lease_end(locked)
    other = new_connection()
    other.set_autocommit(False)
    with other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM x_jobs WHERE id = %s FOR UPDATE", [locked.job.claim.id])
    locked.confirmed_at -= 3_600

    heartbeat = beating(inflight)
    heartbeat.beat()
    heartbeat.watch()

    assert lease_end(locked) == before
    assert lease_end(free) - before > timedelta(seconds=20)
    assert not locked.run.cancelled.is_set()
    other.rollback()
    heartbeat.beat()
    assert lease_end(locked) - before > timedelta(seconds=20)
