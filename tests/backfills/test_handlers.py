"""What handlers do to their page, their transaction and their worker; attempts; and a backfill's own count."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from tests.app.models import Effect, Item, Organization
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.backfills.test_rows import add_one, again, make_items
from tests.declaring import error_of
from tests.worker.test_atomic import PAST_DJANGO
from tests.working import declare as declare_job
from tests.working import history, row, run_due
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.inspection.preview import preview
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.testing import drain

pytestmark = pytest.mark.usefixtures("queue")

ONCE = Retry(attempts=1)


def break_it() -> None:
    """Break a rule of the database."""
    Organization.objects.create(name="twice")
    Organization.objects.create(name="twice")


def catch_an_integrity_error(run: Run, rows: list[Item]) -> None:
    with contextlib.suppress(IntegrityError):
        break_it()


def catch_an_error_behind_django(run: Run, rows: list[Item]) -> None:
    with contextlib.suppress(Exception), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")
    if connection.vendor == "sqlite":  # where such an error breaks nothing
        transaction.set_rollback(True)


def leave_a_block_open(run: Run, rows: list[Item]) -> None:
    transaction.atomic().__enter__()
    Effect.objects.create(label="in a block")


def close_the_connection(run: Run, rows: list[Item]) -> None:
    connection.close()


def end_it(run: Run, rows: list[Item]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("COMMIT")


def undo_it(run: Run, rows: list[Item]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ROLLBACK")


def return_a_coroutine(run: Run, rows: list[Item]) -> Any:
    async def work() -> None: ...

    return work()


def take_a_step(run: Run, rows: list[Item]) -> None:
    run.step("step", str)


def take_an_atomic_step(run: Run, rows: list[Item]) -> None:
    run.step("step", str, atomic=True)


def sleep(run: Run, rows: list[Item]) -> None:
    run.sleep("1h")


def wait_for_an_event(run: Run, rows: list[Item]) -> None:
    run.wait_for_event("it", "happened")


def snooze(run: Run, rows: list[Item]) -> None:
    run.snooze("1h")


def raise_one(kind: type[BaseException]) -> Any:
    def fail(run: Run, rows: list[Item]) -> None:
        raise kind("no such luck")

    return fail


SPOILERS: dict[Any, str] = {
    catch_an_integrity_error: "ransaction",
    catch_an_error_behind_django: "ransaction",
    leave_a_block_open: "left a transaction.atomic() block open",
    close_the_connection: "",
    end_it: "would end the transaction",
    undo_it: "would end the transaction",
    return_a_coroutine: "returned a coroutine",
    take_a_step: "was asked for inside a page of backfill t.backfill",
    take_an_atomic_step: "was asked for inside a page of backfill t.backfill",
    sleep: "was asked for inside a page of backfill t.backfill",
    wait_for_an_event: "was asked for inside a page of backfill t.backfill",
    snooze: "was asked for inside a page of backfill t.backfill",
    raise_one(SystemExit): "SystemExit",
    raise_one(KeyboardInterrupt): "KeyboardInterrupt",
    raise_one(MemoryError): "MemoryError",
    raise_one(GeneratorExit): "GeneratorExit",
}


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda one: one.__name__)
def test_whatever_a_handler_does_its_page_is_undone_and_the_pass_stands_where_it_stood(
    spoil: Any, atomic: bool
) -> None:
    """The cursor above all: one behind a page that is not there would leave rows out for good."""
    make_items(12)
    pages: list[int] = []

    def handler(run: Run, rows: list[Item]) -> Any:
        pages.append(len(rows))
        if len(pages) != 2:
            return add_one(rows)
        if spoil is not undo_it:
            add_one(rows)
        return spoil(run, rows)

    failed = sweep(declare(handler, Item, batch=5, atomic=atomic, retry=ONCE))
    following = declare_job(lambda run, n: connection.in_atomic_block, name="t.next").enqueue(1)
    run_due(concurrency=1)

    assert failed.state == "dead"
    assert SPOILERS[spoil] in failed.last_error
    assert (row(following).state, row(following).result) == ("done", False)
    assert handled(Item) == {0: 7, 1: 5}
    assert (JobStep.objects.get().output["handled"], ledger(failed).processed) == (5, 5)
    assert not Effect.objects.exists()
    assert get_driver().retry([failed.pk]) == ["retried"]
    run_due()
    assert (row(failed.pk).state, handled(Item), pages) == ("done", {1: 12}, [5, 5, 5, 2])
    Organization.objects.all().delete()


def test_a_page_that_hides_an_error_of_the_database_says_why_it_cannot_commit() -> None:
    make_items(5)

    failed = sweep(declare(catch_an_error_behind_django, Item, atomic=False, retry=ONCE))

    assert "caught an error of the database, and its transaction cannot commit" in failed.last_error


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("end", PAST_DJANGO, ids=lambda one: one.__name__)
def test_a_handler_that_ends_the_transaction_past_django_has_failed_and_what_it_committed_is_told(
    end: Callable[[], None], atomic: bool
) -> None:
    make_items(12)
    pages: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        pages.append(len(rows))
        add_one(rows)
        if len(pages) == 2:
            end()

    failed = sweep(declare(handler, Item, batch=5, atomic=atomic, retry=ONCE))

    assert (failed.state, failed.error_class) == ("dead", "ultimat3_jobs.errors.TransactionBroken")
    assert "what it committed so stays written" in failed.last_error
    assert (JobStep.objects.get().output["handled"], ledger(failed).processed) == (5, 5)


def test_a_handler_that_raises_behind_its_own_commit_is_told_so() -> None:
    make_items(5)

    def handler(run: Run, rows: list[Item]) -> None:
        add_one(rows)
        connection.connection.commit()
        raise LookupError("no such thing")

    failed = sweep(declare(handler, Item, retry=ONCE))

    assert (failed.error_class, handled(Item)) == ("LookupError", {1: 5})
    assert "had ended its transaction: what it committed stays written" in failed.last_error


def test_hooks_of_a_page_run_once_for_each_that_landed_and_cannot_undo_it() -> None:
    make_items(12)
    hooks: list[int] = []
    pages: list[int] = []

    def hook(number: int) -> None:
        hooks.append(number)
        if number == 3:
            raise RuntimeError("too late")

    def handler(run: Run, rows: list[Item]) -> None:
        pages.append(len(rows))
        transaction.on_commit(partial(hook, len(pages)))
        add_one(rows)
        if len(pages) == 2:
            raise ValueError("not yet")

    done = again(sweep(declare(handler, Item, batch=5)))

    assert (done.state, handled(Item), hooks) == ("done", {1: 12}, [1, 3, 4])


def test_a_page_that_lands_lets_the_attempts_count_anew_and_one_that_never_does_ends_the_pass() -> None:
    keys = make_items(20)
    failures: dict[int, int] = {}
    attempts: list[int] = []
    most = {0: 2, 5: 2, 10: 2, 15: 100}  # failures of each page, by its first row

    def handler(run: Run, rows: list[Item]) -> None:
        first = keys.index(rows[0].pk)
        attempts.append(run.attempt)
        add_one(rows)
        if failures.setdefault(first, 0) < most[first]:
            failures[first] += 1
            raise LookupError("on purpose")

    backfill = declare(handler, Item, batch=5, retry=Retry(attempts=3, delay=0))
    dead = sweep(backfill)

    assert (dead.state, dead.stop, dead.attempt) == ("dead", "attempts-exhausted", 3)
    assert attempts == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert handled(Item) == {0: 5, 1: 15}
    assert "LookupError: on purpose" in dead.last_error
    assert "in handler" in dead.last_error
    assert f"its rows: app_item with the keys {keys[15]} to {keys[19]}" in dead.last_error
    assert len(history(dead.pk)) == 9

    most[15] = 0
    assert get_driver().retry([dead.pk]) == ["retried"]
    run_due()

    assert (row(dead.pk).state, handled(Item), ledger(dead).processed) == ("done", {1: 20}, 20)


def test_a_retry_from_the_sweep_starts_over_and_its_preview_says_what_it_would_forget() -> None:
    make_items(20)
    fails = [True]
    processed: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        processed.append(Ledger.objects.get().processed)
        add_one(rows)
        if fails[0] and len(processed) == 3:
            raise LookupError("on purpose")

    dead = sweep(declare(handler, Item, batch=5, retry=ONCE))
    make_items(5)
    goes_on, over = preview(dead.pk, None), preview(dead.pk, "sweep")
    assert (goes_on.kept, goes_on.again) == ([("sweep", "cursor")], [])
    assert (over.kept, over.again) == ([], [("sweep", "cursor")])

    fails[0] = False
    assert get_driver().retry([dead.pk], from_step="sweep") == ["retried"]
    run_due()

    assert (row(dead.pk).state, handled(Item)) == ("done", {1: 15, 2: 10})
    assert processed == [0, 5, 10, 0, 5, 10, 15, 20]
    assert (ledger(dead).processed, ledger(dead).total) == (25, 25)


def test_a_cursor_that_says_all_is_done_is_not_swept_again() -> None:
    """Its worker died before it could say so: the handler and the count are not asked."""
    make_items(10)
    counts: list[int] = []

    def count() -> int:
        counts.append(1)
        return 0

    done = sweep(declare(None, Item, batch=5, count=count))
    assert done.state == "done"
    JobRow.objects.filter(pk=done.pk).update(state="ready", finished_at=None, claim_token=None, attempt=0, result=None)
    make_items(5)

    run_due()

    assert (row(done.pk).state, row(done.pk).result) == ("done", {"handled": 10, "pages": 2})
    assert (handled(Item), counts) == ({0: 5, 1: 10}, [1])


class Whole:
    """A number of its own kind, as those of numpy are."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize(
    "answer", [-1, float("nan"), float("inf"), None, True, False, 2.5, 0.0, "3", "", b"0", [], Whole(-1), object()]
)
def test_a_count_that_is_none_ends_the_pass_and_it_has_not_completed(answer: Any) -> None:
    make_items(5)

    dead = sweep(declare(None, Item, count=lambda: answer))

    assert (dead.state, dead.stop, handled(Item)) == ("dead", "terminal", {1: 5})
    assert "X_BACKFILL_COUNT_INVALID" in dead.last_error
    assert (ledger(dead).outcome, ledger(dead).finished_at, ledger(dead).processed) == ("", None, 5)
    assert JobStep.objects.get().state == "waiting"


