"""A person cancels a job: whatever its worker is doing, it cannot undo that, and calls it neither failed nor lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.processes import TIMEOUT, wait_for
from tests.worker.test_deadlines import declare_async, logged
from tests.worker.test_heartbeat import beating, claimed, lost
from tests.worker.test_settle import FAILURE
from tests.working import age, declare, history, row, run_due, states, working
from ultimat3_jobs import Aborted, AsyncRun, EnqueueResult, Retry, Run
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.records import Ack, CancelVerdict, Nack, QueueSelection
from ultimat3_jobs.states import Stop
from ultimat3_jobs.worker import loop
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight
from ultimat3_jobs.worker.loop import Worker, WorkerOptions
from ultimat3_jobs.worker.outcome import Buried, GivenUp, Outcome, Parked, Retrying, RolledBack, Succeeded
from ultimat3_jobs.worker.settle import settle, settle_once

pytestmark = pytest.mark.usefixtures("queue")

BESIDE_AN_ATOMIC_BODY = pytest.mark.postgresql_only(reason="on SQLite nobody writes while an atomic body works")
CANCELLED, TOO_LATE = CancelVerdict.CANCELLED, CancelVerdict.NOT_CANCELLABLE


@pytest.fixture(autouse=True)
def _quick(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Renew often, and see all that is logged."""
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "RENEWAL": "20ms"}
    caplog.set_level(logging.DEBUG, "ultimat3_jobs")


def cancel(queued: EnqueueResult) -> None:
    """Cancel a job twice: once is enough, and the second time says so."""
    assert get_driver().cancel([queued.id, queued.id], by="ann", reason="a mistake") == [CANCELLED, TOO_LATE]
    assert get_driver().cancel([queued.id]) == [TOO_LATE]


def check_cancelled_alone(queued: EnqueueResult, caplog: pytest.LogCaptureFixture) -> None:
    """Expect a cancelled job, and that nothing else was made of it or said about it."""
    job_row = row(queued)
    assert (job_row.state, job_row.stop) == ("cancelled", "cancelled")
    assert (job_row.result, job_row.last_error, job_row.cancel_requested_by) == (None, "", "ann")
    assert [kept.kind for kept in history(queued)] == ["cancel"]
    events = [vars(one)["event"] for one in caplog.records if vars(one)["fields"].get("job") == queued.id]
    assert events.count("jobs.job.cancelled") == 1
    assert set(events) <= {"jobs.job.cancelled", "jobs.job.given-up"}
    assert [one.levelno for one in caplog.records if vars(one)["event"] == "jobs.job.cancelled"] == [logging.INFO]


@pytest.mark.parametrize("state", ["ready", "delayed", "suspended"])
def test_a_job_that_waits_never_starts(state: str) -> None:
    started: list[int] = []
    work = declare(lambda run, n: started.append(n))
    queued = work.using(run_after="1h" if state == "delayed" else 0).enqueue(1)
    if state == "suspended":
        (one,) = get_driver().claim(worker="w", limit=1, lease=timedelta(seconds=30), queues=QueueSelection())
        assert get_driver().nack([Nack.park(one.claim, delay=timedelta(hours=1), reason="asleep")]) == [True]
    assert row(queued).state == state

    cancel(queued)
    age(7_200, "run_at")
    run_due(concurrency=1)

    assert started == []
    assert states() == {"cancelled": 1}


def returning(run: Run) -> str:
    """End well."""
    return "ended well"


def raising(run: Run) -> None:
    """Fail."""
    raise ValueError("by itself")


def exiting(run: Run) -> None:
    """Fail harder."""
    raise SystemExit(1)


