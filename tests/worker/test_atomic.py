"""Atomic jobs: what a body writes and its ack commit together, fenced on the claim, or neither does."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext
from psycopg import sql

from tests.app.models import Effect, Organization
from tests.composing import Money, teach_money
from tests.conftest import InThreads
from tests.processes import wait_for
from tests.working import age, declare, history, row, run_due, working
from ultimat3_jobs import NO_TENANT, Aborted, AsyncRun, Retry, Run, job, marks
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.errors import DeclarationInvalid, JobsError
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep, OutboxEntry
from ultimat3_jobs.records import Ack, QueueSelection
from ultimat3_jobs.worker import atomic, loop
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight

pytestmark = pytest.mark.usefixtures("queue")

ONCE = Retry(attempts=1)


def write(run: Run, n: int) -> None:
    """Leave an effect."""
    Effect.objects.create(label="written", attempt=run.attempt)


def written() -> int:
    """Return how many effects there are."""
    return Effect.objects.filter(label="written").count()


def take_over() -> None:
    """Do, on this connection, what another worker does with a job whose worker went silent."""
    with transaction.atomic():  # or the worker of the test may claim what is swept before this one does
        age(60, "visible_at")
        get_driver().sweep(limit=10)
        (job,) = get_driver().claim(worker="w2", limit=1, lease=timedelta(seconds=30), queues=QueueSelection())
    assert get_driver().ack([Ack(job.claim, '"by another"')]) == [True]


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the fields of each event of this name."""
    return [record.fields for record in caplog.records if getattr(record, "event", "") == event]  # type: ignore[attr-defined]


def test_what_a_body_writes_and_its_result_are_there_together() -> None:
    def body(run: Run, n: int) -> dict[str, int]:
        assert connection.in_atomic_block
        write(run, n)
        return {"n": n}

    queued = declare(body, atomic=True).enqueue(7)
    run_due()

    assert (row(queued).state, row(queued).result, row(queued).attempt) == ("done", {"n": 7}, 1)
    assert written() == 1
    assert history(queued) == []


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        " -- all of it\n/* now */ rollback work;",
        "END",
        "ABORT",
        "PREPARE TRANSACTION 'later'",
        "SELECT 1; COMMIT;",
        "SELECT 1; COMMIT; BEGIN",
        "SELECT 1; commit and chain",
        "SELECT 1; END",
        "SELECT 1; COMMIT -- done",
        "SELECT '--';\n/* ; */ Rollback;;",
    ],
)
def test_a_body_cannot_end_the_transaction_of_its_ack(statement: str) -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        with contextlib.suppress(JobsError), connection.cursor() as cursor:
            cursor.execute(statement)
        assert connection.in_atomic_block
        write(run, n)
        with connection.cursor() as cursor:
            cursor.execute(statement)

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).error_class) == ("dead", "ultimat3_jobs.errors.TransactionBroken")
    assert written() == 0


def test_savepoints_are_the_affair_of_an_atomic_body() -> None:
    def body(run: Run, n: int) -> None:
        with contextlib.suppress(ValueError), transaction.atomic():
            write(run, n)
            raise ValueError
        with connection.cursor() as cursor:
            for statement in ("SAVEPOINT mine", "ROLLBACK TO mine", "ROLLBACK TRANSACTION TO SAVEPOINT mine"):
                cursor.execute(statement)
            cursor.execute("SELECT '; rollback' /* ; commit */")
        write(run, n)

    queued = declare(body, atomic=True).enqueue(1)
    run_due()

    assert (row(queued).state, written()) == ("done", 1)


