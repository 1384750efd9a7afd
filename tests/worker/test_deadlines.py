"""Deadlines: a body is told first and given up after; its slot goes on, and it can end its job no more."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.db import connection, connections, transaction

from tests.app.models import Effect
from tests.processes import TIMEOUT, wait_for
from tests.worker.test_heartbeat import claimed
from tests.working import Working, declare, history, row, run_due, states, working
from ultimat3_jobs import NO_TENANT, AsyncRun, Job, Retry, Run, job
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import JobTimeout
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.records import CancelVerdict
from ultimat3_jobs.worker.deadlines import Deadlines
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight
from ultimat3_jobs.worker.loop import Worker, WorkerOptions

pytestmark = pytest.mark.usefixtures("queue")

SOON = "50ms"
NEVER = "1h"
ONCE = Retry(attempts=1)
AGAIN = Retry(attempts=2, delay="1h", jitter=False)


@pytest.fixture(autouse=True)
def _quick(settings: Any) -> None:
    """Look for work often, and give a body up soon."""
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "CANCEL_GRACE": SOON}


@pytest.fixture
def _patient(settings: Any) -> None:
    """Never give a body up."""
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "CANCEL_GRACE": NEVER}


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the fields of the events of one name."""
    return [vars(one)["fields"] for one in caplog.records if getattr(one, "event", "") == event]


class Stubborn:
    """A body that does not stop before the test lets it go. Each start is noted."""

    def __init__(self) -> None:
        self.started: list[Run] = []
        self.begun, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()

    def body(self, run: Run, n: int) -> str:
        """Wait, whatever the run says."""
        self.started.append(run)
        self.begun.set()
        try:
            assert self.go.wait(TIMEOUT)
            self.after(run)
        finally:
            self.ended.set()
        return "too late"

    def after(self, run: Run) -> None:
        """Do what the body does past its deadline."""

    @contextmanager
    def let_go(self) -> Iterator[None]:
        """Let the body end with the block, whatever the test found."""
        try:
            yield
        finally:
            self.go.set()


def declare_async(work: Callable[[AsyncRun], Any], **options: Any) -> Job[..., Any]:
    """Declare an async job of one number."""

    async def body(run: AsyncRun, n: int) -> Any:
        return await work(run)

    return job(**{"name": "t.job", "idempotency_key": "{n}", "tenant": NO_TENANT, **options})(body)


def raising(error: BaseException) -> Callable[[Run, int], NoReturn]:
    """Return a body that raises once it is told to stop."""

    def body(run: Run, n: int) -> NoReturn:
        assert run.cancelled.wait(TIMEOUT)
        raise error

    return body


@pytest.mark.usefixtures("_patient")
def test_a_body_that_stops_when_it_is_told_to_has_failed_by_its_timeout_and_is_tried_again() -> None:
    def body(run: Run, n: int) -> None:
        assert run.cancelled.wait(TIMEOUT)
        run.check_cancelled()

    queued = declare(body, timeout=SOON, retry=AGAIN).enqueue(1)
    run_due(concurrency=1)

    job_row = row(queued)
    assert (job_row.state, job_row.stop, job_row.attempt) == ("delayed", "", 1)
    assert job_row.error_class == "ultimat3_jobs.errors.JobTimeout"
    assert "X_JOB_TIMEOUT: an attempt of t.job took longer than its timeout=50ms" in job_row.last_error
    assert 'fix: timeout="100ms"' in job_row.last_error
    assert job_row.last_error.endswith("verdict: retry in 1h: attempt 1 of 2 failed")
    (kept,) = history(queued)
    assert "ultimat3_jobs.control.Aborted" in kept.traceback
    assert "in body" in kept.traceback, "where it was interrupted"


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize(
    "error",
    [SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), ValueError("x")],
    ids=lambda error: type(error).__name__,
)
def test_fault_5_whatever_a_body_raises_after_its_deadline_is_its_timeout(error: BaseException) -> None:
    work = declare(raising(error), timeout=SOON, retry=ONCE)
    first, second = work.enqueue(1), work.enqueue(2)
    run_due(concurrency=1)

    for queued in (first, second):
        job_row = row(queued)
        assert (job_row.state, job_row.stop) == ("dead", "timeout")
        assert job_row.error_class == "ultimat3_jobs.errors.JobTimeout"
        assert type(error).__name__ in job_row.last_error
        assert job_row.last_error.endswith("verdict: dead (timeout): attempt 1 of 1 was the last, and ran out of time")


