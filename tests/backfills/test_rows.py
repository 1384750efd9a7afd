"""Which rows a pass hands to its handler: keys of every kind, rows that come and go, sources that hide some."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, models
from django.db.models import F, Model
from django.test.utils import isolate_apps

from tests.app.models import Cell, Item, Token
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.declaring import error_of
from tests.working import row, run_due
from ultimat3_jobs.backfills import pages
from ultimat3_jobs.backfills.keyset import Keys, go_up
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep

pytestmark = pytest.mark.usefixtures("queue")


@contextmanager
def table_of(*kinds: type[Model]) -> Iterator[None]:
    """Make the tables of models that only one test has, for the length of the block."""
    with connection.schema_editor() as editor:
        for kind in kinds:
            editor.create_model(kind)
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            for kind in reversed(kinds):
                editor.delete_model(kind)


def model(name: str, *, options: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """Declare a model that only one test has."""
    meta = type("Meta", (), {"app_label": "app", **(options or {})})
    return type(name, (models.Model,), {"__module__": __name__, "Meta": meta, **attributes})


def make_items(count: int) -> list[int]:
    """Make items and return their keys, in order."""
    Item.objects.bulk_create(Item(number=number) for number in range(count))
    return sorted(Item.objects.values_list("pk", flat=True))


def add_one(rows: list[Any]) -> None:
    """Handle rows as most handlers do."""
    type(rows[0])._base_manager.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)


def again(job: JobRow) -> JobRow:
    """Let a pass that waits for its next attempt go on, and return its row."""
    JobRow.objects.filter(pk=job.pk).update(run_at=job.created_at)
    run_due()
    return row(job.pk)


NUMBER, TEXT = models.IntegerField(primary_key=True), models.CharField(primary_key=True, max_length=40)
DATE = models.DateField(primary_key=True)
KEYS: dict[str, tuple[models.Field[Any, Any], list[Any]]] = {
    "negative": (NUMBER, [-(10**9), -7, -1, 0, 1, 7, 10**9]),
    "text": (
        models.CharField(primary_key=True, max_length=40),
        ["", " ", "A", "B", "a", "b", "ä", "ß", "z", "10", "9"],
    ),
    "decimal": (
        models.DecimalField(primary_key=True, max_digits=12, decimal_places=3),
        [Decimal("-1.500"), Decimal("0.000"), Decimal("0.001"), Decimal("9.999"), Decimal("10.000")],
    ),
    "date": (
        DATE,
        [date(999, 1, 1), date(1970, 1, 1), date(2026, 2, 28), date(9999, 12, 31)],
    ),
    "instant": (
        models.DateTimeField(primary_key=True),
        [datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(microseconds=n) for n in (0, 1, 250, 500_000, 1_000_000)],
    ),
    "length": (models.DurationField(primary_key=True), [timedelta(seconds=n) for n in (-90_000, 0, 1, 86_400, 10**7)]),
    "float": (models.FloatField(primary_key=True), [-1e300, -0.1, 0.0, 1e-9, 0.1, 0.30000000000000004, 1e300]),
    "truth": (models.BooleanField(primary_key=True), [False, True]),
    "address": (models.GenericIPAddressField(primary_key=True), ["10.0.0.1", "10.0.0.9", "10.0.0.10", "::1"]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("batch", [1, 3])
def test_rows_of_odd_keys_are_swept_in_the_order_of_the_database(kind: str, batch: int) -> None:
    field, keys = KEYS[kind]
    with isolate_apps("tests.app"):
        odd = model("Odd", id=field.clone(), handled=models.IntegerField(default=0))

        with table_of(odd):
            odd.objects.bulk_create(odd(id=key) for key in keys)
            seen: list[Any] = []

            def handler(run: Any, rows: list[Any]) -> None:
                seen.extend(one.pk for one in rows)
                add_one(rows)

            done = sweep(declare(handler, odd, batch=batch))

            assert done.state == "done", done.last_error
            assert seen == list(odd.objects.order_by("pk").values_list("pk", flat=True))
            assert handled(odd) == {1: len(keys)}


def collations() -> list[str]:
    """Return collations of the database that order text in ways of their own."""
    if connection.vendor == "sqlite":
        return ["NOCASE", "RTRIM", "BINARY"]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT collname FROM pg_collation WHERE collprovider IN ('b', 'c') AND collencoding IN (-1, 6)"
            " ORDER BY length(collname) DESC LIMIT 5"
        )
        return [name for (name,) in cursor.fetchall()]


def test_text_keys_are_swept_in_the_order_of_their_collation() -> None:
    keys = ["a", "B", "c", "item 10", "item 9", "ITEM 11", "é", "f", "Z", "", "_", "C d", "c-e"]
    for number, name in enumerate(collations()):
        with isolate_apps("tests.app"):
            word = model(
                "Word",
                id=models.CharField(primary_key=True, max_length=40, db_collation=name),
                handled=models.IntegerField(default=0),
            )

            with table_of(word):
                word.objects.bulk_create(word(id=key) for key in keys)

                done = sweep(declare(None, word, name=f"t.words-{number}", batch=2))

                assert (done.state, handled(word)) == ("done", {1: len(keys)}), (name, done.last_error)


def test_a_key_that_is_a_relation_is_swept_in_its_own_order_not_that_of_what_it_refers_to() -> None:
    with isolate_apps("tests.app"):
        owners = model("Owner", rank=models.IntegerField(), options={"ordering": ["-rank"]})

        cards = model(
            "Card",
            owner=models.OneToOneField(owners, primary_key=True, on_delete=models.CASCADE),
            handled=models.IntegerField(default=0),
            options={"ordering": ["-owner__rank"]},
        )

        with table_of(owners, cards):
            for number in range(9):
                cards.objects.create(owner=owners.objects.create(rank=number % 4))

            done = sweep(declare(None, cards, batch=2))

            assert (done.state, handled(cards)) == ("done", {1: 9}), done.last_error


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_keys_of_two_columns_whose_first_is_the_same_everywhere(batch: int) -> None:
    Cell.objects.bulk_create(Cell(sheet="s", place=place) for place in range(-9, 10))

    done = sweep(declare(None, Cell, batch=batch))

    assert (done.state, handled(Cell)) == ("done", {1: 19})


def test_random_keys_that_fall_inside_the_bound_are_handled_before_the_cursor_and_not_behind_it() -> None:
    Token.objects.bulk_create(Token(id=UUID(int=number * 100)) for number in range(1, 11))
    pages: list[int] = []

    def handler(run: Any, rows: list[Token]) -> None:
        pages.append(len(rows))
        if len(pages) == 2:  # of 1 to 5 hundred, by pages of two: it stands at 400
            Token.objects.bulk_create(Token(id=UUID(int=number)) for number in (50, 250, 450, 650, 1_001))
        add_one(rows)

    done = sweep(declare(handler, Token, batch=2))

    assert done.state == "done"
    never = {one.pk.int for one in Token.objects.filter(handled=0)}
    assert never == {50, 250, 1_001}
    assert handled(Token) == {0: 3, 1: 12}
    assert done.result["handled"] == 12
    assert (ledger(done).processed, ledger(done).total) == (12, 12)
    assert done.progress == {"done": 12, "total": 12}


def test_rows_that_are_inserted_faster_than_they_are_swept_do_not_keep_it_going() -> None:
    """The last of its stretches is bounded too, which it looks for when there are many more."""
    make_items(25)
    pages: list[int] = []

    def handler(run: Any, rows: list[Item]) -> None:
        pages.append(len(rows))
        assert len(pages) < 30, "it goes on for ever"
        make_items(5 * len(rows))
        add_one(rows)

    done = sweep(declare(handler, Item, batch=2))

    assert (done.state, handled(Item), pages) == ("done", {0: 125, 1: 25}, [2] * 12 + [1])


def test_a_pass_whose_bound_is_deleted_ends_there_all_the_same() -> None:
    keys = make_items(20)

    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.filter(pk__gte=keys[17]).delete()
        add_one(rows)

    done = sweep(declare(handler, Item, batch=5))

    assert (done.state, handled(Item), done.result["handled"]) == ("done", {1: 17}, 17)


def test_a_pass_whose_rows_are_all_deleted_meanwhile_completes() -> None:
    make_items(30)

    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.all().delete()

    done = sweep(declare(handler, Item, batch=5))

    assert (done.state, done.result["handled"], ledger(done).outcome) == ("done", 5, "completed")


@pytest.mark.parametrize("batch", [1, 7, 30, 31])
def test_a_handler_may_delete_its_rows(batch: int) -> None:
    make_items(30)

    def handler(run: Any, rows: list[Item]) -> None:
        for one in rows:
            one.delete()  # which takes the key from the instance

    done = sweep(declare(handler, Item, batch=batch))

    assert (done.state, done.result["handled"], Item.objects.count()) == ("done", 30, 0)


def test_a_handler_that_takes_its_rows_out_of_the_source_skips_none() -> None:
    make_items(50)

    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(note="done", handled=F("handled") + 1)

    done = sweep(declare(handler, Item, source=lambda: Item.objects.filter(note=""), batch=7))

    assert (done.state, handled(Item)) == ("done", {1: 50})


def test_a_handler_that_moves_its_rows_up_sees_them_again_and_comes_to_an_end() -> None:
    """The key moves up: inside the bound a row is met again, as any that is added there; behind it no more."""
    keys = make_items(50)
    Item.objects.filter(pk=keys[-1]).update(id=keys[0] + 1_000)

    def handler(run: Any, rows: list[Item]) -> None:
        for one in rows:
            Item.objects.filter(pk=one.pk).update(id=one.pk + 101, handled=F("handled") + 1)

    done = sweep(declare(handler, Item, batch=7))

    assert done.state == "done"
    assert handled(Item) == {1: 1, 10: 49}


def test_rows_that_every_manager_of_their_model_hides_bound_the_sweep_and_are_handled_where_the_source_gives_them() -> (
    None
):
    class Shown(models.Manager[Any]):
        def get_queryset(self) -> Any:
            return super().get_queryset().filter(hidden=False)

    with isolate_apps("tests.app"):
        paged = model(
            "Page",
            hidden=models.BooleanField(default=False),
            handled=models.IntegerField(default=0),
            shown=Shown(),
            everything=models.Manager(),
            options={"base_manager_name": "shown", "default_manager_name": "shown"},
        )

        with table_of(paged):
            paged.everything.bulk_create(paged(hidden=number > 9) for number in range(30))

            def handler(run: Any, rows: list[Any]) -> None:
                paged.everything.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)

            done = sweep(declare(handler, paged, source=paged.everything.all, batch=4))

            assert (done.state, done.result["handled"]) == ("done", 30), done.last_error
            assert set(paged.everything.values_list("handled", flat=True)) == {1}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (Item.objects.reverse, "is ordered"),
        (lambda: Item.objects.select_for_update(skip_locked=True), "skips rows that others have locked"),
    ],
)
def test_a_source_that_would_leave_rows_out_is_refused(source: Any, why: str) -> None:
    make_items(30)

    kind = [source]

    def given() -> Any:
        return kind[0]()

    backfill = declare(None, Item, source=given, batch=4, lock=False)

    assert why in error_of("X_BACKFILL_SOURCE_INVALID", backfill.enqueue).cause
    kind[0] = Item.objects.all
    started = backfill.enqueue()
    kind[0] = source
    run_due()
    assert (row(started).state, row(started).stop, handled(Item)) == ("dead", "terminal", {0: 30})
    assert why in row(started).last_error


SWAPPED: list[tuple[models.Field[Any, Any], Any, models.Field[Any, Any]]] = [
    (NUMBER, 5, TEXT),
    (TEXT, "5", NUMBER),
    (TEXT, "a", NUMBER),
    (NUMBER, 5, models.UUIDField(primary_key=True)),
    (models.UUIDField(primary_key=True), UUID(int=5), NUMBER),
    (NUMBER, 5, DATE),
    (NUMBER, 5, models.DecimalField(primary_key=True, max_digits=5, decimal_places=2)),
    (DATE, date(2026, 1, 1), NUMBER),
]


@pytest.mark.parametrize(("before", "key", "after"), SWAPPED)
def test_a_cursor_is_refused_by_a_key_of_another_type(before: Any, key: Any, after: Any) -> None:
    """It would go on from a place in another order, and skip rows."""
    from ultimat3_jobs.errors import BackfillSourceInvalid

    with isolate_apps("tests.app"):
        old = model("Old", id=before.clone())

        new = model("New", id=after.clone())

        stored = Keys(old, backfill="t.backfill").store(key)
        assert Keys(old, backfill="t.backfill").load(stored) == key
        with pytest.raises(BackfillSourceInvalid, match="was the key of the model changed"):
            Keys(new, backfill="t.backfill").load(stored)
    with pytest.raises(BackfillSourceInvalid):
        Keys(Cell, backfill="t.backfill").load(stored)


def test_a_pass_whose_model_got_another_key_ends_with_an_error_that_says_so() -> None:
    make_items(20)
    calls: list[int] = []

    def handler(run: Any, rows: list[Any]) -> None:
        calls.append(len(rows))
        if len(calls) == 2:
            raise RuntimeError("not yet")

    kind: list[type[Model]] = [Item]

    def source() -> Any:
        return kind[0]._base_manager.all()

    backfill = declare(handler, Item, source=source, batch=5)
    failed = sweep(backfill)
    assert failed.state == "delayed"
    Token.objects.create()
    kind[0] = Token
    cursor = JobStep.objects.get(run_id=failed.run_id)
    JobStep.objects.filter(run_id=failed.run_id).update(output=cursor.output | {"table": "app_token"})

    done = again(failed)

    assert (done.state, done.stop) == ("dead", "terminal")
    assert "was the key of the model changed since?" in done.last_error
    assert handled(Token) == {0: 1}


def test_a_key_that_does_not_come_back_from_text_is_refused() -> None:
    with isolate_apps("tests.app"):
        blob = model("Blob", id=models.BinaryField(primary_key=True), handled=models.IntegerField(default=0))

        with table_of(blob):
            blob.objects.create(id=b"\x00\xff")

            done = sweep(declare(None, blob))

            assert (done.state, done.stop) == ("dead", "terminal")
            assert "X_BACKFILL_SOURCE_INVALID" in done.last_error
            assert not JobStep.objects.exists()


def test_no_row_of_an_earlier_page_is_kept() -> None:
    """Nor is anything else kept that grows with the pages."""
    make_items(400)
    seen: list[weakref.ref[Item]] = []
    alive: list[int] = []
    objects: list[int] = []

    def handler(run: Any, rows: list[Item]) -> None:
        gc.collect()
        alive.append(sum(one() is not None for one in seen))
        # SQLite's module keeps dead references to some hundred cursors.
        objects.append(sum(type(one) is not weakref.ref for one in gc.get_objects()))
        seen[:] = [weakref.ref(one) for one in rows]
        add_one(rows)

    done = sweep(declare(handler, Item, batch=20))

    assert (done.state, len(alive)) == ("done", 20)
    assert set(alive) == {0}
    # Threads of the process come and go with a few: the smallest numbers tell what is kept.
    assert min(objects[15:]) - min(objects[5:10]) < 100


@pytest.mark.parametrize(
    ("after", "found", "until", "expected"),
    [
        (None, [1, 2, 3], 3, True),
        (0, [1, 2], 5, True),
        (None, [1, 3, 2], 3, False),
        (1, [1, 2], 5, False),
        (1, [2, 2], 5, False),
        (4, [2, 3], 5, False),
        (1, [2, 6], 5, False),
        ((1, 2), [(1, 3), (2, 1)], (2, 1), True),
        ((1, 2), [(1, 3), (1, 1)], (2, 1), False),
        (date(2026, 1, 1), [date(2026, 1, 2)], date(2026, 1, 1), False),
        ("b", ["a", "C"], "c", True),  # as its collation has it
        ("b", ["a", "b"], "c", False),
        ((1, "b"), [(1, "a")], (1, "c"), True),
    ],
)
def test_a_page_whose_keys_do_not_go_up_within_their_stretch_is_known(
    after: Any, found: list[Any], until: Any, expected: bool
) -> None:
    assert go_up(after, found, until) is expected


def test_a_page_that_would_move_the_cursor_back_ends_with_an_error_and_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_items(10)
    read = pages.read_page
    monkeypatch.setattr(pages, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(pages, "read_page", lambda rows, after, *rest: read(rows, after, *rest)[:: -1 if after else 1])

    done = sweep(declare(None, Item, batch=4))

    assert (done.state, handled(Item), ledger(done).processed) == ("delayed", {0: 6, 1: 4}, 4)
    assert (
        "X_BACKFILL_KEYS_MOVED: the keys of the rows of page 2 of backfill 't.backfill' do not go up" in done.last_error
    )