def commit_in_a_script() -> None:
    """End the transaction past Django, with the driver's own cursor, and begin another one."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.executescript("SELECT 1; BEGIN")  # it commits before it begins
        else:
            cursor.cursor.execute("COMMIT; BEGIN")


def commit_by_the_driver() -> None:
    connection.connection.commit()


def commit_and_go_on() -> None:
    connection.connection.commit()
    Effect.objects.create(label="later")


def end_the_block() -> None:
    connection.atomic_blocks[-1].__exit__(None, None, None)


def close() -> None:
    """Close the connection in the middle of its transaction, which is undone."""
    if connection.vendor == "sqlite":
        connection.connection.rollback()  # which the close puts off, as long as anybody still has a cursor
    connection.close()


def open_another() -> None:
    close()
    connection.connect()
    Effect.objects.create(label="written")


PAST_DJANGO = [commit_in_a_script, commit_by_the_driver, commit_and_go_on, end_the_block, open_another]


@pytest.mark.parametrize("end", PAST_DJANGO, ids=lambda one: one.__name__)
def test_a_body_that_ends_the_transaction_past_django_has_failed(end: Callable[[], None]) -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        end()

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).error_class) == ("dead", "ultimat3_jobs.errors.TransactionBroken")
    assert "what it committed so stays written" in row(queued).last_error
    assert written() == 1


@pytest.mark.parametrize("end", PAST_DJANGO, ids=lambda one: one.__name__)
def test_a_step_that_ends_the_transaction_past_django_is_not_recorded(end: Callable[[], None]) -> None:
    def step() -> None:
        Effect.objects.create(label="written")
        end()

    queued = declare(lambda run, n: run.step("s", step, atomic=True), retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).error_class) == ("dead", "ultimat3_jobs.errors.TransactionBroken")
    assert not JobStep.objects.exists()


@pytest.mark.postgresql_only(reason="SQLite has no levels of isolation to choose from")
def test_a_body_chooses_its_level_of_isolation() -> None:
    def body(run: Run, n: int) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            cursor.execute("SHOW transaction_isolation")
            return str(cursor.fetchone()[0])

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).result) == ("done", "serializable")


@pytest.mark.postgresql_only(reason="SQLite's statements make no round trip")
def test_that_the_transaction_is_the_same_is_asked_with_the_first_statement_of_its_fence() -> None:
    def fence() -> bool:
        get_driver().stats()
        return bool(JobRow.objects.count() == 0)

    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        marked = marks.mark(connection)
        assert marked.holds_with(fence) == (True, True)
        asked = ["current_setting" in one["sql"] for one in captured.captured_queries]
        assert asked == [True, False]

        assert marked.holds_with(lambda: True) == (True, True), "a fence without a statement"
        connection.cursor().execute("SET LOCAL ultimat3_jobs.transaction = 'of another'")
        assert marked.holds_with(fence) == (False, True)
        assert marked.holds_with(lambda: True) == (False, True)


@pytest.mark.parametrize("savepoint", [True, False])
def test_a_body_that_leaves_a_block_open_has_failed(savepoint: bool) -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        transaction.atomic(savepoint=savepoint).__enter__()
        write(run, n)

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).error_class) == ("dead", "ultimat3_jobs.errors.TransactionBroken")
    assert written() == 0


def test_a_body_that_fails_in_a_block_it_left_open_leaves_nothing_open() -> None:
    declare(write, atomic=True).enqueue(1)
    lease = timedelta(seconds=30)
    (claimed,) = get_driver().claim(worker="w", limit=1, lease=lease, queues=QueueSelection())
    ending = atomic.AtomicEnding(get_driver(), Inflight(), ActiveRun(claimed, confirmed_at=0.0), lease=lease)

    def body() -> None:
        with ending.transaction():
            transaction.atomic().__enter__()
            raise ValueError("halfway")

    with pytest.raises(ValueError, match="halfway"):
        body()

    assert not connection.in_atomic_block
    assert not connection.savepoint_ids


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), Aborted("stop")], ids=repr)
def test_a_body_that_raises_leaves_nothing(error: BaseException) -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        raise error

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, len(history(queued))) == ("dead", 1)
    assert written() == 0


def test_work_that_a_body_enqueues_shares_its_fate() -> None:
    follower = declare(lambda run, n: None, name="t.follower")

    def body(run: Run, n: int) -> None:
        assert follower.enqueue(n).staged
        if run.attempt == 1:
            raise ValueError("not yet")

    declare(body, atomic=True, retry=Retry(attempts=2, delay=0)).enqueue(1)
    run_due(relay=False)

    assert OutboxEntry.objects.count() == 1


def test_a_result_that_cannot_be_stored_rolls_back_and_is_not_tried_again() -> None:
    def body(run: Run, n: int) -> object:
        write(run, n)
        return object()

    queued = declare(body, atomic=True).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).stop, row(queued).attempt) == ("dead", "terminal", 1)
    assert "what it wrote is rolled back" in row(queued).last_error
    assert written() == 0


@pytest.mark.postgresql_only(reason="on SQLite nobody else can write while an atomic body works")
def test_a_body_whose_job_another_worker_ended_leaves_nothing(
    in_threads: InThreads, caplog: pytest.LogCaptureFixture
) -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        in_threads(take_over)

    queued = declare(body, atomic=True).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).result, row(queued).claimed_by) == ("done", "by another", "w2")
    assert written() == 0
    assert [fields["at"] for fields in logged(caplog, "jobs.lease.lost")] == ["commit"]


def test_a_body_whose_job_another_worker_ended_before_it_began_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = loop.execute

    def later(*given: Any, **rest: Any) -> Any:
        take_over()
        return real(*given, **rest)

    monkeypatch.setattr(loop, "execute", later)
    queued = declare(write, atomic=True).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).result) == ("done", "by another")
    assert written() == 0
    assert [fields["at"] for fields in logged(caplog, "jobs.lease.lost")] == ["commit"]


def test_a_body_that_the_drain_has_handed_back_leaves_nothing(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "DRAIN_TIMEOUT": "10ms"}
    begun, go = threading.Event(), threading.Event()

    def body(run: Run, n: int) -> None:
        begun.set()
        assert go.wait(30)
        write(run, n)

    queued = declare(body, atomic=True).enqueue(1)
    with working(relay=False) as running:
        assert begun.wait(30)
        go_on = threading.Timer(0.3, go.set)  # SQLite: the drain can write only once the body's transaction is over
        if connection.vendor == "sqlite":
            go_on.start()
        running.stop()
        running.ended()
        go.set()
    bodies = [thread for thread in threading.enumerate() if thread.name.startswith("ultimat3_jobs.body")]
    wait_for(lambda: not any(thread.is_alive() for thread in bodies), "the body has ended")

    assert (row(queued).state, row(queued).attempt, written()) == ("ready", 0, 0)


class Commit:
    """Makes the first commit fail on which a job is done, before or after it took place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
        self.armed_in: threading.Thread | None = None
        real = BaseDatabaseWrapper._commit  # type: ignore[attr-defined]

        def commit(wrapper: BaseDatabaseWrapper) -> None:
            if self.armed_in is not threading.current_thread():
                real(wrapper)
                return
            self.armed_in = None
            if after:
                real(wrapper)
            raise OperationalError("the connection is gone")

        monkeypatch.setattr(BaseDatabaseWrapper, "_commit", commit)