@pytest.mark.parametrize("answer", [0, Whole(0)])
def test_a_count_of_nothing_completes_the_pass(answer: Any) -> None:
    make_items(5)

    done = sweep(declare(None, Item, count=lambda: answer))

    assert (done.state, ledger(done).outcome) == ("done", "completed")


@pytest.mark.parametrize("answer", [1, 10**30, Whole(3)])
def test_rows_that_are_left_stall_the_pass_and_a_new_one_can_be_started(answer: Any) -> None:
    make_items(5)
    left = [answer, 0]
    backfill = declare(None, Item, count=lambda: left.pop(0))

    stalled = sweep(backfill)

    assert (stalled.state, stalled.stop) == ("dead", "terminal")
    assert "X_BACKFILL_STALLED" in stalled.last_error
    assert ledger(stalled).outcome == ""
    done = sweep(backfill)
    assert (done.state, ledger(done).outcome, handled(Item)) == ("done", "completed", {2: 5})
    assert Ledger.objects.count() == 2


def test_a_count_that_raises_is_asked_again_and_nothing_is_swept_again() -> None:
    make_items(5)
    answers: list[Any] = [OSError("the other service is down"), 0]

    def count() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    failed = sweep(declare(None, Item, count=count))
    assert (failed.state, handled(Item)) == ("delayed", {1: 5})

    done = again(failed)

    assert (done.state, handled(Item), answers) == ("done", {1: 5}, [])


