"""Deadlocks, conflicts, lost answers, cut connections, statements that take too long: in a page and between pages."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction

from tests.app.models import Item, Organization
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.backfills.test_rows import add_one, again, make_items
from tests.conftest import InThreads
from tests.worker.test_atomic import Commit, logged
from tests.worker.test_step_faults import raise_in_the_database
from tests.working import history, row, run_due
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.backfills import pages as module
from ultimat3_jobs.backfills.turns import Turns
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.worker import loop

pytestmark = pytest.mark.usefixtures("queue")

ONCE = Retry(attempts=1)
ON_POSTGRESQL = pytest.mark.postgresql_only(reason="SQLite ends no transaction for the sake of another")
WITH_SESSIONS = pytest.mark.postgresql_only(reason="SQLite has no sessions that a server could cut or bound")


@ON_POSTGRESQL
@pytest.mark.parametrize("atomic", [True, False])
def test_a_deadlock_in_a_page_is_no_result_of_it(in_threads: InThreads, atomic: bool) -> None:
    """Two real sessions, each with rows that the other one wants; that of the page finds out first, and is ended."""
    keys = make_items(20)
    other_row = Organization.objects.create(name="one")
    both_hold = threading.Barrier(2, timeout=30)
    calls: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        calls.append(len(rows))
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL deadlock_timeout = '50ms'")
        add_one(rows)
        if len(calls) == 2:
            both_hold.wait()
        if len(calls) > 1:
            Organization.objects.filter(pk=other_row.pk).update(name=f"of page {len(calls)}")

    def other() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '30s'")
            Organization.objects.filter(pk=other_row.pk).update(name="theirs")
            both_hold.wait()
            Item.objects.filter(pk=keys[12]).update(note="theirs")

    started = declare(handler, Item, batch=10, retry=ONCE, atomic=atomic).enqueue()
    in_threads(run_due, other)

    assert (row(started).state, handled(Item), calls) == ("done", {1: 20}, [10, 10, 10])
    assert Item.objects.get(note="theirs").pk == keys[12]
    assert history(started) == []
    Organization.objects.all().delete()


@ON_POSTGRESQL
def test_a_serialisation_failure_in_a_page_is_no_result_of_it(in_threads: InThreads) -> None:
    make_items(10)
    shared = Organization.objects.create(name="shared")
    calls: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        calls.append(1)
        add_one(rows)
        if len(calls) == 2:
            raise_in_the_database("40001")
        Organization.objects.filter(pk=shared.pk).update(name=f"{len(calls)}")

    done = sweep(declare(handler, Item, batch=5, retry=ONCE))

    assert (done.state, handled(Item), len(calls), history(done.pk)) == ("done", {1: 10}, 3, [])
    Organization.objects.all().delete()


@ON_POSTGRESQL
@pytest.mark.parametrize(("code", "begun"), [("40001", module.TRIES), ("40P01", module.TRIES), ("55P03", 1)])
def test_a_page_is_begun_again_for_a_conflict_alone_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, code: str, begun: int
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.001)
    keys = make_items(10)
    calls: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        calls.append(1)
        add_one(rows)
        raise_in_the_database(code)

    failed = sweep(declare(handler, Item, batch=5, retry=Retry(attempts=2, delay="1h")))

    assert (failed.state, len(calls), handled(Item)) == ("delayed", begun, {0: 10})
    assert f"with the keys {keys[0]} to {keys[4]}" in failed.last_error


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_commit_of_a_page_whose_answer_is_lost_is_recognised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, after: bool, at: int
) -> None:
    commit = Commit(monkeypatch, after=after)
    make_items(15)
    calls: list[int] = []

    class Arming(DatabaseDriver):
        def checkpoint(self, claim: Any, record: Any) -> bool:
            if len(calls) == at and '"finished":true' not in (record.output or ""):
                commit.armed_in = threading.current_thread()
            return super().checkpoint(claim, record)

    def handler(run: Run, rows: list[Item]) -> None:
        calls.append(1)
        add_one(rows)

    monkeypatch.setattr(loop, "get_driver", Arming)
    done = sweep(declare(handler, Item, batch=5, retry=Retry(attempts=2, delay="1h")))

    assert (done.state, done.attempt) == ("done" if after else "delayed", 1)
    assert handled(Item) == ({1: 15} if after else {0: 20 - 5 * at, 1: 5 * at - 5} if at > 1 else {0: 15})
    assert len(history(done.pk)) == (0 if after else 1)
    assert len(logged(caplog, "jobs.atomic.error-after-commit")) == (1 if after else 0)
    done = done if after else again(done)
    assert (done.state, handled(Item), ledger(done).processed) == ("done", {1: 15}, 15)
    assert JobStep.objects.get().output["handled"] == 15


def cut_off() -> None:
    """Have the server end the session of this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@WITH_SESSIONS