@pytest.mark.parametrize("after", [True, False])
def test_a_commit_whose_answer_is_lost_is_known_by_what_it_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, after: bool
) -> None:
    commit = Commit(monkeypatch, after=after)

    class Arming(DatabaseDriver):
        def ack(self, acks: Any) -> list[bool]:
            commit.armed_in = threading.current_thread()
            return super().ack(acks)

    monkeypatch.setattr(loop, "get_driver", Arming)
    queued = declare(write, atomic=True, retry=Retry(attempts=3, delay="1h")).enqueue(1)
    run_due()

    assert row(queued).state == ("done" if after else "delayed")
    assert written() == (1 if after else 0)
    assert len(history(queued)) == (0 if after else 1)
    assert len(logged(caplog, "jobs.atomic.error-after-commit")) == (1 if after else 0)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_hook_that_fails_after_the_commit_costs_no_second_run(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def hook() -> None:
        raise kind("the hook")

    def body(run: Run, n: int) -> None:
        write(run, n)
        transaction.on_commit(hook)

    queued = declare(body, atomic=True).enqueue(1)
    run_due()

    assert (row(queued).state, written(), history(queued)) == ("done", 1, [])
    assert [fields["error"] for fields in logged(caplog, "jobs.atomic.error-after-commit")] == [kind.__name__]
    assert logged(caplog, "jobs.job.retrying") == []


@pytest.mark.postgresql_only(reason="SQLite locks the whole database, not a row")
def test_no_lock_is_held_on_the_row_while_the_body_works(in_threads: InThreads) -> None:
    def lock() -> str:
        with transaction.atomic():
            return JobRow.objects.select_for_update(nowait=True).get().state

    def body(run: Run, n: int) -> None:
        write(run, n)
        assert in_threads(lock) == ["running"]

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).last_error) == ("done", "")


def test_the_ack_is_the_last_statement_of_the_transaction() -> None:
    statements: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    def body(run: Run, n: int) -> None:
        connection.execute_wrappers.append(note)
        write(run, n)

    declare(body, atomic=True).enqueue(1)
    run_due(concurrency=1)

    assert [("x_jobs" in sql, "state = 'done'" in sql) for sql in statements] == [(False, False), (True, True)]


@pytest.mark.postgresql_only(reason="SQLite goes on after a statement that failed")
def test_a_body_that_hides_a_failed_statement_fails_and_leaves_nothing() -> None:
    Organization.objects.create(name="taken")

    def body(run: Run, n: int) -> None:
        write(run, n)
        with contextlib.suppress(IntegrityError):
            Organization.objects.create(name="taken")

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    other = declare(write, name="t.other", atomic=True).enqueue(2)
    run_due(concurrency=1)

    assert (row(queued).state, row(other).state, written()) == ("dead", "done", 1)


