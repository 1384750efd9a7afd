"""Steps of plain bodies: recorded before they return, replayed afterwards, refused where they cannot work."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import PurePath
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.utils.safestring import mark_safe

from tests.app.models import Effect
from tests.working import declare, history, row, run_due
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.records import Claim, ClaimedJob
from ultimat3_jobs.steps import trace

pytestmark = pytest.mark.usefixtures("queue")

AT_ONCE = Retry(attempts=3, delay=0)


def leave(label: str) -> str:
    """Leave an effect, and say which."""
    Effect.objects.create(label=label, attempt=0, pid=0, detail="step")
    return label


def effects() -> list[str]:
    """Return the labels of all effects, in order."""
    return list(Effect.objects.order_by("id").values_list("label", flat=True))


def test_a_hook_of_an_atomic_step_may_suspend_the_run() -> None:
    def body(run: Run, n: int) -> None:
        def write() -> None:
            leave("a")
            transaction.on_commit(lambda: run.sleep("nap", "1d"))

        run.step("write", write, atomic=True)
        leave("behind")

    job = declare(body, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert (row(job).state, effects()) == ("suspended", ["a"])
    assert list(JobStep.objects.order_by("seq").values_list("name", flat=True)) == ["write", "nap"]


@pytest.mark.parametrize("what", ["step", "atomic", "sleep", "wait", "key"])
def test_a_name_may_be_text_of_its_own_kind(what: str) -> None:
    name = mark_safe("first")

    def body(run: Run, n: int) -> None:
        if what == "sleep":
            run.sleep(name, 0)
        elif what == "wait":
            run.wait_for_event(name, "never", timeout="1d")
        else:
            assert run.step_key(name) == run.step_key("first")
            run.step(name, leave, "a", atomic=what == "atomic")

    job = declare(body, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert row(job).state == ("suspended" if what == "wait" else "done")
    assert list(JobStep.objects.values_list("name", flat=True)) == ["first"]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_recorded_step_is_not_done_again(atomic: bool) -> None:
    def body(run: Run, n: int) -> str:
        first = run.step("first", leave, "a", atomic=atomic)
        if run.attempt < 3:
            raise ValueError("not yet")
        return str(first + run.step("second", leave, "b", atomic=atomic))

    job = declare(body, retry=AT_ONCE).enqueue(n=1)
    run_due()
    assert row(job).state == "done"
    assert row(job).result == "ab"
    assert effects() == ["a", "b"]
    steps = list(
        JobStep.objects.filter(run_id=job.run_id).order_by("seq").values_list("name", "seq", "attempt", "state")
    )
    assert steps == [("first", 1, 1, "done"), ("second", 2, 3, "done")]


def test_an_atomic_step_that_fails_leaves_nothing() -> None:
    def half(label: str) -> None:
        leave(label)
        raise ValueError("half-way")

    def body(run: Run, n: int) -> None:
        run.step("half", half, "a", atomic=True)

    job = declare(body, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert row(job).state == "dead"
    assert effects() == []
    assert not JobStep.objects.exists()


def test_a_sleep_lets_go_of_the_worker_and_burns_no_attempt() -> None:
    def body(run: Run, n: int) -> int:
        run.step("before", leave, f"before-{run.attempt}")
        run.sleep("3d")
        run.step("after", leave, f"after-{run.attempt}")
        return run.attempt

    job = declare(body).enqueue(n=1)
    run_due()
    asleep = row(job)
    assert (asleep.state, asleep.attempt, asleep.claim_token) == ("suspended", 0, None)
    assert asleep.park_reason.startswith("asleep until ")
    assert history(job) == []
    run_due()
    assert row(job).state == "suspended"
    with connection.cursor() as cursor:
        past = {"sqlite": "'2001-01-01 00:00:00.000000'", "postgresql": "'2001-01-01+00'"}[connection.vendor]
        cursor.execute(f"UPDATE x_jobs SET run_at = {past}")
        cursor.execute(f"UPDATE x_job_steps SET until = {past} WHERE kind = 'sleep'")
    run_due()
    assert row(job).state == "done"
    assert row(job).result == 1
    assert effects() == ["before-1", "after-1"]


@dataclass(frozen=True)
class Parcel:
    """A value of a type of its own."""

    id: UUID
    weight: Decimal
    sent: date | None = None


PARCEL = Parcel(UUID(int=7), Decimal("1.50"), date(2026, 2, 28))


def annotated() -> tuple[int, UUID]:
    """Return a tuple that is declared."""
    return 1, UUID(int=1)


@pytest.mark.parametrize(
    ("fn", "returns", "expected"),
    [
        (annotated, None, (1, UUID(int=1))),
        (lambda: PARCEL, Parcel, PARCEL),
        (lambda: [PARCEL], list[Parcel], [PARCEL]),
        (lambda: (1, "a"), None, [1, "a"]),
        (lambda: UUID(int=1), None, str(UUID(int=1))),
        (lambda: {"b": 1e16, "aa": {"a": None}}, None, {"b": 1e16, "aa": {"a": None}}),
        (lambda: {date(2026, 1, 2): 3}, dict[date, int], {date(2026, 1, 2): 3}),
        (lambda: 3, float, 3.0),
        (lambda: 1e16, None, 1e16),
        (lambda: None, None, None),
        (partial(int, "7"), None, 7),
        (partial(UUID, int=7), None, UUID(int=7)),
        (partial(Parcel, UUID(int=7), Decimal("1.50"), date(2026, 2, 28)), None, PARCEL),
        (PurePath("a").joinpath, str, None),
    ],
)
@pytest.mark.parametrize("atomic", [False, True])
def test_a_replay_gives_what_the_first_run_gave(fn: Any, returns: Any, expected: Any, atomic: bool) -> None:
    seen: list[Any] = []

    def body(run: Run, n: int) -> None:
        seen.append(run.step("make", fn, returns=returns, atomic=atomic))
        if run.attempt == 1:
            raise ValueError("once more")

    job = declare(body, retry=AT_ONCE).enqueue(n=1)
    run_due()
    if expected is None and returns is str:  # a path is no text
        assert (row(job).state, row(job).error_class) == ("dead", "ultimat3_jobs.errors.ResultInvalid")
        return
    assert row(job).state == "done"
    assert seen == [expected, expected]
    assert [type(one) for one in seen] == [type(expected)] * 2
    if isinstance(expected, dict):
        assert list(seen[0]) == list(seen[1])


def failing(work: Callable[[Run], object], **options: Any) -> JobRow:
    """Run a body that is to fail on its first attempt, and return its row."""

    def body(run: Run, n: int) -> None:
        work(run)

    job = declare(body, **{"retry": Retry(attempts=1), **options}).enqueue(n=1)
    run_due()
    assert row(job).state == "dead", row(job).state
    return row(job)


def twice(run: Run) -> None:
    """Give two steps one name."""
    run.step("same", leave, "a")
    run.step("same", leave, "b")


def in_a_block(ask: Callable[[Run], object]) -> Callable[[Run], None]:
    """Ask inside a transaction of the body."""

    def work(run: Run) -> None:
        with transaction.atomic():
            leave("block")
            ask(run)

    return work


async def coroutine() -> None:
    """Be no plain function."""


class Unstorable:
    """Nothing that JSON could hold."""


def unstorable() -> Unstorable:
    """Say that it returns what cannot be stored."""
    raise AssertionError("it is refused before it is called")


@pytest.mark.parametrize(
    ("work", "error", "effects_left"),
    [
        (twice, "StepDuplicate", ["a"]),
        (lambda run: [run.sleep("nap", 0), run.step("nap", leave, "a")], "StepDuplicate", []),
        (in_a_block(lambda run: run.step("s", leave, "a", atomic=True)), "StepNotAtomic", []),
        (in_a_block(lambda run: run.step("s", leave, "a")), "StepInTransaction", []),
        (in_a_block(lambda run: run.sleep("1d")), "StepInTransaction", []),
        (in_a_block(lambda run: run.wait_for_event("w", "paid")), "StepInTransaction", []),
        (in_a_block(lambda run: run.snooze("1d")), "StepInTransaction", []),
        (lambda run: run.step("s", coroutine, atomic=True), "StepNotAtomic", []),
        (lambda run: run.step("s", partial(coroutine), atomic=True), "StepNotAtomic", []),
        (lambda run: run.step("s", coroutine), "StepInvalid", []),
        (lambda run: run.step("s", unstorable), "StepInvalid", []),
        (lambda run: run.wait_for_event("w", "paid", returns=Unstorable), "StepInvalid", []),
        (lambda run: run.step("", leave, "a"), "StepInvalid", []),
        (lambda run: run.step("x" * 201, leave, "a"), "StepInvalid", []),
        (lambda run: run.step("a\x00", leave, "a"), "StepInvalid", []),
        (lambda run: run.step(7, leave, "a"), "StepInvalid", []),
        (lambda run: run.step("s", leave("a")), "StepInvalid", ["a"]),
        (lambda run: run.sleep(float("nan")), "StepInvalid", []),
        (lambda run: run.sleep(float("inf")), "StepInvalid", []),
        (lambda run: run.sleep("soon"), "StepInvalid", []),
        (lambda run: run.wait_for_event("w", "paid", timeout=0), "StepInvalid", []),
        (lambda run: run.wait_for_event("w", "paid", match={"a": 1.5}), "EventInvalid", []),
        (lambda run: run.wait_for_event("w", " "), "EventInvalid", []),
        (lambda run: run.wait_for_event(None, "paid"), "StepInvalid", []),
        (lambda run: run.wait_for_event("w", "paid", timeout="soon"), "StepInvalid", []),
        (lambda run: run.step("s", lambda: {1, 2}), "ResultInvalid", []),
        (lambda run: run.step("s", leave, "a", returns=int), "ResultInvalid", ["a"]),
        (lambda run: run.step("s", leave, "a", returns=int, atomic=True), "ResultInvalid", []),
        (lambda run: run.step("s", lambda: "x" * 300_000), "ResultInvalid", []),
    ],
)
def test_what_cannot_work_is_refused_and_ends_the_job(work: Any, error: str, effects_left: list[str]) -> None:
    dead = failing(work, retry=Retry(attempts=2, delay=0))
    assert dead.stop == "terminal"
    assert dead.error_class == f"ultimat3_jobs.errors.{error}", dead.last_error
    assert effects() == effects_left
    assert "fix: " in dead.last_error


@pytest.mark.parametrize(
    ("work", "lacking"),
    [
        (lambda run: run.step("s", leave, "a"), Capability.STEPS),
        (lambda run: run.sleep("1d"), Capability.STEPS),
        (lambda run: run.wait_for_event("w", "paid"), Capability.STEPS),
        (lambda run: run.wait_for_event("w", "paid"), Capability.EVENTS),
    ],
)
def test_a_driver_that_records_nothing_refuses_it(
    monkeypatch: pytest.MonkeyPatch, work: Any, lacking: Capability
) -> None:
    monkeypatch.setattr(DatabaseDriver, "capabilities", DatabaseDriver.capabilities & ~lacking)

    dead = failing(work)

    assert dead.error_class == "ultimat3_jobs.errors.DriverUnavailable", dead.last_error
    assert lacking.name in dead.last_error
    assert effects() == []


@pytest.mark.parametrize("kind", ["step", "sleep", "type"])
def test_a_step_that_is_recorded_as_something_else_is_refused(kind: str) -> None:
    def body(run: Run, n: int) -> None:
        if run.attempt == 1:
            if kind == "sleep":
                run.sleep("same", 0)
            else:
                run.step("same", leave, "a")
            raise ValueError("a deploy comes between")
        if kind == "step":
            run.sleep("same", "1d")
        run.step("same", leave, "b", returns=int if kind == "type" else None)

    job = declare(body, retry=Retry(attempts=2, delay=0)).enqueue(n=1)
    run_due()
    assert row(job).error_class == "ultimat3_jobs.errors.StepChanged"
    assert "b" not in effects()


def test_what_a_step_raises_says_in_which_step() -> None:
    def fail() -> None:
        raise ValueError("no such order")

    dead = failing(lambda run: run.step("charge", fail))
    assert dead.error_class == "ValueError"
    assert "raised in step 'charge'" in dead.last_error


@pytest.mark.parametrize("how", ["autocommit", "statement"])
def test_a_step_that_leaves_a_transaction_open_has_failed(how: str) -> None:
    def open_one() -> None:
        if how == "autocommit":
            connection.set_autocommit(False)
        else:
            connection.cursor().execute("BEGIN")
        leave("a")

    dead = failing(lambda run: run.step("s", open_one))
    assert dead.error_class == "ultimat3_jobs.errors.TransactionBroken"
    assert not JobStep.objects.exists()
    assert effects() == []


@pytest.mark.parametrize("ask", [lambda run: run.sleep("1d"), lambda run: run.snooze("1d")])
def test_a_body_that_goes_on_after_the_signal_has_failed(ask: Any) -> None:
    def work(run: Run) -> None:
        with contextlib.suppress(BaseException):
            ask(run)
        leave("too early")

    assert failing(work).error_class == "ultimat3_jobs.errors.SignalSwallowed"


def test_a_body_that_goes_on_after_the_signal_does_no_further_step() -> None:
    def body(run: Run, n: int) -> None:
        with contextlib.suppress(BaseException):
            run.sleep("1d")
        run.step("after", leave, "a")

    job = declare(body).enqueue(n=1)
    run_due()
    assert row(job).state == "suspended"
    assert effects() == []


def test_an_exception_is_no_signal() -> None:
    def work(run: Run) -> None:
        try:
            run.sleep("1d")
        except BaseException as signal:
            raise ValueError("of its own") from signal

    assert failing(work).error_class == "ValueError"


@pytest.mark.parametrize("length", [0, -1, "0s"])
def test_a_sleep_of_no_length_is_over_at_once(length: Any) -> None:
    turns: list[int] = []

    def body(run: Run, n: int) -> None:
        turns.append(run.attempt)
        run.sleep("nap", length)
        run.sleep(length)
        run.sleep(length)

    job = declare(body).enqueue(n=1)
    run_due()
    assert row(job).state == "done"
    assert turns == [1]
    assert list(JobStep.objects.order_by("seq").values_list("name", flat=True)) == ["nap", "sleep-1", "sleep-2"]


def test_a_snooze_runs_the_attempt_again_and_records_nothing() -> None:
    attempts: list[int] = []

    def body(run: Run, n: int) -> None:
        attempts.append(run.attempt)
        if len(attempts) < 3:
            run.snooze(0)

    job = declare(body).enqueue(n=1)
    for _ in range(3):
        run_due()
    assert row(job).state == "done"
    assert attempts == [1, 1, 1]
    assert not JobStep.objects.exists()
    assert history(job) == []


def test_a_key_for_the_outside_is_the_same_on_each_attempt_and_no_other_steps() -> None:
    keys: list[tuple[str, str]] = []

    def body(run: Run, n: int) -> None:
        keys.append((run.step_key("charge"), run.step_key("refund")))
        if run.attempt == 1:
            raise ValueError("once more")

    declare(body, retry=AT_ONCE).enqueue(n=1)
    declare(body, name="t.other", retry=Retry(attempts=2, delay=0)).enqueue(n=1)
    run_due()
    assert len(keys) == 4
    assert len({key for pair in keys for key in pair}) == 4
    assert all(len(key) == 36 for pair in keys for key in pair)


@pytest.mark.parametrize("atomic", [False, True])
def test_a_run_that_was_cancelled_records_nothing_and_stops(atomic: bool, caplog: pytest.LogCaptureFixture) -> None:
    reached: list[str] = []

    def cancelled_meanwhile(run: Run) -> None:
        thread = threading.Thread(target=cancel, args=[run.id])
        if connection.vendor == "sqlite" and atomic:  # it has the write lock
            get_driver().cancel([run.id])
        else:
            thread.start()
            thread.join()
        leave("a")

    def body(run: Run, n: int) -> None:
        try:
            run.step("s", cancelled_meanwhile, run, atomic=atomic)
        finally:
            reached.append("unwound" if run.cancelled.is_set() else "went on")
        reached.append("behind")

    job = declare(body, retry=AT_ONCE).enqueue(n=1)
    run_due()
    assert reached == ["unwound"]
    assert not JobStep.objects.exists()
    assert effects() == ([] if atomic else ["a"])
    # Where the step itself has cancelled the job, in its own transaction, that went with it.
    undone = connection.vendor == "sqlite" and atomic
    assert row(job).state == ("running" if undone else "cancelled")
    assert [one.kind for one in history(job)] == ([] if undone else ["cancel"])
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def cancel(job_id: UUID) -> None:
    """Cancel a job from another connection."""
    try:
        get_driver().cancel([job_id])
    finally:
        connection.close()


class TestInAtomicJobs:
    """An atomic job is one transaction: atomic steps are parts of it, and everything else is refused."""

    def test_its_steps_commit_with_it(self) -> None:
        def body(run: Run, n: int) -> str:
            return str(run.step("a", leave, "a", atomic=True) + run.step("b", leave, "b", atomic=True))

        job = declare(body, atomic=True).enqueue(n=1)
        run_due()
        assert (row(job).state, row(job).result) == ("done", "ab")
        assert list(JobStep.objects.order_by("seq").values_list("name", "output")) == [("a", "a"), ("b", "b")]

    def test_its_steps_go_with_it(self) -> None:
        def work(run: Run) -> None:
            run.step("a", leave, "a", atomic=True)
            raise ValueError("late")

        failing(work, atomic=True)
        assert effects() == []
        assert not JobStep.objects.exists()

    def test_a_step_that_fails_can_be_undone_alone(self) -> None:
        def half() -> None:
            leave("half")
            raise ValueError("half-way")

        def body(run: Run, n: int) -> None:
            with contextlib.suppress(ValueError):
                run.step("half", half, atomic=True)
            leave("rest")

        job = declare(body, atomic=True).enqueue(n=1)
        run_due()
        assert row(job).state == "done"
        assert effects() == ["rest"]

    @pytest.mark.parametrize(
        "ask",
        [
            lambda run: run.step("s", leave, "a"),
            lambda run: run.sleep("1d"),
            lambda run: run.snooze("1d"),
            lambda run: run.wait_for_event("w", "paid"),
        ],
    )
    def test_what_lets_go_or_commits_by_itself_is_refused(self, ask: Any) -> None:
        assert failing(ask, atomic=True).error_class == "ultimat3_jobs.errors.StepNotAtomic"


def test_a_run_that_was_made_by_hand_says_so() -> None:
    run = Run(ClaimedJob(
        claim=Claim(UUID(int=1), UUID(int=2)), run_id=UUID(int=1), name="t.job", queue="default", input="{}",
        tenant_id=None, attempt=1, max_attempts=1, lapses=0, parks=0, enqueued_by="", traceparent="",
    ))  # fmt: skip
    with pytest.raises(RuntimeError, match="drain"):
        run.step("s", leave, "a")


def test_outputs_that_are_too_many_to_keep_are_read_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "BUDGET", 10)
    seen: list[str] = []

    def body(run: Run, n: int) -> None:
        seen.extend(run.step(label, leave, label) for label in ("first", "second", "third"))
        if run.attempt == 1:
            raise ValueError("once more")

    job = declare(body, retry=AT_ONCE).enqueue(n=1)
    run_due()
    assert row(job).state == "done"
    assert seen == ["first", "second", "third"] * 2
    assert effects() == ["first", "second", "third"]
