"""When a page may begin: the rate, the throttle, the window, a pause, and a worker that is to stop."""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from tests.app.models import Item
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.processes import TIMEOUT, wait_for
from tests.working import age, row, run_due, working
from ultimat3_jobs.backfills import controls, turns
from ultimat3_jobs.context import vitals_of
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import JobLease
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.testing import drain
from ultimat3_jobs.worker.claim import claim
from ultimat3_jobs.worker.loop import Worker, WorkerOptions

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture
def items(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(20))


@pytest.mark.usefixtures("items")
def test_a_pass_waits_for_its_rate_and_hears_of_a_new_one_meanwhile() -> None:
    first = threading.Event()

    def handler(run: Any, rows: list[Item]) -> None:
        first.set()

    backfill = declare(handler, Item, batch=10, rate=0.04)
    with working() as worker:
        started = backfill.enqueue()
        assert first.wait(30)
        wait_for(lambda: ledger(row(started)).processed == 10, "the first page has landed")
        Ledger.objects.update(rate=100)
        wait_for(lambda: row(started).state == "done", "the second page did not wait for 25 seconds")
        worker.stop()


@pytest.mark.usefixtures("items")
def test_a_cancelled_pass_does_not_wait_for_its_rate() -> None:
    backfill = declare(None, Item, batch=10, rate=0.1)
    with working() as worker:
        started = backfill.enqueue()
        wait_for(lambda: handled(Item).get(1) == 10, "the first page has landed")
        get_driver().cancel([started.id])
        worker.stop()
        worker.ended()

    assert (row(started).state, handled(Item)) == ("cancelled", {0: 10, 1: 10})


@pytest.mark.usefixtures("items")
def test_a_worker_that_stops_lets_go_of_a_pass_at_a_pages_end_and_no_attempt_is_burnt() -> None:
    def handler(run: Any, rows: list[Item]) -> None:
        worker.stop()
        wait_for(vitals_of(run).winding_down.is_set, "the body is told")

    with working() as worker:
        started = declare(handler, Item, batch=10, rate=0.01).enqueue()  # not due again before the test looks at it
        worker.ended()

    left = row(started)
    assert (left.state, left.attempt, ledger(left).processed) == ("suspended", 0, 10)
    assert left.park_reason == "its worker was told to stop; the next one goes on"


@pytest.mark.usefixtures("items")
def test_a_worker_that_stops_lets_go_of_a_pass_that_waits_for_its_rate_and_the_next_one_keeps_to_it() -> None:
    backfill = declare(None, Item, batch=10, rate=0.1)
    with working() as worker:
        started = backfill.enqueue()
        wait_for(lambda: handled(Item).get(1) == 10, "the first page has landed")
        worker.stop()
        worker.ended()

    left = row(started)
    assert (left.state, left.attempt) == ("suspended", 0)
    # Told before it began to wait for its rate, or while it did.
    assert left.park_reason.startswith(("its worker was told to stop", "its rate is"))
    assert timedelta(seconds=1) < left.run_at - left.updated_at <= timedelta(seconds=10)
    age(10, "run_at")
    Ledger.objects.update(updated_at=F("updated_at") - timedelta(seconds=10))
    run_due()
    assert (row(started).state, handled(Item)) == ("done", {1: 20})


@pytest.mark.usefixtures("items")
def test_a_long_wait_for_the_rate_is_parked() -> None:
    done = sweep(declare(None, Item, batch=10, rate=0.01))

    assert (done.state, done.attempt, handled(Item)) == ("suspended", 0, {0: 10, 1: 10})
    assert "its rate is 0.01 pages a second" in done.park_reason


@pytest.mark.usefixtures("items")
def test_a_throttle_is_asked_before_each_page_and_a_long_wait_is_parked() -> None:
    answers = iter([None, "1h"])

    done = sweep(declare(None, Item, batch=10, throttle=lambda: next(answers)))

    assert (done.state, handled(Item)) == ("suspended", {0: 10, 1: 10})
    assert "throttle" in done.park_reason
    assert done.run_at - done.updated_at > timedelta(minutes=50)


