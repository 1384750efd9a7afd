"""The rows of a page are locked while it is handled: who edits them waits, who refers to them does not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F

from tests.app.models import Item, Organization, Place, Restaurant
from tests.backfills.sweeping import declare, handled
from tests.backfills.test_rows import make_items
from tests.conftest import InThreads
from tests.locks import waiting_in_this_database
from tests.processes import wait_for
from tests.working import history, row, run_due, working
from ultimat3_jobs import Run

pytestmark = [
    pytest.mark.usefixtures("queue"),
    pytest.mark.postgresql_only(reason="SQLite has one writer and no locks of rows"),
]


def swept_beside(
    in_threads: InThreads, model: type[Any], other: Callable[[], object], *, waits: bool, lock: bool = True
) -> None:
    """Sweep rows by whole saves, while another session does something with them once they have been read."""
    read, over = threading.Event(), threading.Event()

    def handler(run: Run, rows: list[Any]) -> None:
        read.set()
        if waits:
            wait_for(waiting_in_this_database, "the other session waits for the page")
            assert not over.is_set()
        else:
            assert over.wait(20), "the other session has waited for the page"
        for one in rows:
            if model is not Organization:
                one.handled = F("handled") + 1
            one.save()

    def beside() -> None:
        assert read.wait(30)
        other()
        over.set()

    started = declare(handler, model, lock=lock).enqueue()
    in_threads(run_due, beside)
    assert row(started).state == "done", row(started).last_error


def edit(item: int) -> None:
    """Save the note of an item."""
    Item(pk=item, note="theirs").save(update_fields=["note"])


def test_an_edit_waits_for_the_page_and_neither_side_loses_what_it_wrote(in_threads: InThreads) -> None:
    keys = make_items(5)

    swept_beside(in_threads, Item, lambda: edit(keys[2]), waits=True)

    assert handled(Item) == {1: 5}
    assert list(Item.objects.exclude(note="").values_list("pk", "note")) == [(keys[2], "theirs")]


def test_rows_that_are_not_locked_are_edited_meanwhile(in_threads: InThreads) -> None:
    """And a handler that saves them whole puts the edit back: what a declaration with `lock=False` has to know."""
    keys = make_items(5)

    swept_beside(in_threads, Item, lambda: edit(keys[2]), waits=False, lock=False)

    assert handled(Item) == {1: 5}
    assert not Item.objects.exclude(note="").exists()


@pytest.mark.parametrize("table", ["child", "parent"])
def test_both_parts_of_a_row_are_locked(in_threads: InThreads, table: str) -> None:
    one = Restaurant.objects.create(name="ours")

    def other() -> None:
        if table == "parent":
            Place.objects.filter(pk=one.pk).update(name="theirs")
        else:
            Restaurant.objects.filter(pk=one.pk).update(stars=3)

    swept_beside(in_threads, Restaurant, other, waits=True)

    one.refresh_from_db()
    assert (one.handled, one.name, one.stars) == (1, *(("theirs", 0) if table == "parent" else ("ours", 3)))


def test_a_new_row_that_refers_to_a_locked_one_does_not_wait(in_threads: InThreads) -> None:
    owner = Organization.objects.create(name="owner")

    swept_beside(in_threads, Organization, lambda: Restaurant.objects.create(name="new", owner=owner), waits=False)

    assert Restaurant.objects.get().owner_id == owner.pk
    Restaurant.objects.all().delete()
    Organization.objects.all().delete()


def test_a_row_that_was_edited_while_the_page_waited_for_it_is_handed_over_as_it_is_now(in_threads: InThreads) -> None:
    """And one that the source gives no longer is not handed over at all."""
    keys = make_items(5)
    held = threading.Event()
    seen: list[Any] = []

    def handler(run: Run, rows: list[Item]) -> None:
        seen.extend((one.pk, one.note) for one in rows)

    def other() -> None:
        with transaction.atomic():
            Item.objects.filter(pk=keys[1]).update(note="edited")
            Item.objects.filter(pk=keys[2]).update(number=99)
            Item.objects.filter(pk=keys[3]).delete()
            held.set()
            wait_for(waiting_in_this_database, "the page waits for the rows")

    def swept() -> None:
        assert held.wait(30)
        run_due()

    started = declare(handler, Item, source=lambda: Item.objects.filter(number__lt=50), batch=4).enqueue()
    in_threads(swept, other)

    assert row(started).state == "done"
    assert seen == [(keys[0], ""), (keys[1], "edited"), (keys[4], "")]


def test_a_key_that_is_changed_while_its_page_is_read_does_not_move_the_cursor_back(
    new_connection: Callable[[], BaseDatabaseWrapper],
) -> None:
    Item.objects.bulk_create(Item(pk=10 * number, number=number) for number in range(1, 7))
    started = declare(None, Item, batch=3).enqueue()
    other = new_connection()
    other.set_autocommit(False)
    other.cursor().execute("UPDATE app_item SET id = 5 WHERE id = 30")

    with working() as worker:
        wait_for(waiting_in_this_database, "the page waits for the row")
        other.commit()
        wait_for(lambda: row(started).state == "done", "the pass has completed")
        worker.stop()

    assert (handled(Item), history(started)) == ({1: 6}, [])
