"""`crash_at_each_step()` finds every point, leaves what a death leaves, and undoes each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from tests.app.models import Effect
from tests.declaring import error_of
from tests.working import declare, states
from ultimat3_jobs import NO_TENANT, AsyncRun, Retry, Run, job, registry
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep, OutboxEntry
from ultimat3_jobs.testing import CrashPoint, Event, assert_enqueued, crash_at_each_step, drain
from ultimat3_jobs.testing import crashes as module

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("isolated_registry")]

NOWHERE = CrashPoint("nowhere")
ACK = CrashPoint("before the ack")


def leave(label: str) -> str:
    """Leave an effect."""
    Effect.objects.create(label=label)
    return label


def left() -> list[str]:
    """Return the labels of the effects in their order."""
    return list(Effect.objects.order_by("pk").values_list("label", flat=True))


def outcomes(handle: Any, **values: Any) -> dict[str, list[str]]:
    """Return the effects after each point."""
    return {str(point): left() for point in crash_at_each_step(handle, **values)}


def points(handle: Any, **values: Any) -> list[CrashPoint]:
    """Return the points."""
    return list(crash_at_each_step(handle, **values))


def around(step: str) -> list[CrashPoint]:
    """Return the three points of a step."""
    return [CrashPoint("before", step), CrashPoint("inside", step), CrashPoint("after", step)]


def both(run: Run, n: int) -> str:
    """Do a plain and an atomic step."""
    plain: str = run.step("plain", leave, "p")
    return plain + str(run.step("atomic", leave, "a", atomic=True))


def test_each_point_of_each_step_is_tried_and_plain_effects_may_double() -> None:
    handle = declare(both)

    assert outcomes(handle, n=1) == {
        "no crash": ["p", "a"],
        "a crash before step 'plain'": ["p", "a"],
        "a crash inside step 'plain'": ["p", "p", "a"],
        "a crash after step 'plain'": ["p", "a"],
        "a crash before step 'atomic'": ["p", "a"],
        "a crash inside step 'atomic'": ["p", "a"],
        "a crash after step 'atomic'": ["p", "a"],
        "a crash after the body, before its ack": ["p", "a"],
    }
    assert (left(), JobRow.objects.count(), OutboxEntry.objects.count(), JobStep.objects.count()) == ([], 0, 0, 0)


def test_what_is_seen_in_the_loop_is_the_end_of_the_job() -> None:
    handle = declare(both, retry=Retry(attempts=1), queue="shop")
    for point in crash_at_each_step(handle, n=1):
        row = JobRow.objects.get()
        assert (row.state, row.result, row.queue, row.max_attempts) == ("done", "pa", "shop", 1), point
        assert row.attempt == (1 if point == NOWHERE else 2), point
        assert list(JobStep.objects.order_by("seq").values_list("name", flat=True)) == ["plain", "atomic"], point


def test_an_atomic_job_dies_at_either_end_of_its_body_and_around_its_steps() -> None:
    def body(run: Run, n: int) -> None:
        leave("body")
        run.step("step", leave, "s", atomic=True)

    found = outcomes(declare(body, atomic=True), n=1)
    assert list(found) == list(map(str, [NOWHERE, CrashPoint("before"), *around("step"), ACK]))
    assert set(map(tuple, found.values())) == {("body", "s")}
    assert str(CrashPoint("before")) == "a crash before the body"


def test_sleeps_are_left_behind_and_crashed_in() -> None:
    def body(run: Run, n: int) -> None:
        run.step("one", leave, "1", atomic=True)
        run.sleep("3d")
        run.sleep("short", 0)
        run.step("two", leave, "2", atomic=True)

    found = outcomes(declare(body), n=1)
    zero = [CrashPoint("before", "short"), CrashPoint("inside", "short")]
    expected = [NOWHERE, *around("one"), *around("sleep-1"), *zero, *around("two"), ACK]
    assert list(found) == list(map(str, expected))
    assert set(map(tuple, found.values())) == {("1", "2")}


def test_waits_get_their_events_or_time_out_and_are_crashed_in() -> None:
    def body(run: Run, n: int) -> None:
        done = run.wait_for_event("review", "review.done", match={"n": n}, timeout="2d")
        paid = run.wait_for_event("payment", "paid", timeout="1d")
        run.step("leave", leave, f"{done.payload if done else None} {paid and paid.payload}", atomic=True)

    handle = declare(body)
    found = {
        str(point): left()
        for point in crash_at_each_step(handle, Event("review.done", "well", match={"n": 1}), Event("other"), n=1)
    }
    got = [CrashPoint("before", "review"), CrashPoint("after", "review")]
    assert list(found) == list(map(str, [NOWHERE, *got, *around("payment"), *around("leave"), ACK]))
    assert set(map(tuple, found.values())) == {("well None",)}
    endless = declare(lambda run, n: run.wait_for_event("w", "never"), name="t.endless")
    assert "for ever" in error_of("X_DRAIN_FAILED", lambda: points(endless, n=1)).cause


def test_loops_and_branches_are_covered_and_a_point_that_is_not_reached_is_left_out() -> None:
    def body(run: Run, n: int) -> None:
        for turn in range(n):
            run.step(f"turn-{turn}", leave, str(turn), atomic=True)
        if run.attempt > 1:
            run.step("again", leave, "again", atomic=True)

    found = points(declare(body), n=2)
    assert found == [NOWHERE, *around("turn-0"), *around("turn-1"), ACK]


def test_a_job_without_steps_has_two_ends() -> None:
    assert outcomes(declare(lambda run, n: leave("x")), n=1) == {
        "no crash": ["x"],
        "a crash after the body, before its ack": ["x", "x"],
    }


def test_what_a_dead_body_still_does_reaches_no_database() -> None:
    def body(run: Run, n: int) -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: leave("hook"))
        try:
            run.step("one", leave, "1", atomic=True)
            run.step("two", leave, "2", atomic=True)
        except BaseException:
            transaction.on_commit(lambda: leave("late hook"))
            leave("handled")
        finally:
            leave("tidied up")

    for point, effects in outcomes(declare(body), n=1).items():
        hooks = 1 if point == "no crash" else 2
        twice = point == "a crash after the body, before its ack"
        assert sorted(effects) == sorted(["1", "2", *["hook"] * hooks, *["tidied up"] * (1 + twice)]), point


def test_a_body_that_keeps_its_death_to_itself_is_dead_all_the_same() -> None:
    called: list[str] = []

    def work(name: str) -> None:
        called.append(name)  # what no database sees, such as a call to a provider
        leave(name)

    def body(run: Run, n: int) -> None:
        for name in ("one", "two"):
            try:
                run.step(name, work, name)
            except BaseException:
                continue

    for point in crash_at_each_step(declare(body), n=1):
        again = {"inside": [point.step]}.get(point.where, [])
        assert sorted(called) == sorted(left()) == sorted(["one", "two", *again]), point
        called.clear()


@pytest.mark.parametrize("plain", [False, True])
def test_async_bodies_die_too(plain: bool) -> None:
    async def leave_async(label: str) -> str:
        await Effect.objects.acreate(label=label)
        return label

    @job(name="t.async", idempotency_key="{n}", tenant=NO_TENANT)
    async def body(run: AsyncRun, n: int) -> None:
        await run.step("one", leave if plain else leave_async, "1")
        await run.step("two", leave, "2", atomic=True)
        await run.sleep("1h")

    assert {point: effects for point, effects in outcomes(body, n=1).items() if effects != ["1", "2"]} == {
        "a crash inside step 'one'": ["1", "1", "2"]
    }


def test_an_error_of_the_body_is_raised_with_the_point() -> None:
    def body(run: Run, n: int) -> None:
        run.step("one", leave, "1")
        if run.attempt > 1:
            raise LookupError("the second time")

    found = crash_at_each_step(declare(body), n=1)
    assert next(found) == NOWHERE
    with pytest.raises(LookupError, match="the second time") as raised:
        next(found)
    assert raised.value.__notes__ == ["raised in t.job, attempt 2: a crash before step 'one'"]
    assert left() == []


def test_a_job_that_ends_otherwise_than_well_is_an_error() -> None:
    error = error_of("X_DRAIN_FAILED", lambda: points(declare(lambda run, n: object()), n=1))
    assert "t.job ended 'dead'" in error.cause
    assert "(no crash)" in error.cause


def test_a_job_that_joins_another_is_an_error() -> None:
    handle = declare(both)
    handle.enqueue(n=1)
    drain()
    handle.enqueue(n=2)
    drain(max_jobs=1)
    pending = declare(both, name="t.other")
    pending.using(run_after="1h").enqueue(n=1)
    drain()

    assert "another job holds its key" in error_of("X_DRAIN_FAILED", lambda: points(pending, n=1)).cause
    assert states() == {"done": 2, "delayed": 1}


def test_other_work_does_not_run_and_a_delayed_job_is_waited_for() -> None:
    declare(lambda run, n: leave("other"), name="t.other", priority=100).enqueue(n=1)
    handle = declare(lambda run, n: leave("x")).using(run_after="2d")
    for point in crash_at_each_step(handle, n=1):
        assert set(left()) == {"x"}, point
    drain()
    assert left() == ["other"]


def test_what_the_body_enqueued_can_be_looked_at_and_drained_in_the_loop() -> None:
    welcome = declare(lambda run, n: leave("welcome"), name="t.welcome")
    handle = declare(lambda run, n: run.step("ask", lambda: str(welcome.enqueue(n=n).id), atomic=True))
    for point in crash_at_each_step(handle, n=1):
        assert_enqueued(welcome, n=1, count=1)
        drain()
        assert left() == ["welcome"], point


def test_points_and_starts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 5)
    monkeypatch.setattr(module, "MOST_STARTS", 5)
    assert "more than 5 points" in error_of("X_DRAIN_ENDLESS", lambda: points(declare(both), n=1)).cause
    sleepy = declare(lambda run, n: run.snooze("1h"), name="t.sleepy")
    assert "started 5 times" in error_of("X_DRAIN_ENDLESS", lambda: points(sleepy, n=1)).cause


def go_through(handle: Any) -> None:
    """Go to the end."""
    assert len(points(handle, n=1)) == 8


def leave_the_loop(handle: Any) -> None:
    """Look at the first outcome alone."""
    for _ in crash_at_each_step(handle, n=1):
        break


def fail_in_the_loop(handle: Any) -> None:
    """Fail at the third."""

    def look() -> None:
        for point in crash_at_each_step(handle, n=1):
            assert len(left()) == 2, point

    with pytest.raises(AssertionError, match="inside step 'plain'"):
        look()


class InATestCase(TestCase):
    """In the transaction of Django's test case, and left in whatever way."""

    def test_each_way_out_undoes_the_world(self) -> None:
        ways: list[Callable[[Any], object]] = [leave_the_loop, fail_in_the_loop, go_through]
        with registry.isolated():
            handle = declare(both)
            leave("before")
            for way in ways:
                Effect.objects.all().delete()
                way(handle)
                assert (left(), JobRow.objects.count()) == ([], 0)
                assert connection.in_atomic_block
                assert not connection.needs_rollback

    def test_hooks_of_the_test_wait_on(self) -> None:
        with registry.isolated(), self.captureOnCommitCallbacks() as hooks:
            transaction.on_commit(lambda: None)
            points(declare(both), n=1)
        assert len(hooks) == 1


class WithoutATransaction(TransactionTestCase):
    """Where the test has none, one is opened."""

    def test_each_way_out_undoes_the_world(self) -> None:
        ways: list[Callable[[Any], object]] = [leave_the_loop, fail_in_the_loop, go_through]
        with registry.isolated():
            handle = declare(both)
            for way in ways:
                way(handle)
                assert (left(), JobRow.objects.count(), OutboxEntry.objects.count()) == ([], 0, 0)
                assert not connection.in_atomic_block
