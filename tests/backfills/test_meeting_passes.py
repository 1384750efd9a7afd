"""Several passes at once: one live pass a name, one a table, and who waits for whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from tests.app.models import Item, Token
from tests.backfills.sweeping import declare, handled, sweep
from tests.backfills.test_rows import again, make_items
from tests.conftest import InThreads
from tests.working import declare as declare_job
from tests.working import history, row, run_due
from ultimat3_jobs import EnqueueResult, Retry, Run
from ultimat3_jobs.backfills.ledger import take_table
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import BackfillRunning
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep

pytestmark = pytest.mark.usefixtures("queue")

ONCE = Retry(attempts=1)


def failing(times: int, batch: int = 5) -> Any:
    """Return a handler that fails on its second page so many times."""
    calls: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        calls.append(len(rows))
        if 2 <= len(calls) < 2 + times:
            raise LookupError("on purpose")
        for one in rows:
            one.handled += 1
            one.save()

    return handler


def test_of_two_passes_started_at_once_one_is_and_the_other_is_told_which(in_threads: InThreads) -> None:
    backfill = declare(None, Item)

    def start() -> EnqueueResult | BackfillRunning:
        try:
            return backfill.enqueue()
        except BackfillRunning as error:
            return error

    results = in_threads(start, start, start)

    (started,) = [one for one in results if isinstance(one, EnqueueResult)]
    assert [str(started.id) in one.cause for one in results if isinstance(one, BackfillRunning)] == [True, True]
    assert (JobRow.objects.count(), Ledger.objects.count(), JobStep.objects.count()) == (1, 0, 0)
    assert history(started) == []
    run_due()
    assert (row(started).state, Ledger.objects.count()) == ("done", 1)


@pytest.mark.parametrize("end", ["done", "dead", "cancelled"])
@pytest.mark.parametrize("holds", ["between attempts", "paused"])
def test_a_pass_waits_for_another_over_its_table_whatever_becomes_of_that(end: str, holds: str) -> None:
    make_items(10)
    first = sweep(declare(failing(1 if end != "dead" else 9), Item, name="t.first", batch=5))
    assert first.state == "delayed"
    if holds == "paused":
        Ledger.objects.update(paused_at=first.created_at)
        assert again(first).state == "suspended"

    waiting = sweep(declare(None, Item, name="t.second", batch=5))

    assert (waiting.state, waiting.attempt, handled(Item)) == ("suspended", 0, {0: 5, 1: 5})
    assert waiting.park_reason == f"another pass sweeps app_item: {first.run_id}"
    assert waiting.run_at - waiting.updated_at < timedelta(seconds=16), "it looks again by itself"
    assert not JobStep.objects.filter(run_id=waiting.run_id).exists()
    assert again(waiting).state == "suspended"

    Ledger.objects.update(paused_at=None)
    if end == "cancelled":
        get_driver().cancel([first.pk])
    elif end == "done":
        assert again(first).state == "done"
    else:
        JobRow.objects.filter(pk=first.pk).update(max_attempts=2)
        assert again(first).state == "dead"
    assert again(waiting).state == "done"


def test_a_dead_pass_that_is_retried_waits_for_whoever_took_its_table() -> None:
    make_items(10)
    first = sweep(declare(failing(1), Item, name="t.first", batch=5, retry=ONCE))
    assert first.state == "dead"
    second = sweep(declare(failing(1), Item, name="t.second", batch=5))
    assert second.state == "delayed"

    get_driver().retry([first.pk])
    run_due()
    assert (row(first.pk).state, row(first.pk).park_reason) == (
        "suspended",
        f"another pass sweeps app_item: {second.run_id}",
    )

    assert again(second).state == "done"
    assert again(row(first.pk)).state == "done"
    assert handled(Item) == {2: 10}


@pytest.mark.parametrize("exclusive", [(False, False), (True, False), (False, True)])
def test_passes_that_need_not_be_alone_are_not_held_back(exclusive: tuple[bool, bool]) -> None:
    make_items(10)
    first = sweep(declare(failing(1), Item, name="t.first", batch=5, exclusive=exclusive[0]))
    assert first.state == "delayed"

    assert sweep(declare(None, Item, name="t.second", batch=5, exclusive=exclusive[1])).state == "done"


def test_passes_over_different_tables_do_not_meet() -> None:
    make_items(10)
    first = sweep(declare(failing(1), Item, name="t.first", batch=5))
    Token.objects.create()

    assert (first.state, sweep(declare(None, Token, name="t.second")).state) == ("delayed", "done")


def test_tables_whose_long_names_begin_alike_are_two() -> None:
    job = declare_job(lambda run, n: None)
    one, other = job.enqueue(1), job.enqueue(2)
    begin = "x" * 300

    assert take_table(one.run_id, "default", f"{begin}1")
    assert take_table(other.run_id, "default", f"{begin}2")
    assert not take_table(other.run_id, "default", f"{begin}1")


def test_a_table_that_several_reach_for_at_once_goes_to_one(in_threads: InThreads) -> None:
    job = declare_job(lambda run, n: None)
    for attempt in range(3):
        live = [job.enqueue(number + 10 * attempt) for number in range(3)]

        taken = in_threads(
            *(lambda one=one, at=attempt: take_table(one.run_id, "default", f"t{at}" + "x" * 300) for one in live)
        )

        assert sorted(taken) == [False, False, True]
        holder = live[taken.index(True)]
        assert [take_table(one.run_id, "default", f"t{attempt}" + "x" * 300) for one in live] == taken
        get_driver().cancel([holder.id])
        other = next(one for one in live if one is not holder)
        assert take_table(other.run_id, "default", f"t{attempt}" + "x" * 300)


def test_a_pass_that_was_staged_holds_its_table_too() -> None:
    make_items(10)
    with transaction.atomic():
        started = declare(failing(1), Item, name="t.first", batch=5).enqueue()
    run_due()
    assert row(started).state == "delayed"

    waiting = sweep(declare(None, Item, name="t.second", batch=5))

    assert waiting.state == "suspended"
