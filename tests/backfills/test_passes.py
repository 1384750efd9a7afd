"""Which passes may start, and what a pass does that may not any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models import F
from django.test import override_settings

from tests.app.models import Item, Place, Restaurant
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.declaring import error_of, refused
from tests.processes import wait_for
from tests.working import row, run_due
from ultimat3_jobs import Backfill, Job, JobCall, Retry
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.records import RetryVerdict

pytestmark = pytest.mark.usefixtures("queue")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def items(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(4))


def test_a_completed_backfill_is_not_swept_again_unless_forced() -> None:
    backfill = declare(None, Item)
    first = sweep(backfill)

    refused("X_BACKFILL_APPLIED", backfill.enqueue)
    second = sweep(backfill, forced=True)

    assert (handled(Item), Ledger.objects.count()) == ({2: 4}, 2)
    assert (ledger(first).forced, ledger(second).forced) == (False, True)
    assert ledger(second).outcome == "completed"


def told(row_of: Ledger) -> dict[str, Any]:
    """What the ledger says of a pass, but for whose it is and when."""
    values = Ledger.objects.filter(pk=row_of.pk).values().get()
    return {name: value for name, value in values.items() if name != "run_id" and not name.endswith("_at")}


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("at", ["the first page", "the last page", "the count"])
def test_a_row_of_the_ledger_that_was_deleted_under_its_pass_is_opened_anew(at: str, atomic: bool) -> None:
    calls: list[str] = []
    there: list[bool] = []

    def reach(here: str) -> None:
        calls.append(here)
        if len(calls) > 5 and here == at:
            Ledger.objects.all().delete()

    def work(run: Any, rows: list[Item]) -> None:
        there.append(Ledger.objects.exists())
        reach({0: "the first page", 3: "the last page"}.get(rows[0].number, "between"))
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)

    def count() -> int:
        reach("the count")
        return 0

    backfill = declare(work, Item, batch=1, atomic=atomic, count=count)
    undisturbed = told(ledger(sweep(backfill)))
    started = backfill.enqueue(forced=True)
    run_due()

    assert (row(started).state, there) == ("done", [True] * 8)
    assert told(ledger(row(started))) == {**undisturbed, "forced": True}
    assert undisturbed["outcome"] == "completed"


def test_a_row_of_the_ledger_that_was_deleted_between_two_attempts_is_opened_as_far_as_the_pass_is() -> None:
    seen: list[dict[str, Any]] = []

    def work(run: Any, rows: list[Item]) -> None:
        seen.append(told(Ledger.objects.get()))
        if len(seen) == 2:
            raise LookupError("on purpose")

    dead = sweep(declare(work, Item, batch=1, retry=Retry(attempts=1)))
    Ledger.objects.all().delete()
    get_driver().retry([dead.pk])
    run_due()

    assert row(dead.pk).state == "done"
    assert seen[2] == seen[1]
    assert seen[2]["processed"] == 1


def test_a_pass_that_comes_too_late_sweeps_nothing_and_is_no_failure() -> None:
    backfill = declare(None, Item)
    with transaction.atomic():
        late = backfill.enqueue()  # staged: nobody knows of it yet
    Ledger.objects.create(
        run_id="0" * 32,
        name="t.backfill",
        table="app_item",
        batch=1,
        outcome="completed",
        created_at=NOW,
        updated_at=NOW,
    )
    run_due()

    assert (row(late).state, handled(Item)) == ("done", {0: 4})
    assert "has completed" in row(late).result["skipped"]
    assert not Ledger.objects.filter(run_id=late.run_id).exists()


@pytest.mark.parametrize("environment", ["", "production"])
def test_a_wrong_environment_is_refused_before_the_enqueue_and_in_the_pass(environment: str) -> None:
    backfill = declare(None, Item, environments=["staging"])
    with override_settings(ULTIMAT3_JOBS={"ENVIRONMENT": environment}):
        refused("X_BACKFILL_ENVIRONMENT", backfill.enqueue)
    with override_settings(ULTIMAT3_JOBS={"ENVIRONMENT": "staging"}):
        started = backfill.enqueue()
    with override_settings(ULTIMAT3_JOBS={"ENVIRONMENT": environment}):
        run_due()

    dead = row(started)
    assert (dead.state, dead.stop, handled(Item)) == ("dead", "terminal", {0: 4})
    assert "X_BACKFILL_ENVIRONMENT" in dead.last_error


WAYS: dict[str, Callable[[Backfill], object]] = {
    "enqueue": lambda one: one.enqueue(),
    "aenqueue": lambda one: async_to_sync(one.aenqueue)(),
    "call": lambda one: one.call().enqueue(),
    "using": lambda one: one.using(priority=3).enqueue(),
    "using, then call": lambda one: one.using(priority=3).on_behalf_of("ann").call(forced=True).enqueue(),
}


@pytest.mark.parametrize("enqueue", WAYS.values(), ids=WAYS)
def test_every_way_to_enqueue_a_pass_goes_through_the_gate(enqueue: Callable[[Backfill], Any]) -> None:
    backfill = declare(None, Item, environments=["staging"])

    refused("X_BACKFILL_ENVIRONMENT", lambda: enqueue(backfill))
    with override_settings(ULTIMAT3_JOBS={"ENVIRONMENT": "staging"}):
        started = enqueue(backfill)
        refused("X_BACKFILL_RUNNING", lambda: enqueue(backfill))
        run_due()

    assert (row(started).state, handled(Item)) == ("done", {1: 4})


def test_a_pass_as_a_value_keeps_what_its_handle_was_told_and_is_judged_where_it_is_enqueued() -> None:
    backfill = declare(None, Item)
    plain, forced = backfill.call(), backfill.using(priority=3).on_behalf_of("ann").call(forced=True)
    assert isinstance(plain, JobCall)
    sweep(backfill)

    refused("X_BACKFILL_APPLIED", plain.enqueue)
    started = row(forced.enqueue())

    assert (started.priority, started.enqueued_by, started.input) == (3, "ann", {"forced": True})


def test_of_two_that_are_called_at_once_one_is_told_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = declare(None, Item)
    one, other = backfill.call(), backfill.call()
    judged = backfill.judged
    monkeypatch.setattr(backfill, "judged", lambda **options: (judged(**options), one.handle.using().enqueue())[0])

    assert "is live already" in error_of("X_BACKFILL_RUNNING", other.enqueue).cause


def test_several_passes_at_once_are_refused() -> None:
    backfill = declare(None, Item)

    for attempt in (lambda: backfill.enqueue_many([{}]), lambda: async_to_sync(backfill.aenqueue_many)([{}])):
        error = refused("X_JOB_NOT_CALLABLE", attempt)
        assert error.fix == "body.enqueue()"


def test_a_migration_that_is_not_applied_is_refused() -> None:
    refused("X_BACKFILL_MIGRATION_PENDING", declare(None, Item, requires=("catalogs", "0999_none")).enqueue)

    assert sweep(declare(None, Item, name="t.b", requires=("catalogs", "0001_initial"))).state == "done"


@pytest.mark.parametrize("answer", [-1, None, True, False, float("nan"), 0.0, "0", object()])
def test_a_count_that_is_none_completes_nothing(answer: Any) -> None:
    done = sweep(declare(None, Item, count=lambda: answer))

    assert (done.state, done.stop, ledger(done).outcome) == ("dead", "terminal", "")
    assert "X_BACKFILL_COUNT_INVALID" in done.last_error


def test_a_pass_that_leaves_rows_has_stalled_and_another_may_start() -> None:
    left = iter([3, 0])
    backfill = declare(None, Item, count=lambda: next(left))
    done = sweep(backfill)

    assert (done.state, ledger(done).outcome) == ("dead", "")
    assert "X_BACKFILL_STALLED" in done.last_error
    assert "3 are left" in done.last_error
    again = sweep(backfill)
    assert (again.state, ledger(again).outcome, handled(Item)) == ("done", "completed", {2: 4})


def test_a_dead_pass_that_is_retried_after_another_has_completed_sweeps_nothing() -> None:
    fails = True

    def handler(run: Any, rows: list[Item]) -> None:
        if fails and rows[0].number == 2:
            raise RuntimeError("not yet")
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)

    backfill = declare(handler, Item, batch=2, retry=Retry(attempts=1))
    dead = sweep(backfill)
    assert (dead.state, handled(Item)) == ("dead", {0: 2, 1: 2})
    fails = False
    assert sweep(backfill).state == "done"
    assert get_driver().retry([dead.pk]) == [RetryVerdict.RETRIED]
    run_due()

    assert (row(dead.pk).state, handled(Item)) == ("done", {1: 2, 2: 2})
    assert "another pass" in row(dead.pk).result["skipped"]
    assert ledger(dead).outcome == ""


def test_of_two_live_passes_under_two_names_the_older_goes_on_and_the_other_after_it() -> None:
    waits_for: list[Any] = []

    def throttle() -> None:  # the older one stays until the other has looked
        for other in waits_for:
            wait_for(lambda other=other: row(other).state == "suspended", "the younger one lets go")

    backfill = declare(None, Item, aliases=["t.old"], throttle=throttle)
    older = backfill.enqueue()
    type(row(older)).objects.filter(pk=older.id).update(name="t.old")
    younger = Job.enqueue(backfill, forced=False)
    waits_for.append(younger)
    run_due()
    waits_for.clear()

    assert (row(older).state, row(younger).state) == ("done", "suspended")
    assert row(younger).park_reason == f"an older pass of it is live: {older.id}"
    type(row(older)).objects.filter(pk=younger.id).update(run_at=row(younger).created_at)
    run_due()
    assert (row(younger).state, handled(Item)) == ("done", {1: 4})


def test_a_pass_takes_the_tables_of_its_models_parents_too() -> None:
    Restaurant.objects.create(name="one")
    slow = declare(None, Place, name="t.places", rate=0.001, batch=1)
    Place.objects.create(name="two")
    assert sweep(slow).state == "suspended"

    waits = sweep(declare(None, Restaurant, name="t.restaurants"))

    assert (waits.state, handled(Restaurant)) == ("suspended", {1: 1})
    assert "app_place" in waits.park_reason
