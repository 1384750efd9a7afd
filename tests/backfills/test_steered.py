"""Pause, resume, pace and cancel beside the run of a pass: between pages, within one, at its park and at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from tests.app.models import Item
from tests.backfills.steering import a_paused, a_ready, beside, cancel, fast, pause, resume, status, when
from tests.backfills.sweeping import declare, handled, ledger
from tests.conftest import InThreads
from tests.declaring import error_of
from tests.locks import waiting_for_this_session
from tests.processes import TIMEOUT, wait_for
from tests.working import history, row, run_due, working
from ultimat3_jobs.backfills.controls import Verdict
from ultimat3_jobs.backfills.pending import PassStatus
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Backfill
from ultimat3_jobs.records import CancelVerdict

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture(autouse=True)
def items(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(30))


def test_a_resume_between_the_look_and_the_park_wakes_the_pass_at_once() -> None:
    started = a_ready()
    pause(started)

    with when("jobs.backfill.parked", lambda: resume(started)) as came:
        run_due()

    assert came[0].verdict is Verdict.RESUMED
    assert (row(started).state, handled(Item)) == ("done", {1: 30})


@pytest.mark.postgresql_only(reason="on SQLite one transaction at a time writes, and nobody sees who waits for it")
def test_a_resume_that_commits_while_the_park_waits_for_it_wakes_the_pass_at_once() -> None:
    started = a_ready()
    pause(started)
    may_park = threading.Event()

    with when("jobs.backfill.parked", lambda: may_park.wait(TIMEOUT)), working():
        wait_for(lambda: row(started).state == "running")
        with transaction.atomic():
            resume(started)
            may_park.set()
            wait_for(waiting_for_this_session, "the park waits for the lock of the control")
        wait_for(lambda: row(started).state == "done", "the pass went on", timeout=10)


def test_a_pause_between_two_pages_lets_no_other_begin_but_the_one_that_was_to() -> None:
    started: list[UUID] = []
    asked: list[int] = []

    def between() -> None:
        asked.append(1)
        if len(asked) == 2:
            pause(started[0])

    started.append(declare(None, Item, batch=10, throttle=between).enqueue().id)
    run_due()

    # The pass had looked at its controls when they were changed: the page that was next is the last.
    assert (row(started[0]).state, handled(Item)) == ("suspended", {0: 10, 1: 20})
    assert status(started[0]) is PassStatus.PAUSED
    resume(started[0])
    run_due()
    assert (row(started[0]).state, handled(Item)) == ("done", {1: 30})


def in_the_second_page(vendor: str, do: Callable[[UUID], Any]) -> tuple[UUID, threading.Thread]:
    """Run a pass of three pages, and do something to it while the second one is open; return both when it has ended."""
    others: list[threading.Thread] = []

    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=1)
        if Item.objects.filter(handled=1).count() == 20 and not others:
            others.append(beside(lambda: do(run.run_id)))
            if vendor == "postgresql":  # on SQLite it waits for the page
                others[0].join(TIMEOUT)

    # On SQLite pages are apart, so that others get their turn.
    started = declare(handler, Item, batch=10, rate=2 if vendor == "sqlite" else 1_000).enqueue().id
    run_due()
    others[0].join(TIMEOUT)
    return started, others[0]


def test_a_pause_within_a_page_lets_that_page_land_and_no_other(vendor: str) -> None:
    started, _ = in_the_second_page(vendor, pause)

    wait_for(lambda: row(started).state == "suspended")
    assert (status(started), handled(Item)) == (PassStatus.PAUSED, {0: 10, 1: 20})
    assert ledger(row(started)).processed == 20


def test_a_cancel_within_a_page_lets_no_page_land_after_it(vendor: str) -> None:
    landed: list[int] = []

    def stop(run_id: UUID) -> None:
        assert cancel(run_id) is CancelVerdict.CANCELLED
        landed.append(Backfill.objects.get(pk=run_id).processed)

    started, _ = in_the_second_page(vendor, stop)

    assert landed == [10 if vendor == "postgresql" else 20]
    assert (row(started).state, handled(Item)) == ("cancelled", {0: 30 - landed[0], 1: landed[0]})
    assert ledger(row(started)).processed == landed[0]
    assert status(started) is PassStatus.CANCELLED


def test_a_pace_is_heard_while_a_pass_waits_for_its_rate() -> None:
    with working() as worker:
        started = declare(None, Item, batch=10, rate=0.05).enqueue().id
        wait_for(lambda: handled(Item).get(1) == 10, "the first page has landed")
        fast(started)
        wait_for(lambda: row(started).state == "done", "the second page did not wait for twenty seconds", timeout=15)
        worker.stop()


def test_a_pause_before_the_end_is_kept_and_does_not_undo_it() -> None:
    started: list[UUID] = []
    came: list[Verdict] = []

    def count() -> int:  # after the last page, before the pass has completed
        came.append(pause(started[0]).verdict)
        return 0

    started.append(declare(None, Item, batch=10, count=count).enqueue().id)
    run_due()

    assert came == [Verdict.PAUSED]
    assert (row(started[0]).state, status(started[0]), handled(Item)) == ("done", PassStatus.COMPLETED, {1: 30})


@pytest.mark.parametrize("control", [pause, resume, fast])
def test_a_control_after_the_end_is_refused_though_the_job_has_yet_to_be_settled(
    control: Callable[[UUID], Any],
) -> None:
    started = a_ready()

    with when("jobs.backfill.completed", lambda: error_of("X_BACKFILL_NOT_LIVE", lambda: control(started))) as came:
        run_due()

    assert "it has completed" in came[0].cause
    assert (row(started).state, status(started)) == ("done", PassStatus.COMPLETED)
    assert ledger(row(started)).paused_at is None
    assert history(started) == []


def test_a_pause_that_waits_for_the_end_is_refused(monkeypatch: pytest.MonkeyPatch, vendor: str) -> None:
    started = a_ready()
    came: list[Any] = []
    driver, others = get_driver(), []
    land = driver.checkpoint

    def late() -> None:
        came.append(error_of("X_BACKFILL_NOT_LIVE", lambda: pause(started)))

    def checkpoint(claim: Any, record: Any) -> bool:
        landed = land(claim, record)
        if record.state == "done" and not others:  # the ledger and the job are locked, and not committed
            others.append(beside(late))
            if vendor == "postgresql":
                wait_for(waiting_for_this_session, "the pause waits for the end")
        return landed

    monkeypatch.setattr(driver, "checkpoint", checkpoint)
    run_due()
    others[0].join(TIMEOUT)

    assert "it has completed" in came[0].cause
    assert (status(started), ledger(row(started)).paused_at) == (PassStatus.COMPLETED, None)


def test_controls_at_once_end_in_one_of_them(in_threads: InThreads) -> None:
    started = a_paused()
    barrier = threading.Barrier(3, timeout=TIMEOUT)

    def at_once(control: Callable[[UUID], Any]) -> Any:
        barrier.wait()
        try:
            return control(started)
        except Exception as error:
            return error

    in_threads(*(lambda control=control: at_once(control) for control in (cancel, resume, pause)))  # type: ignore[misc]

    run_due()
    assert (row(started).state, handled(Item), status(started)) == ("cancelled", {0: 30}, PassStatus.CANCELLED)
