"""Progress: told by bodies at any rate, written seldom, fenced, beside the body and never in its way."""

from __future__ import annotations

import asyncio
import http
import math
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext

from tests.app.models import Item
from tests.backfills.sweeping import declare as declare_backfill
from tests.processes import TIMEOUT, wait_for
from tests.worker.test_deadlines import SOON, Stubborn, declare_async
from tests.worker.test_heartbeat import claimed
from tests.working import Failing, age, declare, row, run_due, working
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.context import vitals_of
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.records import Progress, QueueSelection
from ultimat3_jobs.testing import drain
from ultimat3_jobs.vitals import Vitals
from ultimat3_jobs.worker import progress
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight
from ultimat3_jobs.worker.progress import ProgressWriter

pytestmark = pytest.mark.usefixtures("queue")


def stored(one: ActiveRun) -> Any:
    """Return the progress of a run's job."""
    return row(one.job.claim.id).progress


def step(inflight: Inflight, driver: DatabaseDriver | None = None) -> None:
    """Write once."""
    assert ProgressWriter(driver or get_driver(), inflight).step() is False


@pytest.mark.parametrize(
    ("done", "total", "kept"),
    [
        (0, None, {"done": 0, "total": None}),
        (3, 10, {"done": 3, "total": 10}),
        (0.5, 1.0, {"done": 0.5, "total": 1.0}),
        (12, 10, {"done": 12, "total": 10}),  # an estimate that was too low
        (2**63 - 1, 0, {"done": 2**63 - 1, "total": 0}),
    ],
)
def test_what_is_told_is_stored_as_it_is(done: float, total: float | None, kept: dict[str, Any]) -> None:
    inflight, (one,) = claimed(1)
    one.run.progress(done, total)

    step(inflight)

    assert stored(one) == kept


class Percent(float):
    """A float of its own kind, as numpy's is one."""


class Count(int):
    """An int of its own kind."""


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(("done", "kept"), [(Percent(2.5), 2.5), (Count(3), 3), (http.HTTPStatus.OK, 200)], ids=str)
def test_a_number_of_its_own_kind_is_stored_as_a_plain_one(done: float, kept: float, atomic: bool) -> None:
    def body(run: Run, n: int) -> None:
        run.progress(done, done)

    queued = declare(body, atomic=atomic).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).progress) == ("done", {"done": kept, "total": kept})


BAD = [-1, -0.1, math.nan, math.inf, -math.inf, 2**63, True, "5", Decimal(1)]


@pytest.mark.parametrize(
    ("done", "total"), [(None, 10), *((bad, 10) for bad in BAD), *((1, bad) for bad in BAD)], ids=repr
)
def test_what_is_no_number_from_0_up_is_refused_and_changes_nothing(done: Any, total: Any) -> None:
    vitals = Vitals()
    vitals.tell(1, 2)

    with pytest.raises(InputInvalid, match="which is no number from 0 up"):
        vitals.tell(done, total)

    assert vitals.progress == '{"done":1,"total":2}'


class Noting(DatabaseDriver):
    """Notes what is written by each statement."""

    def __init__(self) -> None:
        self.batches: list[list[Progress]] = []

    def progress(self, batch: Sequence[Progress]) -> list[bool]:
        self.batches.append(list(batch))
        return super().progress(batch)


def test_all_runs_are_written_in_one_statement_and_only_what_has_changed() -> None:
    inflight, runs = claimed(3)
    driver = Noting()
    writer = ProgressWriter(driver, inflight)
    for at, one in enumerate(runs):
        one.run.progress(at)

    with CaptureQueriesContext(connection) as statements:
        writer.step()
        writer.step()
    runs[0].run.progress(7)
    runs[0].run.progress(8)
    runs[1].run.progress(1)
    writer.step()

    assert len(statements) == 1
    assert [len(batch) for batch in driver.batches] == [3, 1]
    assert [stored(one)["done"] for one in runs] == [8, 1, 2]