@pytest.mark.usefixtures("items")
def test_a_change_of_controls_that_a_run_was_told_of_is_forgotten_with_the_run() -> None:
    ids: list[Any] = []

    def steer() -> None:
        controls.pace(ids[0], by="ann", rate=500)
        assert row(ids[0]).park_reason == "its controls were changed"

    started = declare(None, Item, batch=10, throttle=steer).enqueue()
    ids.append(started.id)
    claimed = {"free": 1, "lease": timedelta(minutes=1), "queues": QueueSelection(), "lapsed": 1}
    assert len(claim(get_driver(), worker="w", **claimed)) == 1  # type: ignore[arg-type]
    steer()
    age(3_600, "visible_at")
    get_driver().sweep(limit=10)
    assert (row(started).state, row(started).park_reason) == ("ready", "")

    run_due()

    assert (row(started).state, row(started).park_reason) == ("done", "")


@pytest.mark.usefixtures("items")
def test_a_short_wait_of_the_throttle_is_spent_and_it_is_asked_again() -> None:
    answers = iter([0.05, 0.01, None, False])

    done = sweep(declare(None, Item, batch=10, throttle=lambda: next(answers)))

    assert (done.state, handled(Item)) == ("done", {1: 20})
    assert list(answers) == []


@pytest.fixture
def shut() -> str:
    """A window that does not open within an hour."""
    with connection.cursor() as cursor:
        clock = "statement_timestamp()" if connection.vendor == "postgresql" else "CURRENT_TIMESTAMP"
        cursor.execute(f"SELECT {clock}")
        now = cursor.fetchone()[0]
    hour = now.hour if hasattr(now, "hour") else int(str(now)[11:13])
    return f"{(hour + 2) % 24:02}:00-{(hour + 3) % 24:02}:00"


@pytest.mark.usefixtures("items")
def test_a_pass_whose_window_is_shut_is_parked_until_it_opens(shut: str) -> None:
    done = sweep(declare(None, Item, batch=10, window=shut))

    assert (done.state, handled(Item)) == ("suspended", {0: 20})
    assert shut in done.park_reason
    assert timedelta(minutes=14) < done.run_at - done.updated_at <= timedelta(minutes=15)
    controls.pace(done.pk, by="ann", window=None)
    run_due()
    assert (row(done.pk).state, handled(Item)) == ("done", {1: 20})


@pytest.mark.usefixtures("items")
def test_a_window_that_is_shut_in_the_middle_of_a_pass_parks_it_before_its_next_page(shut: str) -> None:
    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=1)
        Ledger.objects.update(window_start=f"{shut[:5]}:00", window_end=f"{shut[6:]}:00")

    done = sweep(declare(handler, Item, batch=10))

    assert (done.state, handled(Item)) == ("suspended", {0: 10, 1: 10})
    assert shut in done.park_reason


def failing_after(times: int) -> Any:
    """Return a source that gives all items so many times, and then raises."""
    left = iter(range(times))

    def source() -> Any:
        if next(left, None) is None:
            raise RuntimeError("the source asks too much")
        return Item.objects.all()

    return source


@pytest.mark.usefixtures("items")
def test_a_pass_that_was_paused_before_it_began_counts_nothing_and_takes_no_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    source = lambda: asked.append("source") or Item.objects.all()  # noqa: E731
    backfill = declare(None, Item, batch=10, source=source)
    started = backfill.enqueue()
    controls.pause(started.id, by="ann")
    asked.clear()
    monkeypatch.setattr("ultimat3_jobs.backfills.sweep.count_rows", lambda *_: asked.append("count"))

    run_due()

    left = row(started)
    assert (left.state, left.park_reason, asked) == ("suspended", "paused by ann", [])
    assert ledger(left).total is None
    assert not JobLease.objects.filter(lease_key__startswith="backfill:").exists()


@pytest.mark.usefixtures("items")
def test_a_paused_pass_outlives_a_source_that_raises() -> None:
    backfill = declare(None, Item, batch=10, source=failing_after(1))
    started = backfill.enqueue()
    controls.pause(started.id, by="ann")

    run_due()

    left = row(started)
    assert (left.state, left.park_reason, left.last_error) == ("suspended", "paused by ann", "")
    controls.resume(started.id, by="ann")
    run_due()
    assert "the source asks too much" in row(started).last_error


