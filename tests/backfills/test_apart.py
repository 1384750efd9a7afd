"""Rows in another database than the queue's: at least once, and the cursor never ahead of them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import Error, IntegrityError, connections, transaction

from tests.app.models import Effect, Item
from tests.backfills.killing import CHILD, declare_sweep
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.backfills.test_kills import LONG, QUIET, lapse, make_items
from tests.backfills.test_rows import again
from tests.processes import Processes
from tests.worker.test_atomic import Commit
from tests.working import row, run_due
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.worker import loop

LATER = Retry(attempts=2, delay="1h")


@pytest.fixture
def elsewhere(queue: None, second_database: str) -> Iterator[str]:
    """Twelve items in the second database; its alias."""
    second = second_database
    with connections[second].schema_editor() as editor:
        editor.create_model(Item)
    Item.objects.using(second).bulk_create(Item(number=number) for number in range(12))
    yield second
    with connections[second].schema_editor() as editor:
        editor.delete_model(Item)


def handled_there(alias: str) -> list[int]:
    """Return how often each row was handled, in their order."""
    return list(Item.objects.using(alias).order_by("pk").values_list("handled", flat=True))


def add_one(rows: list[Item]) -> None:
    """Handle rows where they are."""
    for one in rows:
        one.handled += 1
        one.save()


class Watched(DatabaseDriver):
    """A queue that looks, whenever a cursor is written, whether its rows are there."""

    alias = ""
    behind: list[tuple[int, int]] = []

    def checkpoint(self, claim: Any, record: Any) -> bool:
        from ultimat3_jobs.backfills.cursor import parse

        done = sum(count > 0 for count in handled_there(self.alias))
        self.behind.append((parse(record.output, record.run_id).handled, done))
        return super().checkpoint(claim, record)


@pytest.fixture
def watched(elsewhere: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """What each cursor said was handled, and how many rows were then."""
    Watched.alias, Watched.behind = elsewhere, []
    monkeypatch.setattr(loop, "get_driver", Watched)
    yield Watched.behind
    assert all(said <= there for said, there in Watched.behind), Watched.behind


def test_rows_of_another_database_are_swept_there(elsewhere: str, watched: list[Any]) -> None:
    done = sweep(declare(lambda run, rows: add_one(rows), Item, source=Item.objects.using(elsewhere).all, batch=5))

    assert (done.state, handled_there(elsewhere)) == ("done", [1] * 12)
    assert (ledger(done).outcome, ledger(done).processed, watched[-1]) == ("completed", 12, (12, 12))


def test_a_page_whose_cursor_could_not_be_moved_is_handled_again(
    elsewhere: str, watched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Watched.checkpoint
    fails = [True]

    def failing(driver: Any, claim: Any, record: Any) -> bool:
        if '"handled":10' in record.output and fails:
            fails.clear()
            raise Error("the queue is gone")
        return checkpoint(driver, claim, record)

    monkeypatch.setattr(Watched, "checkpoint", failing)
    source = Item.objects.using(elsewhere).all
    failed = sweep(declare(lambda run, rows: add_one(rows), Item, source=source, batch=5, retry=LATER))
    assert (failed.state, ledger(failed).processed) == ("delayed", 5)
    done = again(failed)

    assert (done.state, handled_there(elsewhere)) == ("done", [1] * 5 + [2] * 5 + [1] * 2)
    assert ledger(done).processed == 12


@pytest.mark.parametrize("after", [True, False])
def test_a_commit_whose_answer_is_lost_is_not_believed(
    elsewhere: str, watched: list[Any], monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    commit = Commit(monkeypatch, after=after)
    pages: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        pages.append(len(rows))
        add_one(rows)
        if len(pages) == 2:
            commit.armed_in = threading.current_thread()

    failed = sweep(declare(handler, Item, source=Item.objects.using(elsewhere).all, batch=5, retry=LATER))
    assert (failed.state, handled_there(elsewhere)) == (
        "delayed",
        [1] * (10 if after else 5) + [0] * (2 if after else 7),
    )
    done = again(failed)

    assert (done.state, handled_there(elsewhere)) == ("done", [1] * 5 + [2 if after else 1] * 5 + [1] * 2)


def break_the_transaction(alias: str) -> None:
    with contextlib.suppress(IntegrityError):
        Item.objects.using(alias).create(pk=Item.objects.using(alias).first().pk)  # type: ignore[union-attr]


def leave_a_block_open(alias: str) -> None:
    transaction.atomic(using=alias).__enter__()


def close_it(alias: str) -> None:
    connections[alias].close()


def undo_it(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("ROLLBACK")


@pytest.mark.parametrize("spoil", [break_the_transaction, leave_a_block_open, close_it, undo_it])
def test_a_page_that_could_not_commit_there_keeps_the_cursor_where_it_was(
    elsewhere: str, watched: list[Any], spoil: Any
) -> None:
    pages: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        pages.append(len(rows))
        if len(pages) != 2 or spoil is not undo_it:
            add_one(rows)
        if len(pages) == 2:
            spoil(elsewhere)

    failed = sweep(declare(handler, Item, source=Item.objects.using(elsewhere).all, batch=5, retry=LATER))

    assert (failed.state, handled_there(elsewhere)) == ("delayed", [1] * 5 + [0] * 7)
    assert JobStep.objects.get(run_id=failed.run_id).output["handled"] == 5
    assert again(failed).state == "done"
    assert handled_there(elsewhere) == [1] * 12


def test_a_page_with_its_cursor_refuses_writes_elsewhere_and_one_apart_does_not(elsewhere: str) -> None:
    make_items(5)
    target = Item.objects.using(elsewhere)

    def handler(run: Run, rows: list[Item]) -> None:
        add_one(rows)
        target.filter(number=1).update(note="copied")

    refused = sweep(declare(handler, Item, name="t.atomic", retry=Retry(attempts=1)))
    assert (refused.state, handled(Item), target.filter(note="copied").exists()) == ("dead", {0: 5}, False)
    assert "X_STEP_NOT_ATOMIC" in refused.last_error
    assert "atomic=False" in refused.last_error

    done = sweep(declare(handler, Item, name="t.apart", atomic=False))
    assert (done.state, handled(Item), target.filter(note="copied").count()) == ("done", {1: 5}, 1)


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(("point", "twice"), [("written", 0), ("told", 10), ("moved", 10), ("committed", 0)])
def test_a_process_that_is_killed_in_a_page_apart_loses_none(processes: Processes, point: str, twice: int) -> None:
    """What it was killed with once it had committed is handled again; a page before that is as if it never was."""
    make_items(40)
    started = declare_sweep(atomic=False).enqueue()
    worker = processes.django(CHILD, point, "1", "SIGKILL", "0", jobs=LONG, env=QUIET)
    assert worker.wait() == -signal.SIGKILL
    lapse(started)
    run_due()

    assert row(started).state == "done"
    assert handled(Item) == ({1: 40 - twice, 2: twice} if twice else {1: 40})
    assert not Effect.objects.exists()
    assert ledger(row(started)).processed == 40