def test_what_a_body_raises_before_its_deadline_is_what_it_failed_with() -> None:
    def body(run: Run, n: int) -> NoReturn:
        raise ValueError("by itself")

    queued = declare(body, timeout=NEVER, step_timeout=NEVER, retry=ONCE).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).error_class, row(queued).stop) == ("ValueError", "attempts-exhausted")


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("atomic", [False, True])
def test_a_body_that_returns_after_its_deadline_and_before_it_is_given_up_is_done(atomic: bool) -> None:
    def body(run: Run, n: int) -> str:
        assert run.cancelled.wait(TIMEOUT)
        Effect.objects.create(label="late")
        return "finished"

    queued = declare(body, timeout=SOON, retry=ONCE, atomic=atomic).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).result) == ("done", "finished")
    assert Effect.objects.count() == 1


@pytest.mark.usefixtures("_patient")
def test_a_policy_may_call_a_timeout_terminal() -> None:
    work = declare(raising(ValueError()), timeout=SOON, retry=Retry(attempts=5, terminal=(JobTimeout,)))
    queued = work.enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).stop, row(queued).attempt) == ("dead", "terminal", 1)


@pytest.mark.usefixtures("_patient")
def test_an_async_body_is_cancelled_at_its_deadline() -> None:
    async def work(run: AsyncRun) -> None:
        await asyncio.sleep(TIMEOUT)

    queued = declare_async(work, timeout=SOON, retry=ONCE).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).stop) == ("dead", "timeout")
    assert "CancelledError" in row(queued).last_error


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_that_takes_too_long_ends_its_attempt_and_is_named(is_async: bool) -> None:
    def plain(run: Run, n: int) -> None:
        with run.step_deadline("short"):
            pass
        with run.step_deadline("render"):
            assert run.cancelled.wait(TIMEOUT)
        run.check_cancelled()

    async def work(run: AsyncRun) -> None:
        with run.step_deadline("render"):
            await asyncio.sleep(TIMEOUT)

    options = {"step_timeout": SOON, "timeout": NEVER, "retry": ONCE}
    queued = (declare_async(work, **options) if is_async else declare(plain, **options)).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).stop) == ("dead", "timeout")
    assert "the step 'render' of t.job took longer than step_timeout=50ms" in row(queued).last_error


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_recorded_step_is_bounded_and_one_that_returns_in_time_is_kept(is_async: bool, atomic: bool) -> None:
    """It returns within the grace, and its record is there; the next step begins no more."""
    runs: list[Run | AsyncRun] = []

    def slow() -> int:
        assert runs[-1].cancelled.wait(TIMEOUT)
        return 1

    def never() -> int:
        raise AssertionError("the run was told to stop")

    def plain(run: Run, n: int) -> None:
        runs.append(run)
        run.step("slow", slow, atomic=atomic)
        run.step("next", never, atomic=atomic)

    async def work(run: AsyncRun) -> None:
        runs.append(run)
        await run.step("slow", slow, atomic=atomic)
        await run.step("next", never, atomic=atomic)

    options = {"step_timeout": SOON, "timeout": NEVER, "retry": ONCE}
    queued = (declare_async(work, **options) if is_async else declare(plain, **options)).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).stop) == ("dead", "timeout")
    assert "the step 'slow' of t.job took longer than step_timeout=50ms" in row(queued).last_error
    if not is_async:  # a coroutine is cancelled wherever it waits, while its step is being recorded perhaps
        assert [(step.name, step.output) for step in JobStep.objects.all()] == [("slow", 1)]


def test_a_step_of_an_abandoned_body_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn()
    ended: list[BaseException] = []

    def after(run: Run) -> None:
        try:
            run.step("late", lambda: Effect.objects.create(label="late").pk, atomic=True)
        except BaseException as error:
            ended.append(error)
            raise

    stubborn.after = after  # type: ignore[method-assign]

    def body(run: Run, n: int) -> None:
        run.step("stuck", lambda: stubborn.go.wait(TIMEOUT))
        after(run)

    queued = declare(body, step_timeout=SOON, retry=ONCE).enqueue(1)
    with stubborn.let_go(), working(concurrency=1) as worker:
        wait_for(lambda: row(queued).state == "dead", "it is given up")
        stubborn.go.set()
        wait_for(lambda: not worker.worker._bodies.abandoned, "its thread has ended")

    assert Effect.objects.count() == JobStep.objects.count() == 0
    assert "the step 'stuck' of t.job" in logged(caplog, "jobs.timeout.abandoned")[0]["why"]
    assert (row(queued).stop, len(history(queued))) == ("timeout", 1)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("before", [True, False])