@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("where", ["inside", "between", "at the commit"])
def test_a_connection_that_is_cut_loses_no_page_and_does_none_twice(
    monkeypatch: pytest.MonkeyPatch, where: str, atomic: bool
) -> None:
    make_items(15)
    calls: list[int] = []
    cuts: list[int] = []

    def cut(here: str) -> None:
        if here == where and len(calls) == 2 and not cuts:
            cuts.append(1)
            cut_off()

    def handler(run: Run, rows: list[Item]) -> None:
        calls.append(1)
        add_one(rows)
        cut("inside")

    turn, real = Turns.await_next, type(connections["default"])._commit
    checkpoint = DatabaseDriver.checkpoint
    ending = threading.local()

    def waiting(turns: Turns, rows: Any) -> None:
        cut("between")
        turn(turns, rows)

    def committing(wrapper: Any) -> None:
        real(wrapper)
        if getattr(ending, "now", False):
            ending.now = False
            cut("at the commit")

    def moving(driver: Any, claim: Any, record: Any) -> bool:
        ending.now = True
        return checkpoint(driver, claim, record)

    monkeypatch.setattr(Turns, "await_next", waiting)
    monkeypatch.setattr(type(connections["default"]), "_commit", committing)
    monkeypatch.setattr(DatabaseDriver, "checkpoint", moving)
    left = sweep(declare(handler, Item, batch=5, atomic=atomic, retry=Retry(attempts=2, delay=0)))
    done = left if left.state == "done" else again(left)

    assert (done.state, cuts) == ("done", [1]), done.last_error
    assert (handled(Item), len(calls)) == ({1: 15}, 4 if where == "inside" else 3)
    assert ledger(done).processed == 15


class Bounded:
    """The time that statements may take, for the sessions of one test.

    Args:
        milliseconds: as long as that.
    """

    def __init__(self, milliseconds: int) -> None:
        self._limit = milliseconds

    def __enter__(self) -> None:
        connections["default"].settings_dict["OPTIONS"]["options"] = f"-c statement_timeout={self._limit}"
        connections["default"].close()

    def __exit__(self, *_: object) -> None:
        del connections["default"].settings_dict["OPTIONS"]["options"]
        connections["default"].close()


@WITH_SESSIONS
@pytest.mark.parametrize("atomic", [True, False])
def test_a_page_that_takes_too_long_is_split_down_to_what_fits_and_grows_again(atomic: bool) -> None:
    """Ten rows a time limit of which each takes a tenth and a half; later rows take nothing."""
    keys = make_items(80)
    sizes: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        sizes.append(len(rows))
        slow = sum(0.12 for one in rows if one.pk < keys[8])
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [slow])
        add_one(rows)

    with Bounded(400):
        done = sweep(declare(handler, Item, batch=8, retry=ONCE, atomic=atomic))

    assert (done.state, handled(Item), history(done.pk)) == ("done", {1: 80}, []), done.last_error
    assert sizes[:4] == [8, 4, 2, 2]
    assert 8 in sizes[4:]


@WITH_SESSIONS
def test_a_page_that_cannot_be_split_fails_with_its_row_and_what_the_server_said() -> None:
    keys = make_items(3)

    def handler(run: Run, rows: list[Item]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [5 if rows[-1].pk >= keys[1] else 0])
        add_one(rows)

    with Bounded(100):
        dead = sweep(declare(handler, Item, batch=4, retry=ONCE))

    assert (dead.state, handled(Item)) == ("dead", {0: 2, 1: 1})
    assert "canceling statement due to statement timeout" in dead.last_error
    assert f"with the keys {keys[1]} to {keys[1]}" in dead.last_error


@WITH_SESSIONS
def test_a_split_page_is_remembered_by_the_run_that_goes_on() -> None:
    make_items(8)
    sizes: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        sizes.append(len(rows))
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [0.08 * len(rows)])
        add_one(rows)
        if len(sizes) == 4:
            raise LookupError("on purpose")

    with Bounded(250):
        done = again(sweep(declare(handler, Item, batch=8)))

    assert (done.state, handled(Item)) == ("done", {1: 8}), done.last_error
    assert sizes == [8, 4, 2, 2, 2, 2, 2]


def test_a_rule_that_is_checked_at_the_commit_undoes_the_page() -> None:
    """The cursor with it: the fence has held already, and yet the page is not there."""
    from tests.app.models import Restaurant

    keys = make_items(10)
    calls: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        calls.append(1)
        add_one(rows)
        if len(calls) == 2:
            Restaurant.objects.create(name="nowhere", owner_id=10**9)

    failed = sweep(declare(handler, Item, batch=5, retry=Retry(attempts=2, delay="1h")))

    assert (failed.state, handled(Item)) == ("delayed", {0: 5, 1: 5})
    assert "IntegrityError" in failed.error_class
    assert f"with the keys {keys[5]} to {keys[9]}" in failed.last_error
    done = again(failed)
    assert (done.state, handled(Item), len(calls)) == ("done", {1: 10}, 3)
