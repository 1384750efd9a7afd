"""Pause, resume, pace and cancel in every state of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.app.models import Item
from tests.backfills.steering import a_paused, a_ready, cancel, fast, pause, resume, status
from tests.backfills.sweeping import declare, handled, ledger
from tests.commanding import printed
from tests.declaring import error_of
from tests.inspection.rows import add_job
from tests.working import history, row, run_due
from ultimat3_jobs import registry
from ultimat3_jobs.backfills import controls
from ultimat3_jobs.backfills.controls import Verdict
from ultimat3_jobs.backfills.pending import PassStatus
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.inspection.clock import clock
from ultimat3_jobs.inspection.story import attempt_line
from ultimat3_jobs.models import Backfill, Job
from ultimat3_jobs.records import CancelVerdict
from ultimat3_jobs.retry import Retry

pytestmark = pytest.mark.usefixtures("queue")

LONG = timedelta(seconds=10)
"""A park that nothing has cut short ends at least so much later."""


@pytest.fixture(autouse=True)
def items(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(30))


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
    other = declare(None, Item, name="t.other", throttle=lambda: "1h").enqueue().id
    run_due()
    started = parked("another pass sweeps")
    cancel(other)
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
    assert (kept.name, kept.table, kept.batch, kept.rate, kept.forced) == ("t.backfill", "", 10, 7, True)
    assert (kept.paused_by, kept.pause_reason) == ("ann", "too much load")
    run_due()
    assert handled(Item) == {0: 30}
    resume(started)
    run_due()
    assert (row(started).state, handled(Item)) == ("done", {1: 30})
    kept = ledger(row(started))
    assert (bool(kept.checksum), kept.table) == (True, "app_item")


def broken() -> Any:
    raise RuntimeError("the source is broken")


@pytest.mark.parametrize("control", [pause, fast], ids=["pause", "pace"])
def test_a_control_asks_neither_the_source_nor_the_tenant_of_a_pass_that_has_not_begun(
    control: Callable[[UUID], controls.Controlled],
) -> None:
    started = a_ready()
    registry._by_name.clear()
    declare(None, Item, source=broken, tenant=broken)

    control(started)

    assert ledger(row(started)).table == ""
    assert [one.kind for one in history(started)] == [control.__name__ if control is pause else "pace"]


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

    told = printed("jobs", "resume", job.id)

    assert row(job.id).run_at == later
    assert f"{job.id} t.gone is not paused any more. It is parked: no code knows it. It is looked at again at " in told


def test_a_pass_whose_code_is_there_again_is_woken() -> None:
    later = clock() + LONG
    started = declare(None, Item, name="t.back").enqueue().id
    pause(started)
    Job.objects.filter(pk=started).update(state="suspended", parks=9, park_reason="no code knew it", run_at=later)

    assert printed("jobs", "resume", started).startswith(f"{started} t.back goes on\n")

    run_due()
    assert (row(started).state, handled(Item)) == ("done", {1: 30})


def test_a_cancelled_pass_makes_way_for_another() -> None:
    cancel(a_paused())

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
