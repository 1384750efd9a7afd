"""What goes wrong in steps: bodies that spoil their connection, commits without an answer, conflicts, odd errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction

from tests.app.models import Effect, Organization
from tests.conftest import InThreads
from tests.worker.test_atomic import Commit, logged
from tests.worker.test_connections import (
    begin_a_transaction_behind_django,
    catch_an_integrity_error_in_a_block,
    change_the_session,
    close_the_connection,
    leave_a_transaction_open,
    turn_autocommit_off,
)
from tests.working import age, declare, history, row, run_due, states
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.steps import steps as module
from ultimat3_jobs.worker import loop

pytestmark = pytest.mark.usefixtures("queue")

LATER = Retry(attempts=3, delay="1h")
ONCE = Retry(attempts=1)


@pytest.fixture(autouse=True)
def _no_organizations(queue: None) -> Iterator[None]:
    yield
    Organization.objects.all().delete()


def leave(label: str) -> None:
    """Leave an effect."""
    Effect.objects.create(label=label)


def recorded() -> list[str]:
    """Return the names of all recorded steps."""
    return list(JobStep.objects.order_by("seq").values_list("name", flat=True))


SPOILERS: dict[Callable[[], None], tuple[bool, bool]] = {
    catch_an_integrity_error_in_a_block: (True, True),
    turn_autocommit_off: (False, False),
    close_the_connection: (True, False),
    leave_a_transaction_open: (False, False),
    begin_a_transaction_behind_django: (False, False),
}
"""What a step does to its connection, and whether a plain and an atomic one are recorded all the same."""


@pytest.mark.parametrize("spoil", [*SPOILERS, change_the_session], ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("atomic", [False, True])
def test_whatever_a_step_does_its_outcome_is_stored_and_the_next_job_gets_a_sound_connection(
    spoil: Callable[[], None], atomic: bool, vendor: str
) -> None:
    def body(run: Run, n: int) -> None:
        run.step("spoil", spoil, atomic=atomic)

    def following(run: Run, n: int) -> list[bool]:
        run.step("plain", leave, "next")
        run.step("atomic", leave, "next", atomic=True)
        return [connection.in_atomic_block, not connection.get_autocommit(), connection.needs_rollback]

    # Not on its last attempt: the mark of one is written first, which opens a connection or replaces one.
    first = declare(body, retry=Retry(attempts=2, terminal=(Exception,))).enqueue(1)
    second = declare(following, name="t.next", priority=-1, retry=LATER).enqueue(1)
    run_due(concurrency=1)

    # On PostgreSQL one that changed its search path looks for its own record elsewhere.
    well = SPOILERS[spoil][atomic] if spoil in SPOILERS else vendor == "sqlite"
    left = {"next"}
    if spoil is begin_a_transaction_behind_django and atomic and vendor == "postgresql":
        # Only a warning there: what follows is in the transaction of the step, and commits with it.
        well, left = True, {"next", "in a transaction that nobody commits"}
    assert row(first).state == ("done" if well else "dead"), row(first).last_error
    assert len(history(first)) == (0 if well else 1)
    assert (row(second).state, row(second).result) == ("done", [False] * 3)
    assert sorted(recorded()) == sorted([*["spoil"] * well, "plain", "atomic"])  # of two runs, each with its own order
    assert set(Effect.objects.values_list("label", flat=True)) == left


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_what_slips_past_except_exception_fails_a_step_and_leaves_the_worker_up(
    kind: type[BaseException], atomic: bool
) -> None:
    def fail() -> None:
        leave("before")
        raise kind

    def body(run: Run, n: int) -> None:
        run.step("fail", fail, atomic=atomic)

    failed = declare(body, retry=ONCE).enqueue(1)
    following = declare(lambda run, n: run.step("next", leave, "next"), name="t.next", priority=-1).enqueue(1)
    run_due(concurrency=1)

    assert (row(failed).state, row(following).state) == ("dead", "done")
    assert kind.__name__ in row(failed).last_error
    assert recorded() == ["next"]
    assert Effect.objects.filter(label="before").count() == (0 if atomic else 1)


MOMENT = datetime(2026, 3, 1, 12, 30, 15, 250, tzinfo=UTC)
VALUES: list[tuple[Any, Any, Any]] = [
    ((1, 2), None, [1, 2]),
    ((1, 2), tuple[int, int], (1, 2)),
    ({1: "a"}, dict[int, str], {1: "a"}),
    (UUID(int=7), UUID, UUID(int=7)),
    (UUID(int=7), None, str(UUID(int=7))),
    (Decimal("1.10"), Decimal, Decimal("1.10")),
    (MOMENT, datetime, MOMENT),
    (None, None, None),
]


@pytest.mark.parametrize("atomic", [False, True])
def test_first_run_and_replay_give_the_same_value_in_the_same_type(atomic: bool) -> None:
    seen: list[list[Any]] = []

    def body(run: Run, n: int) -> None:
        values = [
            run.step(f"step-{number}", lambda given=given: given, returns=returns, atomic=atomic)
            for number, (given, returns, _) in enumerate(VALUES)
        ]
        seen.append(values)
        if run.attempt == 1:
            raise ValueError("again")

    queued = declare(body, retry=Retry(attempts=2, delay=0)).enqueue(1)
    run_due()

    assert row(queued).state == "done", row(queued).last_error
    expected = [value for _, _, value in VALUES]
    assert seen == [expected, expected]
    assert [list(map(type, values)) for values in seen] == [list(map(type, expected))] * 2


def test_a_sleep_that_fell_due_while_no_worker_was_there_is_over_at_once() -> None:
    def body(run: Run, n: int) -> int:
        run.sleep("3d")
        return run.attempt

    queued = declare(body, retry=ONCE).enqueue(1)
    run_due()
    assert row(queued).state == "suspended"
    age(10 * 86_400, "run_at")
    past = {"sqlite": "'2001-01-01 00:00:00.000000'", "postgresql": "'2001-01-01+00'"}[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE x_job_steps SET until = {past}")
    run_due()

    assert (row(queued).state, row(queued).result, history(queued)) == ("done", 1, [])


@pytest.mark.parametrize("length", [0, -1, "0s"])
def test_a_sleep_of_nothing_or_less_is_over_without_letting_go(length: Any) -> None:
    starts: list[int] = []

    def body(run: Run, n: int) -> None:
        starts.append(run.attempt)
        run.sleep(length)

    queued = declare(body).enqueue(1)
    run_due()

    assert (row(queued).state, starts, recorded()) == ("done", [1], ["sleep-1"])


@pytest.mark.parametrize("length", [float("nan"), float("inf"), float("-inf"), "soon", None])
def test_a_sleep_of_no_length_is_refused(length: Any) -> None:
    queued = declare(lambda run, n: run.sleep("nap", length) if length is not None else run.sleep(length)).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).stop, recorded()) == ("dead", "terminal", [])
    assert "X_STEP_INVALID" in row(queued).last_error


@pytest.mark.parametrize("after", [True, False])
def test_the_commit_of_an_atomic_step_whose_answer_is_lost_is_recognised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, after: bool
) -> None:
    commit = Commit(monkeypatch, after=after)
    calls: list[int] = []

    class Arming(DatabaseDriver):
        def record_step(self, claim: Any, record: Any) -> Any:
            commit.armed_in = threading.current_thread()
            return super().record_step(claim, record)

    def work() -> str:
        calls.append(1)
        leave("once")
        return "worked"

    monkeypatch.setattr(loop, "get_driver", Arming)
    queued = declare(lambda run, n: run.step("step", work, atomic=True), retry=LATER).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).attempt) == ("done" if after else "delayed", 1)
    assert (len(calls), Effect.objects.count()) == (1, 1 if after else 0)
    assert len(history(queued)) == (0 if after else 1)
    assert len(logged(caplog, "jobs.atomic.error-after-commit")) == (1 if after else 0)


@pytest.mark.postgresql_only(reason="SQLite has no connection that a server can cut")
def test_a_connection_that_is_cut_at_the_commit_of_a_step_costs_no_attempt_and_no_second_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run suspends itself: what it had set on its connection is gone. It goes on behind the step."""
    calls: list[int] = []
    real = connection._commit.__func__  # type: ignore[attr-defined]
    cut: list[int] = []

    def commit(wrapper: Any) -> None:
        real(wrapper)
        if threading.get_ident() in recording and not cut:  # no other thread commits for the step
            cut.append(1)
            with wrapper.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    recording: list[int] = []
    starts: list[int] = []

    class Noting(DatabaseDriver):
        def record_step(self, claim: Any, record: Any) -> Any:
            recording.append(threading.get_ident())
            return super().record_step(claim, record)

    def work() -> str:
        calls.append(1)
        leave("once")
        return "worked"

    def body(run: Run, n: int) -> Any:
        starts.append(1)
        result = run.step("step", work, atomic=True)
        leave("behind")
        return result

    monkeypatch.setattr(type(connections["default"]), "_commit", commit)
    monkeypatch.setattr(loop, "get_driver", Noting)
    queued = declare(body, retry=ONCE).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).result, row(queued).attempt) == ("done", "worked", 1)
    assert (cut, calls, starts, history(queued)) == ([1], [1], [1, 1], [])
    assert sorted(Effect.objects.values_list("label", flat=True)) == ["behind", "once"]