@pytest.mark.parametrize("after", [Run.check_cancelled, returning, raising, exiting], ids=lambda after: after.__name__)
@pytest.mark.parametrize("atomic", [False, pytest.param(True, marks=BESIDE_AN_ATOMIC_BODY)])
def test_a_running_job_is_told_and_whatever_it_makes_of_it_is_dropped(
    after: Callable[[Run], object], atomic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    def body(run: Run, n: int) -> object:
        begun.set()
        assert run.cancelled.wait(TIMEOUT)
        return after(run)

    queued = declare(body, atomic=atomic).enqueue(1)
    with working(concurrency=1):
        assert begun.wait(TIMEOUT)
        cancel(queued)
        wait_for(lambda: logged(caplog, "jobs.job.given-up"), "its body has ended")

    check_cancelled_alone(queued, caplog)


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_async_body_is_cancelled_and_may_do_with_it_what_it_likes(
    stubborn: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()
    caught: list[str] = []

    async def work(run: AsyncRun) -> str:
        begun.set()
        try:
            await asyncio.sleep(TIMEOUT)
        except asyncio.CancelledError:
            caught.append("cancelled")
            if not stubborn:
                raise
        with pytest.raises(Aborted):
            await run.check_cancelled()
        return "ended well"

    queued = declare_async(work).enqueue(1)
    with working(concurrency=1):
        assert begun.wait(TIMEOUT)
        cancel(queued)
        wait_for(lambda: logged(caplog, "jobs.job.given-up"), "its body has ended")

    check_cancelled_alone(queued, caplog)
    assert caught == ["cancelled"]


def test_a_job_that_is_cancelled_before_its_body_begins_never_starts(caplog: pytest.LogCaptureFixture) -> None:
    started: list[int] = []
    queued = declare(lambda run, n: started.append(n)).enqueue(1)
    worker = Worker(WorkerOptions(concurrency=1))
    assert worker._claim(1) == 1
    cancel(queued)
    worker._heartbeat.beat()
    (active,) = worker._inflight.all()
    worker._attempt(active)

    assert started == []
    assert len(worker._inflight) == 0
    check_cancelled_alone(queued, caplog)


OUTCOMES = [
    Succeeded("1"),
    Retrying(FAILURE, timedelta(0)),
    Buried(FAILURE, Stop.TIMEOUT, dead_letter=True),
    Parked("why", timedelta(0)),
    RolledBack("its claim was gone"),
]


@pytest.mark.parametrize("write", [settle, settle_once], ids=lambda write: write.__name__)
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_a_settlement_that_comes_after_the_cancel_says_that_and_of_no_lost_lease(
    outcome: Outcome, write: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, (one,) = claimed(1)
    assert get_driver().cancel([one.job.claim.id]) == [CANCELLED]
    options = {"patience": timedelta(seconds=1)} if write is settle else {}

    assert not write(get_driver(), one.job, outcome, **options)

    assert lost(caplog) == []
    assert len(logged(caplog, "jobs.job.cancelled")) == 1
    assert row(one.job.claim.id).state == "cancelled"


def test_of_a_run_that_was_given_up_nothing_is_written(caplog: pytest.LogCaptureFixture) -> None:
    _, (one,) = claimed(1)

    assert not settle(get_driver(), one.job, GivenUp("the fence was lost"), patience=timedelta(seconds=1))

    assert row(one.job.claim.id).state == "running"
    (told,) = logged(caplog, "jobs.job.given-up")
    assert (told["job"], told["why"]) == (one.job.claim.id, "the fence was lost")


def told(inflight: Inflight, one: ActiveRun) -> None:
    """Let the heartbeat look twice."""
    heartbeat = beating(inflight)
    heartbeat.beat()
    heartbeat.beat()
    one.confirmed_at -= 3_600
    heartbeat.watch()


def test_the_heartbeat_tells_a_cancelled_run_once_and_its_neighbour_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (cancelled, kept) = claimed(2)
    get_driver().cancel([cancelled.job.claim.id])

    told(inflight, cancelled)

    assert cancelled.run.cancelled.is_set()
    with pytest.raises(Aborted):
        cancelled.run.check_cancelled()
    assert not kept.run.cancelled.is_set()
    assert [one["job"] for one in logged(caplog, "jobs.job.cancelled")] == [cancelled.job.claim.id]
    assert lost(caplog) == []


def test_a_run_that_has_ended_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (one,) = claimed(1)
    get_driver().cancel([one.job.claim.id])
    assert inflight.end(one)

    told(inflight, one)

    assert not one.run.cancelled.is_set()
    assert logged(caplog, "jobs.job.cancelled") == []


class Overtaken(DatabaseDriver):
    """Has a person cancel each job after its body has ended and before that is settled, or right after."""

    def __init__(self, *, before: bool) -> None:
        self._before = before
        self.verdicts: list[CancelVerdict] = []

    def ack(self, acks: Sequence[Ack]) -> list[bool]:
        return self._settle(acks, super().ack)

    def nack(self, nacks: Sequence[Nack]) -> list[bool]:
        return self._settle(nacks, super().nack)

    def _settle(self, batch: Sequence[Any], settle: Callable[[Any], list[bool]]) -> list[bool]:
        landed = [] if self._before else settle(batch)
        self.verdicts += self.cancel([one.claim.id for one in batch], by="ann")
        return landed or settle(batch)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_cancel_that_races_with_the_end_of_its_job_has_one_winner(
    before: bool, fails: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Overtaken(before=before)
    monkeypatch.setattr(loop, "get_driver", lambda: driver)
    queued = declare(lambda run, n: 1 // n, retry=Retry(attempts=1)).enqueue(0 if fails else 1)
    run_due(concurrency=1)

    if before:
        assert driver.verdicts == [CANCELLED]
        check_cancelled_alone(queued, caplog)
    else:
        assert driver.verdicts == [TOO_LATE]
        assert row(queued).state == ("dead" if fails else "done")
        assert logged(caplog, "jobs.job.cancelled") == []
