"""`page_timeout`: a page that takes longer is rolled back and its attempt fails, whether or not its handler obeys."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.app.models import Item
from tests.backfills.sweeping import declare, handled, ledger
from tests.processes import TIMEOUT, wait_for
from tests.working import history, row, run_due, working
from ultimat3_jobs import Retry

pytestmark = pytest.mark.usefixtures("queue")

ONCE = Retry(attempts=1)


@pytest.fixture(autouse=True)
def items(queue: None, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "CANCEL_GRACE": "1h"}
    Item.objects.bulk_create(Item(number=number) for number in range(20))


def write(rows: list[Item]) -> None:
    Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=1)


def obey(run: Any) -> None:
    assert run.cancelled.wait(TIMEOUT)
    run.check_cancelled()


def ignore(run: Any) -> None:
    assert run.cancelled.wait(TIMEOUT)


@pytest.mark.parametrize("linger", [obey, ignore])
def test_a_page_that_takes_too_long_is_rolled_back_and_its_attempt_fails(linger: Any) -> None:
    pages: list[None] = []

    def handler(run: Any, rows: list[Item]) -> None:
        write(rows)
        pages.append(None)
        if len(pages) == 2:
            linger(run)

    started = declare(handler, Item, batch=10, page_timeout="50ms", timeout="1h", retry=ONCE).enqueue()
    run_due()

    left = row(started)
    assert (left.state, handled(Item), ledger(left).processed) == ("dead", {0: 10, 1: 10}, 10)
    assert "page 2 of t.backfill took longer than page_timeout=50ms" in left.last_error
    assert 'page_timeout="100ms"  # in its @backfill; or make pages smaller' in left.last_error
    assert left.error_class.endswith("JobTimeout")


@pytest.mark.postgresql_only(reason="on SQLite a page that goes on keeps everybody from settling its job")
def test_a_handler_that_does_not_stop_is_given_up_and_what_it_writes_is_rolled_back(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "CANCEL_GRACE": "50ms"}
    go, ended = threading.Event(), threading.Event()

    def handler(run: Any, rows: list[Item]) -> None:
        write(rows)
        try:
            assert go.wait(TIMEOUT)
        finally:
            ended.set()

    with working() as worker:
        started = declare(handler, Item, batch=10, page_timeout="50ms", retry=ONCE).enqueue()
        wait_for(lambda: row(started).state == "dead", "the attempt was given up")
        go.set()
        assert ended.wait(TIMEOUT)
        worker.stop()

    assert "page 1 of t.backfill took longer than page_timeout=50ms" in row(started).last_error
    assert (handled(Item), ledger(row(started)).processed) == ({0: 20}, 0)


@pytest.mark.postgresql_only(reason="on SQLite a page that goes on keeps everybody from settling its job")
def test_an_attempt_that_is_given_up_counts_from_the_last_page_that_landed(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", "CANCEL_GRACE": "50ms"}
    go, ended = threading.Event(), threading.Event()
    calls: list[None] = []

    def handler(run: Any, rows: list[Item]) -> None:
        calls.append(None)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        if len(calls) == 3:
            assert go.wait(TIMEOUT)
            ended.set()

    twice = Retry(attempts=2, delay=0, jitter=False)
    with working() as worker:
        started = declare(handler, Item, batch=10, page_timeout="50ms", retry=twice).enqueue()
        wait_for(lambda: len(history(started)) == 2, "the second attempt was given up")
        worker.worker.finish()
        go.set()
        assert ended.wait(TIMEOUT)

    # The second of two, and the first since a page has landed.
    assert [one.decision.split(":")[0].startswith("retry") for one in history(started)] == [True, True]


def test_an_attempt_that_takes_too_long_is_told_of_as_a_backfill() -> None:
    def handler(run: Any, rows: list[Item]) -> None:
        ignore(run)

    started = declare(handler, Item, batch=10, timeout="50ms", retry=ONCE).enqueue()
    run_due()

    assert "an attempt of t.backfill took longer than its timeout=50ms" in row(started).last_error
    assert 'timeout="100ms"  # in its @backfill' in row(started).last_error


def test_what_a_page_raises_says_in_which_one() -> None:
    def handler(run: Any, rows: list[Item]) -> None:
        raise RuntimeError("declined")

    started = declare(handler, Item, batch=10, retry=ONCE).enqueue()
    run_due()

    assert "raised in page 1\n" in row(started).last_error
    assert "raised in step" not in row(started).last_error