@pytest.mark.usefixtures("items")
def test_a_window_that_is_shut_lets_nothing_run(shut: str) -> None:
    started = declare(None, Item, batch=10, window=shut, source=failing_after(1)).enqueue()

    run_due()

    left = row(started)
    assert (left.state, left.last_error, Ledger.objects.count()) == ("suspended", "", 0)
    assert shut in left.park_reason


@pytest.mark.usefixtures("items")
def test_workers_that_end_after_each_job_get_a_pass_on_by_a_page_each() -> None:
    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=1)
        if len(handled(Item)) == 2:  # rows are left
            wait_for(lambda: burst or vitals_of(run).winding_down.is_set(), "the body is told")

    burst = False
    started = declare(handler, Item, batch=5).enqueue()

    for pages in (1, 2):
        Worker(WorkerOptions(max_jobs=1)).run()
        assert row(started).state in ("suspended", "ready")  # it may have fallen due by now
        assert (row(started).attempt, handled(Item)) == (0, {0: 20 - 5 * pages, 1: 5 * pages})

    burst = True
    run_due(max_jobs=1)  # a burst runs it to its end
    assert (row(started).state, handled(Item)) == ("done", {1: 20})


@pytest.mark.usefixtures("items")
def test_a_worker_that_is_to_finish_is_let_go_at_a_pages_end() -> None:
    begun, may_land = threading.Event(), threading.Event()

    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=1)
        begun.set()
        assert may_land.wait(TIMEOUT)
        # A claim that was on its way may take it once more, and lets go of it as soon.
        wait_for(vitals_of(run).winding_down.is_set, "the body is told")

    backfill = declare(handler, Item, batch=5)
    with working() as worker:
        started = backfill.enqueue()
        assert begun.wait(TIMEOUT)
        (active,) = worker.worker._inflight.all()
        worker.worker.finish()
        assert active.vitals.winding_down.is_set()  # whatever the worker's loop waits for
        may_land.set()
        worker.ended()

    assert row(started).state in ("suspended", "ready")  # it may have fallen due by now
    assert handled(Item)[1] in (5, 10)


@pytest.mark.usefixtures("items")
def test_a_pass_that_would_wait_does_not_keep_a_worker_that_is_to_end(clock: Clock) -> None:
    worker = Worker(WorkerOptions(max_jobs=1))

    def throttle() -> str:
        (active,) = worker._inflight.all()
        wait_for(active.vitals.winding_down.is_set, "the body is told")
        return "20s"

    started = declare(None, Item, batch=5, throttle=throttle).enqueue()

    worker.run()

    left = row(started)
    assert (left.state, clock.now, handled(Item)) == ("suspended", 1_000, {0: 20})
    assert "throttle" in left.park_reason
    assert left.run_at - left.updated_at == timedelta(seconds=20)