def test_a_handler_that_is_called_past_its_page_is_none() -> None:
    backfill = declare(None, Item)

    error = error_of("X_JOB_NOT_CALLABLE", lambda: backfill(None, []))

    assert ".func(run, rows)" in error.fix


def test_rows_are_saved_whole_without_losing_what_was_set_by_the_database() -> None:
    make_items(6)

    def handler(run: Run, rows: list[Item]) -> None:
        for one in rows:
            one.handled = F("handled") + 1
            one.note = f"{run.attempt} of {run.max_attempts}"
            one.save()

    done = sweep(declare(handler, Item, batch=4))

    assert (done.state, handled(Item)) == ("done", {1: 6})
    assert set(Item.objects.values_list("note", flat=True)) == {"1 of 10"}


@pytest.mark.parametrize("batch", [1, 2])
def test_a_key_that_does_not_come_back_as_it_is_ends_the_pass(batch: int) -> None:
    make_items(3)

    def lose(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Have the keys be greater in the database than what is read of them."""
        return execute(sql.replace('"app_item"."id" >', '"app_item"."id" >='), params, many, context)

    started = declare(None, Item, batch=batch, retry=ONCE).enqueue()
    with connection.execute_wrapper(lose):
        drain(raise_errors=False)

    assert row(started).state == "dead"
    assert "would not get past it" in row(started).last_error


def test_a_handler_that_empties_its_list_has_handled_its_rows() -> None:
    make_items(3)

    assert sweep(declare(lambda run, rows: rows.clear(), Item)).result == {"handled": 3, "pages": 1}


async def _later() -> Any:
    yield


@pytest.mark.parametrize("lazy", [lambda: (one for one in ()), _later], ids=["generator", "async generator"])
def test_a_handler_that_returns_what_nobody_runs_has_failed(lazy: Any) -> None:
    make_items(3)

    done = sweep(declare(lambda run, rows: lazy(), Item, retry=ONCE))

    assert (done.state, handled(Item)) == ("dead", {0: 3})
    assert "which nobody runs" in done.last_error