def raise_in_the_database(code: str) -> None:
    """Have the server raise an error of a code."""
    with connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '{code}'; END $$")


@pytest.mark.postgresql_only(reason="SQLite ends no transaction for the sake of another")
@pytest.mark.parametrize(("code", "begun"), [("40001", module.TRIES), ("40P01", module.TRIES), ("55P03", 1)])
def test_an_atomic_step_is_begun_again_for_a_conflict_alone_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, code: str, begun: int
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.001)
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        leave("undone")
        raise_in_the_database(code)

    queued = declare(lambda run, n: run.step("step", work, atomic=True), retry=LATER).enqueue(1)
    run_due()

    assert (len(calls), row(queued).state, recorded(), Effect.objects.count()) == (begun, "delayed", [], 0)


@pytest.mark.postgresql_only(reason="SQLite ends no transaction for the sake of another")
def test_a_serialisation_failure_in_an_atomic_step_is_no_result_of_it(in_threads: InThreads) -> None:
    shared = Organization.objects.create(name="shared")
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        leave("once")
        list(Organization.objects.all())
        if len(calls) == 1:
            in_threads(lambda: Organization.objects.filter(pk=shared.pk).update(name="theirs"))
        Organization.objects.filter(pk=shared.pk).update(name="ours")
        return len(calls)

    queued = declare(lambda run, n: run.step("step", work, atomic=True), retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).result, row(queued).attempt) == ("done", 2, 1)
    assert (Effect.objects.count(), recorded(), history(queued)) == (1, ["step"], [])
    assert Organization.objects.get().name == "ours"