def test_a_body_that_tells_nothing_costs_nothing() -> None:
    inflight, _ = claimed(1)

    with connection.execute_wrapper(Failing(1)):
        step(inflight)


@pytest.mark.parametrize("state", ["over", "lost", "cancelled"])
def test_what_a_run_tells_that_has_no_right_to_its_job_any_more_is_not_written(state: str) -> None:
    inflight, (one,) = claimed(1)
    one.run.progress(1)
    setattr(one, state, True)

    step(inflight)

    assert stored(one) is None


@pytest.mark.parametrize("again", [False, True])
def test_a_run_whose_job_was_taken_writes_nothing(again: bool) -> None:
    inflight, (one,) = claimed(1)
    age(60, "visible_at")
    get_driver().sweep(limit=10)
    if again:
        lease = timedelta(seconds=30)
        assert get_driver().claim(worker="w2", limit=1, lease=lease, queues=QueueSelection())
    one.run.progress(1)

    step(inflight)

    assert stored(one) is None


def test_what_could_not_be_written_is_written_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    inflight, (one,) = claimed(1)
    one.run.progress(1)

    with connection.execute_wrapper(Failing(1)):
        step(inflight)
    assert [vars(r)["event"] for r in caplog.records] == ["jobs.progress.failed"]
    step(inflight)

    assert stored(one) == {"done": 1, "total": None}


@pytest.mark.postgresql_only(reason="SQLite locks the whole database, not a row")
def test_a_row_that_is_locked_is_left_for_the_next_time_and_no_other_waits(
    new_connection: Callable[[], BaseDatabaseWrapper],
) -> None:
    inflight, (locked, free) = claimed(2)
    writer = ProgressWriter(get_driver(), inflight)
    other = new_connection()
    other.set_autocommit(False)
    with other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM x_jobs WHERE id = %s FOR UPDATE", [locked.job.claim.id])
    locked.run.progress(1)
    free.run.progress(2)

    writer.step()
    assert (stored(locked), stored(free)) == (None, {"done": 2, "total": None})
    other.rollback()
    writer.step()

    assert stored(locked) == {"done": 1, "total": None}


class TakingTurns(Noting):
    """Says of any database that its writers take turns."""

    one_writer = True  # type: ignore[assignment]


def test_where_writers_take_turns_progress_waits_for_no_atomic_body() -> None:
    inflight, (one, atomic) = claimed(2)
    driver = TakingTurns()
    one.run.progress(1)
    atomic.vitals.in_transaction = True

    step(inflight, driver)
    assert driver.batches == []
    atomic.vitals.in_transaction = False
    step(inflight, driver)

    assert stored(one) == {"done": 1, "total": None}


def test_what_holds_a_transaction_of_the_queue_is_seen_to_for_its_length() -> None:
    seen: dict[str, list[bool]] = {}

    def note(run: Run, what: str) -> None:
        seen.setdefault(what, []).append(vitals_of(run).in_transaction)

    def of_steps(run: Run, n: int) -> None:
        note(run, "body")
        run.step("plain", note, run, "plain step")
        run.step("atomic", note, run, "atomic step", atomic=True)
        note(run, "body")

    Item.objects.create(number=1)
    runs: list[Run] = []
    declare_backfill(lambda run, rows: (runs.append(run), note(run, "page")), Item).enqueue()
    declare_backfill(
        lambda run, rows: note(run, "page apart"), Item, name="t.apart", atomic=False, exclusive=False
    ).enqueue()
    declare(of_steps, name="t.steps").enqueue(1)
    declare(lambda run, n: note(run, "atomic body"), name="t.atomic", atomic=True).enqueue(1)
    run_due()

    assert seen == {
        "body": [False, False],
        "plain step": [False],
        "atomic step": [True],
        "atomic body": [True],
        "page": [True],
        "page apart": [True],
    }
    assert not vitals_of(runs[0]).in_transaction