def test_a_run_that_asked_to_be_suspended_before_its_deadline_is_and_after_it_is_refused(before: bool) -> None:
    def body(run: Run, n: int) -> None:
        if not before:
            assert run.cancelled.wait(TIMEOUT)
        try:
            run.snooze("1h")
        finally:
            assert run.cancelled.wait(TIMEOUT)

    queued = declare(body, timeout=SOON, retry=ONCE).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).stop) == (("suspended", "") if before else ("dead", "timeout"))


def test_the_time_between_steps_and_that_of_other_steps_does_not_count() -> None:
    """The second step of the first job passes its limit; by then the first step and the other job have not."""
    passed: list[bool] = []

    def body(run: Run, n: int) -> None:
        if n == 2:
            with run.step_deadline("a"):
                assert run.cancelled.wait(TIMEOUT)
            return
        with run.step_deadline("a"):
            pass
        other.enqueue(2)
        wait_for(lambda: states().get("done") == 1, "the other job, which began later, has passed its limit")
        passed.append(run.cancelled.is_set())

    other = declare(body, step_timeout=SOON)
    queued = other.enqueue(1)
    with working(concurrency=2):
        wait_for(lambda: row(queued).state == "done", "both are done")

    assert passed == [False]


def test_a_step_deadline_without_a_limit_or_a_worker_does_nothing() -> None:
    def body(run: Run, n: int) -> str:
        with run.step_deadline("a"), run.step_deadline("b"):
            return "done"

    queued = declare(body).enqueue(1)
    run_due(concurrency=1)

    assert row(queued).result == "done"


def test_the_time_in_the_queue_does_not_count() -> None:
    """The second job waits for the only thread for longer than its limit."""
    one, told = Stubborn(), threading.Event()

    def body(run: Run, n: int) -> str | None:
        if n == 1:
            assert run.cancelled.wait(TIMEOUT)
            return None
        told.set()
        return "in time" if not run.cancelled.is_set() else "too late"

    work = declare(body, timeout=SOON)
    first, second = work.enqueue(1), work.enqueue(2)
    with one.let_go():
        run_due(concurrency=1)

    assert (row(first).state, row(second).result) == ("done", "in time")