class Clock:
    """The time of this process for what waits: it passes where somebody waits, and at once."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def Event(self) -> Any:  # noqa: N802 - as `threading` has it
        return SimpleNamespace(wait=self.wait, set=lambda: None)

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turns, "time", clock)
    monkeypatch.setattr(turns, "threading", clock)
    return clock


@pytest.mark.usefixtures("items")
@pytest.mark.parametrize("seconds", [30, 45])
def test_a_throttle_that_asks_for_a_long_wait_gets_the_one_that_it_asks_for(clock: Clock, seconds: int) -> None:
    done = sweep(declare(None, Item, batch=10, throttle=lambda: seconds))

    assert (done.state, clock.now) == ("suspended", 1_000)
    assert done.run_at - done.updated_at == timedelta(seconds=seconds)


@pytest.mark.usefixtures("items")
def test_short_waits_that_have_held_a_pass_for_half_a_minute_park_it_for_a_whole_one(clock: Clock) -> None:
    asked_at: list[float] = []

    def throttle() -> str:
        asked_at.append(clock.now - 1_000)
        assert len(asked_at) < 10
        return "8s"

    done = sweep(declare(None, Item, batch=10, throttle=throttle))

    assert (done.state, clock.now, asked_at) == ("suspended", 1_030, [0, 8, 16, 24])
    assert done.run_at - done.updated_at == timedelta(seconds=60)


@pytest.mark.usefixtures("items")
def test_waits_between_pages_that_land_are_not_added_up(clock: Clock) -> None:
    answers = itertools.cycle(["20s", None])

    done = sweep(declare(None, Item, batch=5, throttle=lambda: next(answers)))

    assert (done.state, clock.now) == ("done", pytest.approx(1_080, abs=1))


@pytest.mark.usefixtures("items")
def test_the_throttle_is_asked_while_the_rate_is_waited_for(clock: Clock) -> None:
    answers = iter([None, None, "1h"])

    done = sweep(declare(None, Item, batch=10, rate=0.2, throttle=lambda: next(answers)))

    assert (done.state, clock.now) == ("suspended", 1_001)
    assert "throttle" in done.park_reason


@pytest.mark.usefixtures("items")
def test_signals_are_looked_at_every_five_seconds(clock: Clock) -> None:
    asked_at: list[float] = []

    class Slow:
        def ask(self, alias: str, table: str) -> str | None:
            asked_at.append(clock.now - 1_000)
            return "a replica lags" if len(asked_at) == 2 else None

    done = sweep(declare(None, Item, batch=2, rate=0.5, signals=[Slow()]))

    assert (done.state, handled(Item)) == ("done", {1: 20})
    assert asked_at == [0, 5, 10, 15, 20]


@pytest.mark.usefixtures("items")
def test_a_drain_asks_no_signals_and_no_clock_on_the_wall_and_a_pause_parks_it(shut: str) -> None:
    class Busy:
        def ask(self, alias: str, table: str) -> str | None:
            return "a replica lags"

    started = declare(None, Item, batch=5, window=shut, signals=[Busy()]).enqueue()
    controls.pause(started.id, by="ann")
    drain()
    assert (row(started).state, row(started).park_reason) == ("suspended", "paused by ann")
    controls.resume(started.id, by="ann")

    drain()

    assert (row(started).state, handled(Item)) == ("done", {1: 20})


@pytest.mark.usefixtures("items")
def test_a_drain_spends_no_wait_of_a_throttle(clock: Clock) -> None:
    answers = iter([None, "2s"])
    started = declare(None, Item, batch=10, throttle=lambda: next(answers)).enqueue()

    drain()

    left = row(started)
    assert (left.state, clock.now, handled(Item)) == ("suspended", 1_000, {0: 10, 1: 10})
    assert left.run_at - left.updated_at == timedelta(seconds=2)


@pytest.mark.usefixtures("items")
def test_a_drain_does_not_wait_for_the_rate() -> None:
    started = declare(None, Item, batch=1, rate=0.1).enqueue()

    drain()

    assert (row(started).state, handled(Item)) == ("done", {1: 20})


@pytest.mark.usefixtures("items")
def test_whoever_wakes_a_pass_does_not_make_it_quicker_than_its_rate() -> None:
    done = sweep(declare(None, Item, batch=10, rate=0.01))
    for _ in range(2):
        type(done).objects.update(run_at=done.created_at)
        run_due()

    assert (row(done.pk).state, handled(Item)) == ("suspended", {0: 10, 1: 10})
    assert "its rate is 0.01" in row(done.pk).park_reason


@pytest.mark.usefixtures("items")
@pytest.mark.parametrize("back", [timedelta(minutes=5), timedelta(hours=1)])
def test_a_pass_does_not_wait_for_a_clock_that_has_gone_back(back: timedelta) -> None:
    done = sweep(declare(None, Item, batch=10, rate=0.01))
    assert "its rate is 0.01" in done.park_reason
    Ledger.objects.update(updated_at=F("updated_at") + back)
    type(done).objects.update(run_at=done.created_at)
    run_due()

    assert (row(done.pk).state, handled(Item)) == ("done", {1: 20})