@pytest.fixture
def _often(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write progress often."""
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "CANCEL_GRACE": SOON}
    monkeypatch.setattr("ultimat3_jobs.worker.loop.EVERY", 0.02)
    assert progress.EVERY == 1.0


@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize(
    "atomic", [False, pytest.param(True, marks=pytest.mark.postgresql_only(reason="on SQLite the body is the writer"))]
)
def test_progress_is_seen_while_the_body_works_and_leaves_its_connection_alone(atomic: bool) -> None:
    statements: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    seen = threading.Event()

    def body(run: Run, n: int) -> None:
        with connection.execute_wrapper(note):
            run.progress(1, 2)
            assert seen.wait(TIMEOUT)
            run.progress(2, 2)

    queued = declare(body, atomic=atomic).enqueue(1)
    with working(concurrency=1):
        try:
            wait_for(lambda: row(queued).progress == {"done": 1, "total": 2}, "it is seen from outside")
        finally:
            seen.set()
        wait_for(lambda: row(queued).state == "done", "it is done")

    assert row(queued).progress == {"done": 2, "total": 2}
    assert statements == []


def test_an_async_body_awaits_it() -> None:
    async def work(run: Any) -> None:
        await asyncio.gather(run.progress(1, 3), run.progress(2, 3))

    queued = declare_async(work).enqueue(1)
    run_due(concurrency=1)

    assert row(queued).progress == {"done": 2, "total": 3}


@pytest.mark.parametrize("atomic", [False, True])
def test_the_last_one_is_stored_with_the_end_and_kept_until_another_attempt_tells_something(atomic: bool) -> None:
    def body(run: Run, n: int) -> None:
        if run.attempt == 1:
            run.progress(5, 10)
            raise ValueError
        if run.attempt == 3:
            run.progress(1, 10)
            return
        raise ValueError

    queued = declare(body, atomic=atomic, retry=Retry(attempts=3, delay="1h")).enqueue(1)
    told = []
    for _ in range(3):
        run_due(concurrency=1)
        told.append(row(queued).progress)
        age(3_600, "run_at")

    assert row(queued).state == "done"
    assert told == [{"done": 5, "total": 10}, {"done": 5, "total": 10}, {"done": 1, "total": 10}]


def test_what_is_handed_back_keeps_how_far_it_was(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "DRAIN_TIMEOUT": "50ms"}
    stubborn = Stubborn()

    def body(run: Run, n: int) -> str:
        run.progress(4)
        return stubborn.body(run, n)

    queued = declare(body).enqueue(1)
    with stubborn.let_go(), working(concurrency=1) as worker:
        assert stubborn.begun.wait(TIMEOUT)
        worker.stop()
        worker.ended()

    assert (row(queued).state, row(queued).progress) == ("ready", {"done": 4, "total": None})


@pytest.mark.usefixtures("_often")
def test_an_abandoned_body_tells_nothing_any_more() -> None:
    stubborn = Stubborn()
    stubborn.after = lambda run: run.progress(99)  # type: ignore[method-assign]

    def body(run: Run, n: int) -> str:
        run.progress(1)
        return stubborn.body(run, n)

    queued = declare(body, timeout=SOON, retry=Retry(attempts=1)).enqueue(1)
    with stubborn.let_go(), working(concurrency=1) as worker:
        wait_for(lambda: row(queued).state == "dead", "it is given up")
        stubborn.go.set()
        wait_for(lambda: not worker.worker._bodies.abandoned, "its thread has ended")

    assert row(queued).progress == {"done": 1, "total": None}


def test_a_drain_in_a_test_stores_it_with_the_end() -> None:
    queued = declare(lambda run, n: run.progress(n, 10)).enqueue(3)
    with transaction.atomic():
        drain()

    assert row(queued).progress == {"done": 3, "total": 10}
