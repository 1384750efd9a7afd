"""Pause, resume, pace and cancel: in every state of a pass, in the gaps between them, and beside its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction

from tests.app.models import Item
from tests.backfills.sweeping import declare, handled, ledger
from tests.conftest import InThreads
from tests.declaring import error_of
from tests.inspection.rows import add_job
from tests.processes import TIMEOUT, wait_for
from tests.working import history, row, run_due, working
from ultimat3_jobs import registry
from ultimat3_jobs.backfills import controls
from ultimat3_jobs.backfills.controls import Verdict
from ultimat3_jobs.backfills.pending import PassStatus
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.inspection.backfills import tell_pass
from ultimat3_jobs.inspection.story import attempt_line, clock
from ultimat3_jobs.models import Backfill, Job
from ultimat3_jobs.records import CancelVerdict
from ultimat3_jobs.retry import Retry

pytestmark = pytest.mark.usefixtures("queue")

LONG = timedelta(seconds=10)
"""A park that nothing has cut short ends at least so much later."""


@pytest.fixture(autouse=True)
def items(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(30))


def pause(run_id: UUID) -> controls.Controlled:
    return controls.pause(run_id, by="ann", reason="too much load")


def resume(run_id: UUID) -> controls.Controlled:
    return controls.resume(run_id, by="ann")


def fast(run_id: UUID) -> controls.Controlled:
    return controls.pace(run_id, by="ann", rate=1_000, window=None)


def cancel(run_id: UUID) -> CancelVerdict:
    (verdict,) = get_driver().cancel([run_id], by="ann", reason="no more")
    return verdict


def status(run_id: UUID) -> PassStatus:
    told = tell_pass(run_id)
    assert told is not None
    return told.status


def shut_now() -> str:
    """Return hours that do not begin before two have passed."""
    hour = clock().hour
    return f"{(hour + 2) % 24:02}:00-{(hour + 3) % 24:02}:00"


def fails_once(error: Exception) -> Callable[[Any, list[Item]], None]:
    failures = [error]

    def handler(run: Any, rows: list[Item]) -> None:
        if failures:
            raise failures.pop()
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=1)

    return handler


def a_ready() -> UUID:
    return declare(None, Item, batch=10).enqueue().id


def a_delayed() -> UUID:
    started = declare(fails_once(RuntimeError("not now")), Item, batch=10).enqueue().id
    run_due()
    assert row(started).state == "delayed"
    return started


def parked(because: str, **options: Any) -> UUID:
    started = declare(None, Item, batch=10, **options).enqueue().id
    run_due()
    assert row(started).state == "suspended"
    assert because in row(started).park_reason
    return started


def a_waiting_for_its_rate() -> UUID:
    return parked("its rate", rate=0.0001)


def a_throttled() -> UUID:
    answers: Iterator[Any] = iter(["1h"])
    return parked("throttle", throttle=lambda: next(answers, None))


def a_shut() -> UUID:
    return parked("its window", window=shut_now())


def a_kept_from_its_table() -> UUID:
    other = declare(None, Item, name="t.other").enqueue().id
    controls.pause(other, by="bob")
    run_due()
    started = parked("another pass sweeps")
    cancel(other)
    return started


def a_paused() -> UUID:
    started = a_ready()
    pause(started)
    run_due()
    assert row(started).state == "suspended"
    return started


def a_done() -> UUID:
    started = a_ready()
    run_due()
    assert row(started).state == "done"
    return started


def a_dead() -> UUID:
    started = declare(fails_once(RuntimeError("no")), Item, batch=10, retry=Retry(attempts=1)).enqueue().id
    run_due()
    assert row(started).state == "dead"
    return started


def a_cancelled() -> UUID:
    started = a_paused()
    cancel(started)
    return started


PARKED = [a_waiting_for_its_rate, a_throttled, a_shut, a_kept_from_its_table, a_paused]
LIVE = [a_ready, a_delayed, *PARKED]
ENDED = [a_done, a_dead, a_cancelled]


def due(run_id: UUID) -> bool:
    return row(run_id).run_at <= clock()


@pytest.mark.parametrize("made", LIVE)
def test_a_live_pass_is_paused_and_rests_before_its_next_page(made: Callable[[], UUID]) -> None:
    started = made()
    before, landed = row(started).state, handled(Item)

    assert pause(started) == controls.Controlled(started, "t.backfill", Verdict.PAUSED)

    assert status(started) is PassStatus.PAUSED
    if before != "delayed":
        run_due()
        assert (row(started).state, row(started).park_reason) == ("suspended", "paused by ann")
    assert handled(Item) == landed
    assert history(started)[-1].kind == "pause"


@pytest.mark.parametrize("made", LIVE)
def test_a_live_pass_goes_on_once_it_is_resumed_and_nothing_else_keeps_it(made: Callable[[], UUID]) -> None:
    started = made()
    pause(started)
    run_due()

    assert resume(started).verdict is Verdict.RESUMED
    fast(started)

    if row(started).state == "delayed":
        Job.objects.filter(pk=started).update(run_at=row(started).created_at)
    assert due(started)
    run_due()
    assert (row(started).state, handled(Item), status(started)) == ("done", {1: 30}, PassStatus.COMPLETED)
    assert row(started).park_reason == ""


@pytest.mark.parametrize("made", PARKED)
def test_a_parked_pass_is_woken_by_any_control(made: Callable[[], UUID]) -> None:
    started = made()
    for control in (pause, fast, resume):
        Job.objects.filter(pk=started).update(run_at=clock() + LONG)
        control(started)
        assert due(started), control


@pytest.mark.parametrize("made", LIVE)
def test_a_pass_that_is_cancelled_never_starts_again(made: Callable[[], UUID]) -> None:
    started = made()
    landed = handled(Item)

    assert cancel(started) is CancelVerdict.CANCELLED

    Job.objects.filter(pk=started).update(run_at=row(started).created_at)
    for control in (pause, resume, fast):
        error = error_of("X_BACKFILL_NOT_LIVE", lambda control=control: control(started))  # type: ignore[misc]
        assert "cancelled" in error.cause or "no job" in error.cause
    run_due()
    assert (row(started).state, handled(Item), status(started)) == ("cancelled", landed, PassStatus.CANCELLED)
    assert registry.find("t.backfill")


@pytest.mark.parametrize("made", ENDED)
@pytest.mark.parametrize("control", [pause, resume, fast])
def test_a_pass_that_has_ended_is_not_steered(made: Callable[[], UUID], control: Callable[[UUID], Any]) -> None:
    started = made()
    before = Backfill.objects.filter(pk=started).values().first()
    told = len(history(started))

    error = error_of("X_BACKFILL_NOT_LIVE", lambda: control(started))

    assert str(started) in error.cause
    assert (
        error.fix
        == {
            a_done: "python manage.py backfill --list --name t.backfill",
            a_dead: f"python manage.py jobs retry {started}",
            a_cancelled: "python manage.py backfill t.backfill --write",
        }[made]
    )
    assert Backfill.objects.filter(pk=started).values().first() == before
    assert len(history(started)) == told


def test_a_pass_that_is_no_backfills_or_is_not_there_is_not_steered() -> None:
    other = add_job("ready")

    assert "no backfill" in error_of("X_BACKFILL_NOT_LIVE", lambda: pause(other.id)).cause
    assert "no job" in error_of("X_BACKFILL_NOT_LIVE", lambda: pause(UUID(int=1))).cause
    assert not Backfill.objects.exists()


def test_a_pass_is_paused_before_it_has_begun_and_its_row_says_what_it_will_be() -> None:
    started = declare(None, Item, batch=10, rate=7, window=None).enqueue(forced=True).id

    pause(started)

    kept = ledger(row(started))
    assert (kept.name, kept.table, kept.batch, kept.rate, kept.forced) == ("t.backfill", "app_item", 10, 7, True)
    assert (kept.paused_by, kept.pause_reason) == ("ann", "too much load")
    run_due()
    assert handled(Item) == {0: 30}
    resume(started)
    run_due()
    assert (row(started).state, handled(Item)) == ("done", {1: 30})
    assert ledger(row(started)).checksum


def test_a_second_pause_says_anew_who_and_why_and_since_when_stays() -> None:
    started = a_paused()
    since = ledger(row(started)).paused_at

    assert controls.pause(started, by="bob", reason="a release").verdict is Verdict.PAUSED

    kept = ledger(row(started))
    assert (kept.paused_by, kept.pause_reason, kept.paused_at) == ("bob", "a release", since)
    run_due()
    assert row(started).park_reason == "paused by bob"


def test_to_resume_what_is_not_paused_changes_nothing_and_says_so() -> None:
    started = a_ready()

    assert resume(started).verdict is Verdict.NOT_PAUSED
    assert history(started) == []


def test_a_pace_changes_what_is_asked_for_and_nothing_else() -> None:
    started = declare(None, Item, rate=5, window="22:00-06:00").enqueue().id

    def pace(**asked: Any) -> tuple[Any, ...]:
        controls.pace(started, by="ann", **asked)
        kept = ledger(row(started))
        return kept.rate, kept.window_start and f"{kept.window_start:%H:%M}", kept.window_end and kept.window_end.hour

    assert pace(rate=2) == (2, "22:00", 6)
    assert pace(window="01:30-04:00") == (2, "01:30", 4)
    assert pace(window=None, rate=0.5) == (0.5, None, None)
    for wrong in ({"rate": 0}, {"rate": float("nan")}, {"window": "late"}, {"window": "01:00-01:00"}):
        error_of("X_JOB_DECLARATION_INVALID", lambda wrong=wrong: pace(**wrong))  # type: ignore[misc]
    assert [one.rule for one in history(started)] == ["rate 2", "window 01:30-04:00", "rate 0.5, no window"]


def test_who_steered_a_pass_is_kept_in_its_jobs_history() -> None:
    started = a_ready()
    pause(started)
    controls.pace(started, by="bob", rate=3, reason="quiet now")
    resume(started)

    lines = [attempt_line(one) for one in history(started)]

    assert [one.kind for one in history(started)] == ["pause", "pace", "resume"]
    assert lines[0].endswith(" by ann: too much load")
    assert lines[1].startswith("pace (rate 3) at ")
    assert lines[1].endswith(" by bob: quiet now")
    assert lines[2].endswith(" by ann")


def test_a_pass_whose_code_is_gone_is_parked_for_that_and_not_woken() -> None:
    later = clock() + LONG
    job = add_job("suspended", name="t.gone", parks=2, park_reason="no code knows it", run_at=later)
    Backfill.objects.create(
        run_id=job.run_id, name="t.gone", table="app_item", batch=1, created_at=later, updated_at=later
    )

    assert pause(job.id).verdict is Verdict.PAUSED
    assert (row(job.id).run_at, row(job.id).park_reason) == (later, "no code knows it")


@contextmanager
def when(event: str, do: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do something, once, in the thread that logs this event while it does so; yield what came of it."""
    came: list[Any] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "event", "") == event and not came:
                came.append(None)
                try:
                    came[0] = do()
                except Exception as error:
                    came[0] = error

    logger, handler = logging.getLogger("ultimat3_jobs"), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield came
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


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
            wait_for(lambda: blocked() == 1, "the park waits for the lock of the control")
        wait_for(lambda: row(started).state == "done", "the pass went on", timeout=10)


def blocked() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0")
        return int(cursor.fetchone()[0])


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


def beside(do: Callable[[], Any]) -> threading.Thread:
    """Do something on another connection, at the same time."""

    def body() -> None:
        try:
            do()
        finally:
            connections.close_all()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


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
                wait_for(lambda: blocked() == 1, "the pause waits for the end")
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


def test_a_cancelled_pass_makes_way_for_another() -> None:
    a_cancelled()

    started = declare(None, Item, batch=10).enqueue().id
    run_due()

    assert (row(started).state, handled(Item)) == ("done", {1: 30})


def test_a_dead_pass_that_was_paused_is_paused_still_when_it_is_retried() -> None:
    started = a_delayed()
    pause(started)
    Job.objects.filter(pk=started).update(state="dead", finished_at=clock())

    get_driver().retry([started])
    run_due()

    assert (row(started).park_reason, handled(Item)) == ("paused by ann", {0: 30})
    resume(started)
    run_due()
    assert (row(started).state, handled(Item)) == ("done", {1: 30})
