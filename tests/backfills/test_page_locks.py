"""The rows of a page are locked while it is handled: who edits them waits, who refers to them does not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F
from django.test.utils import CaptureQueriesContext, isolate_apps

from tests.app.models import Item, Organization, Place, Restaurant
from tests.backfills.declared import definition
from tests.backfills.sweeping import declare, handled
from tests.backfills.test_rows import make_items, model, table_of
from tests.conftest import InThreads
from tests.locks import waiting_in_this_database
from tests.processes import wait_for
from tests.working import history, row, run_due, working
from ultimat3_jobs import Run
from ultimat3_jobs.backfills.keyset import read_page
from ultimat3_jobs.backfills.source import open_rows

pytestmark = [
    pytest.mark.usefixtures("queue"),
    pytest.mark.postgresql_only(reason="SQLite has one writer and no locks of rows"),
]


def swept_beside(
    in_threads: InThreads, model: type[Any], other: Callable[[], object], *, waits: bool, **options: Any
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

    started = declare(handler, model, **options).enqueue()
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


FIELDS: dict[str, Any] = {
    "only": lambda: Restaurant.objects.only("stars"),
    "only the key": lambda: Restaurant.objects.only("pk"),
    "only, related": lambda: Restaurant.objects.select_related("owner").only("stars", "owner__name"),
    "defer": lambda: Restaurant.objects.defer("id", "name", "handled"),
    "defer the parent's key": lambda: Restaurant.objects.defer("id"),
}


@pytest.mark.parametrize("fields", FIELDS)
def test_the_rows_of_parents_are_locked_whatever_fields_are_read(in_threads: InThreads, fields: str) -> None:
    one = Restaurant.objects.create(name="ours")

    def other() -> None:
        Place.objects.filter(pk=one.pk).update(name="theirs", handled=F("handled") + 10)

    swept_beside(in_threads, Restaurant, other, waits=True, source=FIELDS[fields])

    one.refresh_from_db()
    assert (one.handled, one.name) == (11, "theirs")


def test_the_rows_of_all_parents_are_locked_however_far_up_and_of_a_proxy_too() -> None:
    with isolate_apps("tests.app"):
        base = model("Base", b=models.IntegerField(default=0))
        side = model("Side", number=models.AutoField(primary_key=True), s=models.IntegerField(default=0))
        child = type("Child", (base,), {"__module__": __name__, "Meta": meta(), "c": models.IntegerField(default=0)})
        grand: Any = type(
            "Grand", (child, side), {"__module__": __name__, "Meta": meta(), "g": models.IntegerField(default=0)}
        )
        proxy: Any = type("Proxy", (grand,), {"__module__": __name__, "Meta": meta(proxy=True)})
        tables = {f'"app_{name}"' for name in ("base", "side", "child", "grand")}
        with table_of(base, side, child, grand):
            grand.objects.create(b=1, c=2, g=3, s=4)
            for given in (
                grand.objects.all(),
                grand.objects.only("g"),
                grand.objects.only("c"),
                proxy.objects.only("g", "b"),
                proxy.objects.defer("id", "b", "s", "number", "c", "base_ptr"),
                grand.objects.defer("id", "side_ptr"),
            ):
                with CaptureQueriesContext(connection) as asked, transaction.atomic():
                    (found,) = read_page(open_rows(definition(source=lambda given=given: given)), None, 10, 10)

                    (sql,) = [one["sql"] for one in asked if "FOR NO KEY UPDATE" in one["sql"]]
                    assert set(sql.partition(" FOR NO KEY UPDATE OF ")[2].split(", ")) == tables, sql
                    found.g, found.s = 5, 6
                    found.save()
                assert grand.objects.values_list("b", "c", "g", "s").get() == (1, 2, 5, 6)


def meta(**options: Any) -> type[Any]:
    """Return what a model of one test says of itself."""
    return type("Meta", (), {"app_label": "app", **options})


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
