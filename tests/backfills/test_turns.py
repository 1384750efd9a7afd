"""When a page may begin: the rate, the throttle, the window, a pause, and a worker that is to stop."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.app.models import Item
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.processes import wait_for
from tests.working import row, run_due, working
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.testing import drain

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture
def items(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(20))


@pytest.mark.usefixtures("items")
def test_a_pass_waits_for_its_rate_and_hears_of_a_new_one_meanwhile() -> None:
    first = threading.Event()

    def handler(run: Any, rows: list[Item]) -> None:
        first.set()

    backfill = declare(handler, Item, batch=10, rate=0.1)
    with working() as worker:
        started = backfill.enqueue()
        assert first.wait(30)
        wait_for(lambda: ledger(row(started)).processed == 10, "the first page has landed")
        Ledger.objects.update(rate=100)
        wait_for(lambda: row(started).state == "done", "the second page did not wait for ten seconds")
        worker.stop()


@pytest.mark.usefixtures("items")
def test_a_cancelled_pass_does_not_wait_for_its_rate() -> None:
    from ultimat3_jobs.drivers import get_driver

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
    backfill = declare(None, Item, batch=10, rate=0.1)
    with working() as worker:
        started = backfill.enqueue()
        wait_for(lambda: handled(Item).get(1) == 10, "the first page has landed")
        worker.stop()
        worker.ended()

    left = row(started)
    assert (left.state, left.attempt) == ("suspended", 0)
    assert "told to stop" in left.park_reason
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
def test_a_short_wait_of_the_throttle_is_spent_and_it_is_asked_again() -> None:
    answers = iter([0.05, 0.01, None, False])

    done = sweep(declare(None, Item, batch=10, throttle=lambda: next(answers)))

    assert (done.state, handled(Item)) == ("done", {1: 20})
    assert list(answers) == []


@pytest.mark.usefixtures("items")
def test_a_pass_whose_window_is_shut_is_parked_until_it_opens() -> None:
    with connection.cursor() as cursor:
        clock = "statement_timestamp()" if connection.vendor == "postgresql" else "CURRENT_TIMESTAMP"
        cursor.execute(f"SELECT {clock}")
        now = cursor.fetchone()[0]
    hour = now.hour if hasattr(now, "hour") else int(str(now)[11:13])
    shut = f"{(hour + 2) % 24:02}:00-{(hour + 3) % 24:02}:00"

    done = sweep(declare(None, Item, batch=10, window=shut))

    assert (done.state, handled(Item)) == ("suspended", {0: 20})
    assert shut in done.park_reason
    Ledger.objects.update(window_start=None, window_end=None)
    type(done).objects.update(run_at=done.created_at)
    run_due()
    assert (row(done.pk).state, handled(Item)) == ("done", {1: 20})


@pytest.mark.usefixtures("items")
def test_a_drain_does_not_wait_for_the_rate() -> None:
    started = declare(None, Item, batch=1, rate=0.1).enqueue()

    drain()

    assert (row(started).state, handled(Item)) == ("done", {1: 20})