def test_fault_8_a_body_that_outlives_its_timeout_is_named_its_slot_goes_on_and_it_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The retry overlaps with it, and ends the job while the first body still runs."""
    stubborn = Stubborn()

    def body(run: Run, n: int) -> str:
        if run.attempt == 1:
            return stubborn.body(run, n)
        return "by the second"

    queued = declare(body, timeout=SOON, retry=Retry(attempts=2, delay=0)).enqueue(1)
    with stubborn.let_go(), working(concurrency=1):
        wait_for(lambda: row(queued).state == "done", "the retry has ended it, beside the first body")
        assert not stubborn.ended.is_set()
        before = row(queued)
        threads = threading.active_count()
        stubborn.go.set()
        assert stubborn.ended.wait(TIMEOUT)
        wait_for(lambda: threading.active_count() < threads, "its thread ends with it")

    assert vars(row(queued)) | {"_state": None} == vars(before) | {"_state": None}
    assert (before.result, before.attempt) == ("by the second", 2)
    (kept,) = history(queued)
    assert kept.error_class == "ultimat3_jobs.errors.JobTimeout"
    assert "in body" in kept.traceback, "where it was when it was given up"
    (abandoned,) = logged(caplog, "jobs.timeout.abandoned")
    assert (abandoned["job"], abandoned["name"], abandoned["attempt"]) == (queued.id, "t.job", 1)
    assert "in body" in abandoned["stack"]
    assert [one.levelno for one in caplog.records if vars(one)["event"] == "jobs.timeout.abandoned"] == [logging.ERROR]
    assert logged(caplog, "jobs.lease.lost") == []


def test_an_async_body_that_ignores_its_cancellation_is_given_up_too(caplog: pytest.LogCaptureFixture) -> None:
    go = threading.Event()

    async def work(run: AsyncRun) -> None:
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    queued = declare_async(work, timeout=SOON, retry=ONCE).enqueue(1)
    try:
        with working(concurrency=1) as worker:
            wait_for(lambda: row(queued).state == "dead", "it is given up")
            worker.stop()
            assert worker.ended() is Ending.DRAINED, "and is not waited for"
    finally:
        go.set()

    assert row(queued).stop == "timeout"
    assert "in work" in logged(caplog, "jobs.timeout.abandoned")[0]["stack"]


def test_an_atomic_body_that_is_given_up_commits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn()

    def body(run: Run, n: int) -> str:
        Effect.objects.create(label="atomic")
        return stubborn.body(run, n)

    queued = declare(body, timeout=SOON, retry=ONCE, atomic=True).enqueue(1)
    with stubborn.let_go(), working(concurrency=1):
        # On SQLite nobody can write before the body lets go of its lock: not even that it failed.
        wait_for(lambda: logged(caplog, "jobs.timeout.abandoned"), "it is given up")
        stubborn.go.set()
        assert stubborn.ended.wait(TIMEOUT)
        wait_for(lambda: row(queued).state == "dead", "its failure is stored")

    assert (row(queued).stop, row(queued).result) == ("timeout", None)
    assert Effect.objects.count() == 0


def test_the_connections_of_an_abandoned_thread_are_closed() -> None:
    stubborn, wrappers = Stubborn(), []

    def after(run: Run) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        wrappers.append(connections["default"])

    stubborn.after = after  # type: ignore[method-assign]
    queued = declare(stubborn.body, timeout=SOON, retry=ONCE).enqueue(1)
    with stubborn.let_go(), working(concurrency=1):
        wait_for(lambda: row(queued).state == "dead", "it is given up")
        stubborn.go.set()
        wait_for(lambda: wrappers and wrappers[0].connection is None, "its connection is closed")


def test_each_abandoned_body_costs_no_slot_until_there_are_as_many_as_slots(caplog: pytest.LogCaptureFixture) -> None:
    """Two slots, three stubborn bodies: one slot is left, none after the fourth, and they come back with the bodies."""
    stubborn = [Stubborn() for _ in range(4)]
    work = declare(lambda run, n: stubborn[n].body(run, n), timeout=SOON, retry=ONCE)
    quick = declare(lambda run, n: n, name="t.quick")

    def give_up(numbers: range) -> None:
        work.enqueue_many([{"n": n} for n in numbers])
        wait_for(lambda: states().get("dead") == numbers.stop, "they are given up")

    try:
        with working(concurrency=2) as worker:
            bodies = worker.worker._bodies
            give_up(range(2))
            assert (bodies.slots, bodies.abandoned) == (2, 2)
            assert logged(caplog, "jobs.worker.slot-lost") == []
            give_up(range(2, 3))
            assert bodies.slots == 1
            queued = quick.enqueue(1)
            wait_for(lambda: row(queued).state == "done", "the slot that is left works")
            give_up(range(3, 4))
            assert [lost["slots"] for lost in logged(caplog, "jobs.worker.slot-lost")] == [1, 0]
            queued = quick.enqueue(2)
            stubborn[0].go.set()
            wait_for(lambda: row(queued).state == "done", "a body's end gives a slot back")
            stubborn[1].go.set()
            wait_for(lambda: (bodies.slots, bodies.abandoned) == (2, 2), "and another's the other")
    finally:
        for one in stubborn:
            one.go.set()


def test_fewer_threads_than_runs_are_no_room_for_another() -> None:
    """As for a moment where an abandoned run is being settled whose thread could not be replaced."""
    _, (active,) = claimed(1)
    worker = Worker(WorkerOptions(concurrency=1))
    worker._inflight.add(active)

    assert worker._bodies.slots == 0
    assert worker._free() == 0


def test_a_burst_ends_where_no_thread_is_left() -> None:
    stubborn = [Stubborn() for _ in range(2)]
    work = declare(lambda run, n: stubborn[n].body(run, n), timeout=SOON, retry=ONCE)
    work.enqueue_many([{"n": n} for n in range(2)])
    queued = declare(lambda run, n: n, name="t.quick", priority=-1).enqueue(1)
    try:
        assert run_due(concurrency=1) is Ending.DRAINED
    finally:
        for one in stubborn:
            one.go.set()

    assert states() == {"dead": 2, "ready": 1}
    assert row(queued).attempt == 0


def test_a_drain_does_not_wait_for_abandoned_threads() -> None:
    stubborn = Stubborn()
    queued = declare(stubborn.body, timeout=SOON, retry=ONCE).enqueue(1)
    with stubborn.let_go():
        with working(concurrency=1) as worker:
            wait_for(lambda: row(queued).state == "dead", "it is given up")
            worker.stop()
            assert worker.ended() is Ending.DRAINED
        assert not stubborn.ended.is_set()


def test_a_drain_waits_until_an_abandoned_job_is_settled(settings: Any) -> None:
    """The body ends while its failure is being written, which another transaction holds up."""
    settings.ULTIMAT3_JOBS |= {"DRAIN_TIMEOUT": "20s"}
    stubborn = Stubborn()
    queued = declare(stubborn.body, timeout=SOON, retry=ONCE).enqueue(1)
    with stubborn.let_go():
        worker = Working(Worker(WorkerOptions(concurrency=1)))
        assert stubborn.begun.wait(TIMEOUT)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE x_jobs SET priority = priority")
            wait_for(lambda: worker.worker._bodies.abandoned, "it is given up")
            stubborn.go.set()
            wait_for(lambda: not worker.worker._bodies.abandoned, "its thread has come back")
            assert len(worker.worker._inflight) == 1
            worker.stop()
        assert worker.ended() is Ending.DRAINED

    assert (row(queued).state, row(queued).stop) == ("dead", "timeout")


def watched(given_up: list[ActiveRun]) -> tuple[Inflight, Deadlines, ActiveRun]:
    """Return a watch without a worker, and one run."""
    inflight, (active,) = claimed(1)
    inflight.add(active)
    watch = Deadlines(inflight, grace=timedelta(0), abandon=lambda one, _: given_up.append(one))
    return inflight, watch, active


def definition_of(**options: Any) -> JobDefinition:
    """Return the declaration of a job."""
    return declare(lambda run, n: None, **options).definition


def test_what_has_ended_or_was_handed_back_is_not_given_up() -> None:
    given_up: list[ActiveRun] = []
    inflight, watch, active = watched(given_up)
    with watch.watch(active, definition_of(timeout=SOON)) as one:
        watch.start()
        assert inflight.end(active)
        wait_for(lambda: one.ended, "the watch is done with it")
        watch.stop()

    assert active.run.cancelled.is_set()
    assert given_up == []
    assert not active.abandoned


def test_whatever_goes_wrong_about_one_run_the_others_are_watched(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (broken, active) = claimed(2)
    watch = Deadlines(inflight, grace=timedelta(hours=1), abandon=lambda one, error: None)
    broken.run.cancelled.call(lambda: 1 // 0)
    definition = definition_of(timeout=SOON)
    watch.start()
    try:
        with watch.watch(broken, definition):
            assert broken.run.cancelled.wait(TIMEOUT)
            with watch.watch(active, definition):
                assert active.run.cancelled.wait(TIMEOUT)
    finally:
        watch.stop()

    assert [failed["error"] for failed in logged(caplog, "jobs.timeout.failed")] == ["ZeroDivisionError"]


def test_a_cancelled_job_whose_body_is_given_up_has_not_failed(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.ULTIMAT3_JOBS |= {"RENEWAL": "20ms"}
    caplog.set_level(logging.INFO, "ultimat3_jobs")
    stubborn = Stubborn()
    queued = declare(stubborn.body, timeout="300ms", retry=ONCE).enqueue(1)
    with stubborn.let_go(), working(concurrency=1):
        assert stubborn.begun.wait(TIMEOUT)
        assert get_driver().cancel([queued.id]) == [CancelVerdict.CANCELLED]
        wait_for(lambda: logged(caplog, "jobs.job.given-up"), "its thread is given up")

    assert (row(queued).state, row(queued).last_error) == ("cancelled", "")
    assert [kept.kind for kept in history(queued)] == ["cancel"]
    assert len(logged(caplog, "jobs.timeout.abandoned")) == len(logged(caplog, "jobs.job.cancelled")) == 1
    assert logged(caplog, "jobs.lease.lost") == []