def test_a_body_that_calls_for_a_rollback_fails_and_leaves_nothing() -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        transaction.set_rollback(True)

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, written()) == ("dead", 0)
    assert "called set_rollback(True): its transaction cannot commit" in row(queued).last_error


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_body_that_closes_its_connection_fails_with_that_as_the_reason(goes_on: bool) -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        close()
        if goes_on:
            write(run, n)

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, written()) == ("dead", 0)
    assert "closed the connection of its transaction: what it wrote is undone" in row(queued).last_error


@pytest.mark.postgresql_only(reason="SQLite's driver composes no statements")
def test_an_end_beside_a_value_that_the_connection_alone_can_write_is_refused() -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        teach_money()
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT {}; COMMIT").format(sql.Literal(Money())))

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).error_class) == ("dead", "ultimat3_jobs.errors.TransactionBroken")
    assert written() == 0


@pytest.mark.postgresql_only(reason="SQLite has neither roles nor schemas")
@pytest.mark.parametrize("local", ["ROLE pg_monitor", "search_path TO pg_catalog"])
@pytest.mark.parametrize("sets_back", [True, False])
def test_a_body_may_set_a_role_or_a_search_path_and_sets_it_back(local: str, sets_back: bool) -> None:
    def body(run: Run, n: int) -> None:
        write(run, n)
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL {local}")
            if sets_back:
                cursor.execute("SET LOCAL ROLE NONE; SET LOCAL search_path TO DEFAULT")

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, written()) == (("done", 1) if sets_back else ("dead", 0))
    told = "SET LOCAL ROLE NONE; SET LOCAL search_path TO DEFAULT  -- before it ends"
    assert (told in row(queued).last_error) is not sets_back


@pytest.mark.sqlite_only(reason="on SQLite a transaction that has read may not write once another has written")
def test_a_body_that_reads_before_it_writes_never_meets_a_locked_database(
    monkeypatch: pytest.MonkeyPatch, in_threads: InThreads
) -> None:
    # As in a project that leaves the mode out: one that begins IMMEDIATE has its turn anyway.
    monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "transaction_mode", "DEFERRED")

    def another() -> str:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 50")
            try:
                Effect.objects.create(label="other")
            except OperationalError:
                return "waits"
        return "has written"

    def body(run: Run, n: int) -> None:
        written()
        assert in_threads(another) == ["waits"]
        write(run, n)

    queued = declare(body, atomic=True, retry=ONCE).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).last_error, written()) == ("done", "", 1)


@pytest.mark.parametrize(("long", "leases_a_body"), [(0.0, 3), (60.0, 1e9), (60.0, 3)])
def test_a_long_body_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, long: float, leases_a_body: float
) -> None:
    """A body over five seconds; and on SQLite one that is long beside the lease."""
    monkeypatch.setattr(atomic, "LONG", long)
    monkeypatch.setattr(atomic, "LEASES_A_BODY", leases_a_body)
    queued = declare(lambda run, n: None, atomic=True).enqueue(1)
    run_due(concurrency=1)

    assert row(queued).state == "done"
    warned = bool(logged(caplog, "jobs.atomic.long"))
    assert warned is (not long or (leases_a_body > 3 and connection.vendor == "sqlite"))


def test_a_driver_that_shares_no_transaction_runs_no_atomic_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Apart(DatabaseDriver):
        capabilities = Capability.INTROSPECT

    monkeypatch.setattr(loop, "get_driver", Apart)
    queued = declare(write, atomic=True, retry=ONCE).enqueue(1)
    run_due()

    assert (row(queued).state, row(queued).error_class) == ("dead", "ultimat3_jobs.errors.DriverUnavailable")
    assert written() == 0


def test_a_plain_job_opens_no_transaction() -> None:
    seen: list[bool] = []
    queued = declare(lambda run, n: seen.append(connection.in_atomic_block)).enqueue(1)
    run_due()

    assert (row(queued).state, seen) == ("done", [False])


def test_atomic_is_true_or_false_and_is_described() -> None:
    assert declare(write, name="t.atomic", atomic=True).describe()["atomic"] is True
    assert declare(write, name="t.plain").describe()["atomic"] is False
    with pytest.raises(DeclarationInvalid, match="atomic=1 is neither True nor False"):
        declare(write, name="t.other", atomic=1)


def test_an_async_body_cannot_be_atomic() -> None:
    async def body(run: AsyncRun, n: int) -> None: ...

    with pytest.raises(DeclarationInvalid, match="no transaction that a coroutine can be in"):
        job(name="t.async", idempotency_key="{n}", tenant=NO_TENANT, atomic=True)(body)


def test_what_is_logged_tells_of_the_job_that_is_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ultimat3_jobs")
    queued = declare(write, atomic=True).enqueue(1)
    run_due()

    assert [fields["job"] for fields in logged(caplog, "jobs.job.done")] == [queued.id]
