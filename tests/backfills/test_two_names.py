"""Two passes of one backfill, under two of its names: they never sweep at once, and neither waits for ever."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.app.models import Item
from tests.backfills.commanding import run
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.backfills.test_meeting_passes import ONCE, failing
from tests.backfills.test_rows import again, make_items
from tests.processes import wait_for
from tests.working import row, run_due, working
from ultimat3_jobs import EnqueueResult, Job, Run
from ultimat3_jobs.backfills import ledger as leases
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.inspection import repair
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobLease
from ultimat3_jobs.records import Claim, QueueSelection, RetryVerdict
from ultimat3_jobs.states import LIVE

pytestmark = pytest.mark.usefixtures("queue")

FAR, PAST = datetime(2999, 1, 1, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC)
DEAD_AND_LIVE = "is a pass of a backfill, and another pass of it is live"


def rename(job: JobRow | EnqueueResult, name: str = "t.old") -> UUID:
    """Have a pass be one that was queued before its backfill was renamed."""
    pk = job.id if isinstance(job, EnqueueResult) else job.pk
    JobRow.objects.filter(pk=pk).update(name=name)
    return pk


def dead_under_the_old_name() -> JobRow:
    """Return a pass that has landed a page of five rows and is dead, under an earlier name."""
    dead = sweep(declare(failing(1), Item, name="t.old", batch=5, retry=ONCE))
    assert dead.state == "dead"
    return dead


def renamed(handler: Any = None, **options: Any) -> Any:
    """Declare the same backfill under its new name."""
    return declare(handler, Item, **{"name": "t.new", "aliases": ["t.old"], "batch": 5, **options})


@pytest.mark.parametrize("from_step", [None, "sweep"])
def test_a_dead_pass_is_not_retried_while_another_of_its_backfill_is_live(from_step: str | None) -> None:
    make_items(10)
    dead = dead_under_the_old_name()
    live = sweep(renamed(failing(1)))
    assert live.state == "delayed"

    (refused,) = repair.retry([dead.pk], by="ann", reason="", from_step=from_step)

    assert (refused.done, refused.verdict, row(dead.pk).state) == (False, RetryVerdict.KEY_HELD, "dead")
    assert refused.error is not None
    assert refused.error.cause == f"job {dead.pk} {DEAD_AND_LIVE}: {live.pk}"
    assert refused.error.fix.startswith(f"python manage.py jobs retry {dead.pk}")
    assert again(live).state == "done"
    (retried,) = repair.retry([dead.pk], by="ann", reason="", from_step=from_step)
    assert retried.done
    run_due()
    assert "another pass" in row(dead.pk).result["skipped"]


@pytest.mark.parametrize("asked", ["older first", "newer first", "one twice"])
def test_of_the_dead_passes_of_a_backfill_a_bulk_retry_starts_the_newest(asked: str) -> None:
    make_items(10)
    older = dead_under_the_old_name().pk
    newer = sweep(renamed(failing(1), retry=ONCE)).pk
    other = sweep(declare(failing(1), Item, name="t.other", batch=5, retry=ONCE)).pk
    orders = {"older first": [older, newer, other], "newer first": [other, newer, older], "one twice": [newer, newer]}
    ids = orders[asked]

    outcomes = repair.retry(ids, by="ann", reason="")

    expected = {newer: "ready", other: "ready" if other in ids else "dead", older: "dead"}
    assert {one: row(one).state for one in expected} == expected
    assert [one.done for one in outcomes] == [
        number == ids.index(one) and one != older for number, one in enumerate(ids)
    ]
    assert [one.id for one in outcomes] == ids
    refused = next(one for one in outcomes if not one.done)
    assert refused.error is not None
    assert asked == "one twice" or str(newer) in refused.error.cause


def test_of_two_dead_passes_the_older_is_retried_where_the_newer_lacks_the_step() -> None:
    make_items(10)
    older = dead_under_the_old_name().pk
    newer = renamed().enqueue().id
    JobRow.objects.filter(pk=newer).update(state="dead")

    outcomes = repair.retry([older, newer], by="ann", reason="", from_step="sweep")

    assert [one.verdict for one in outcomes] == [RetryVerdict.RETRIED, RetryVerdict.NO_STEP]


def test_in_a_transaction_the_first_statement_of_a_retry_takes_its_turn(vendor: str) -> None:
    make_items(10)
    dead = dead_under_the_old_name()

    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        assert [one.done for one in repair.retry([dead.pk], by="ann", reason="")] == [True]

    first = next(one["sql"] for one in queries if not one["sql"].startswith(("BEGIN", "SAVEPOINT")))
    # On SQLite one that has read may not write once another has written.
    assert ("UPDATE" in first) is (vendor == "sqlite")


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("first", ["older", "younger"])
def test_two_passes_that_waited_for_one_another_both_end(exclusive: bool, first: str) -> None:
    make_items(10)
    older = dead_under_the_old_name()
    younger = sweep(renamed(failing(1), exclusive=exclusive))
    assert younger.state == "delayed", "it has landed a page, and keeps its table"
    JobLease.objects.filter(kind="backfill").delete()  # as a release leaves it that takes the table alone
    assert get_driver().retry([older.pk]) == [RetryVerdict.RETRIED]  # by code that does not know the new name

    pair = [older, younger] if first == "older" else [younger, older]
    for _ in range(2):
        for one in pair:
            JobRow.objects.filter(pk=next(each.pk for each in pair if each is not one)).update(run_at=FAR)
            again(row(one.pk))

    assert [row(one.pk).state for one in (older, younger)] == ["done", "done"]
    assert ledger(older).outcome == "completed"
    assert "another pass" in row(younger.pk).result["skipped"]
    assert handled(Item) == {1: 5, 2: 5}, "those five are of the page that the younger one had landed before"


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_pass_that_sweeps_is_not_joined_by_an_older_one_of_its_backfill(exclusive: bool) -> None:
    make_items(20)
    seen: list[tuple[str, str]] = []
    older: list[UUID] = []

    def handler(run: Run, rows: list[Item]) -> None:
        for one in rows:
            one.handled += 1
            one.save()

    def between() -> None:  # the pages of the one that sweeps
        if not older or ledger_pages() < 1:
            return
        if not seen:
            get_driver().retry(older)
            JobRow.objects.filter(pk__in=older, state="suspended").update(run_at=PAST)
            run_due()
            # Or the worker of the one that sweeps has taken it.
            wait_for(lambda: row(older[0]).state == "suspended", "it gives way")
            seen.append((row(older[0]).state, row(older[0]).park_reason))

    def ledger_pages() -> int:
        return sum(one.handled for one in Item.objects.all()) // 5

    # It died before its first page, as code before the renaming left it.
    started = declare(None, Item, name="t.old", batch=5).enqueue()
    JobRow.objects.filter(pk=started.id).update(state="dead")
    older.append(started.id)
    younger = sweep(renamed(handler, exclusive=exclusive, throttle=between))

    assert younger.state == "done"
    assert seen == [("suspended", f"another pass of it is live: {younger.pk}")]
    assert again(row(started.id)).state == "done"
    assert "another pass" in row(started.id).result["skipped"]
    assert handled(Item) == {1: 20}


def test_a_name_that_older_code_has_taken_is_waited_for_and_nothing_else_is_kept() -> None:
    make_items(10)
    other = declare(None, Item, name="t.old", batch=5)
    held = other.enqueue()
    # Its tenant differs: by the keys of their jobs nobody sees one from the other.
    JobRow.objects.filter(pk=held.id).update(tenant_id="acme", run_at=FAR, state="delayed")
    assert leases.take_name(held.run_id, "t.old")

    waits = sweep(renamed())

    assert (waits.state, waits.park_reason) == ("suspended", f"another pass of it is live: {held.run_id}")
    assert not JobLease.objects.filter(holder=waits.run_id.hex).exists()
    get_driver().cancel([held.id])
    assert again(waits).state == "done"


def test_who_waits_for_a_table_keeps_none_of_its_names() -> None:
    make_items(10)
    assert sweep(declare(failing(1), Item, name="t.other", batch=5)).state == "delayed"

    waits = sweep(renamed())

    assert waits.state == "suspended"
    assert not JobLease.objects.filter(holder=waits.run_id.hex).exists()


def test_a_pass_that_was_killed_goes_on_by_what_it_had_taken() -> None:
    make_items(10)
    first = sweep(renamed(failing(1)))
    held = set(JobLease.objects.filter(holder=first.run_id.hex).values_list("lease_key", flat=True))
    assert held == {"backfill:default:app_item", "backfill-name:t.new", "backfill-name:t.old"}

    assert again(first).state == "done"
    assert sweep(renamed(), forced=True).state == "done", "whoever has ended holds nothing"


def test_a_forced_pass_is_not_swept_beside_an_older_one() -> None:
    make_items(10)
    dead = dead_under_the_old_name()
    live = sweep(renamed(failing(1)), forced=True)

    assert [one.done for one in repair.retry([dead.pk], by="", reason="")] == [False]
    get_driver().retry([dead.pk])
    run_due()
    assert row(dead.pk).park_reason == f"another pass of it is live: {live.pk}"


def test_a_worker_that_comes_back_late_frees_nothing_of_the_next_attempt() -> None:
    started = renamed().enqueue()
    (claimed,) = get_driver().claim(worker="w", limit=1, lease=timedelta(minutes=1), queues=QueueSelection())
    assert claimed.run_id == started.run_id
    assert leases.take_name(started.run_id, "t.new")
    late = Claim(claimed.claim.id, started.id)

    for claim, left in ((late, True), (claimed.claim, False)):
        leases.let_go(claim, started.run_id, names=["t.new"], alias="default", tables=["app_item"])
        assert JobLease.objects.filter(lease_key="backfill-name:t.new").exists() is left


def test_long_names_that_begin_alike_are_two() -> None:
    one, other = declare(None, Item, name="t.one").enqueue(), declare(None, Item, name="t.other").enqueue()
    begin = "x" * 300

    assert leases.take_name(one.run_id, f"{begin}1")
    assert leases.take_name(other.run_id, f"{begin}2")
    assert not leases.take_name(other.run_id, f"{begin}1")
    assert leases.holder_of_name(f"{begin}1") == one.run_id
    assert leases.holder_of_name("of nobody") is None


@pytest.mark.parametrize("again", range(3))
def test_two_that_begin_at_once_sweep_each_row_once(again: int) -> None:
    make_items(40)
    backfill = renamed(exclusive=False, batch=2)
    older = backfill.enqueue()
    rename(older)
    pair = [older, Job.enqueue(backfill, forced=False)]
    with working(concurrency=2, burst=True) as worker:
        worker.ended()

    def swept() -> bool:
        JobRow.objects.filter(pk__in=[one.id for one in pair], state="suspended").update(run_at=PAST)
        run_due()
        return not any(row(one).state in LIVE for one in pair)

    wait_for(swept, "both have ended")
    assert [row(one).state for one in pair] == ["done", "done"]
    assert handled(Item) == {1: 40}


def test_a_pass_that_was_cancelled_is_followed_by_another() -> None:
    make_items(1)
    started = renamed().enqueue()
    JobRow.objects.filter(pk=started.id).update(state="cancelled")

    (refused,) = repair.retry([started.id], by="ann", reason="")

    assert refused.error is not None
    assert refused.error.fix == "python manage.py backfill t.new --write"
    assert "started: job" in run(*shlex.split(refused.error.fix)[3:])


def test_a_pass_that_has_completed_needs_no_other() -> None:
    make_items(1)
    done = sweep(renamed())

    (refused,) = repair.retry([done.pk], by="ann", reason="")

    assert refused.error is not None
    fix = "python manage.py backfill --list --name t.new  # what it came to; nothing is to be done"
    assert refused.error.fix == fix
    assert "t.new  completed" in run(*shlex.split(fix, comments=True)[3:])