@pytest.mark.postgresql_only(reason="SQLite has one writer, who deadlocks with nobody")
def test_a_deadlock_in_an_atomic_step_is_no_result_of_it(in_threads: InThreads) -> None:
    """Two real sessions, each with a row that the other one wants; that of the step finds out first, and is ended."""
    one, two = (Organization.objects.create(name=name) for name in ("one", "two"))
    both_hold = threading.Barrier(2, timeout=30)
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL deadlock_timeout = '50ms'")
        leave("once")
        Organization.objects.filter(pk=one.pk).update(name="one of ours")
        if len(calls) == 1:
            both_hold.wait()
        Organization.objects.filter(pk=two.pk).update(name="two of ours")
        return len(calls)

    def other() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '30s'")
            Organization.objects.filter(pk=two.pk).update(name="two of theirs")
            both_hold.wait()
            Organization.objects.filter(pk=one.pk).update(name="one of theirs")

    queued = declare(lambda run, n: run.step("step", work, atomic=True), retry=ONCE).enqueue(1)
    in_threads(run_due, other)

    assert (row(queued).state, row(queued).result) == ("done", 2)
    assert (Effect.objects.count(), recorded(), states()) == (1, ["step"], {"done": 1})
    assert set(Organization.objects.values_list("name", flat=True)) == {"one of ours", "two of ours"}


@pytest.mark.postgresql_only(reason="SQLite has one writer: nobody can take the job meanwhile")
def test_the_record_of_a_step_waits_for_whoever_takes_the_job_away_and_is_refused(in_threads: InThreads) -> None:
    """Without the lock it would be recorded: the row looks as it did before whoever takes it away commits."""
    locked, go = threading.Event(), threading.Event()

    def work() -> None:
        leave("never")
        go.set()
        assert locked.wait(30)

    def thief() -> None:
        assert go.wait(30)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE x_jobs SET claim_token = gen_random_uuid()")
            locked.set()
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
            for _ in range(1_000):
                cursor.execute(waiting)
                if cursor.fetchall():
                    return
                threading.Event().wait(0.01)
            raise AssertionError("the record waits for nobody")

    declare(lambda run, n: run.step("step", work, atomic=True), retry=ONCE).enqueue(1)
    in_threads(run_due, thief)

    assert (recorded(), Effect.objects.count(), states()) == ([], 0, {"running": 1})


@pytest.mark.parametrize(
    ("statement", "atomic", "state"),
    [
        ("DELETE FROM x_job_events", True, "dead"),
        ("SELECT count(*) FROM x_job_events", True, "done"),
        ("DELETE FROM x_job_events", False, "done"),
    ],
)
def test_an_atomic_step_writes_to_no_other_database(
    second_database: str, statement: str, atomic: bool, state: str
) -> None:
    """It would not commit with the step: what is read there, and what plain steps write, is theirs."""

    def work() -> None:
        leave("here")
        with connections[second_database].cursor() as cursor:
            cursor.execute(statement)

    queued = declare(lambda run, n: run.step("step", work, atomic=atomic), retry=ONCE).enqueue(1)
    run_due(concurrency=1)

    assert row(queued).state == state
    assert ("X_STEP_NOT_ATOMIC" in row(queued).last_error) is (state == "dead")
    assert Effect.objects.count() == len(recorded()) == (state == "done")
