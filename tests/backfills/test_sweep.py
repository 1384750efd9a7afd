"""A pass: every row of its bound handed to the handler, once, page by page."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import Count, F, QuerySet, Window
from django.db.models.functions import RowNumber

from tests.app.models import Cell, Item, Organization, Place, Restaurant, Token
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.declaring import error_of, refused
from tests.working import row, run_due
from ultimat3_jobs.backfills import ledger as ledgers
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep

pytestmark = pytest.mark.usefixtures("queue")


def make_items(count: int) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(count))


def test_a_pass_hands_every_row_once_in_pages_in_the_order_of_keys() -> None:
    make_items(25)
    pages: list[list[int]] = []

    def handler(run: Any, rows: list[Item]) -> None:
        pages.append([one.pk for one in rows])
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)

    done = sweep(declare(handler, Item, batch=10))

    assert [len(page) for page in pages] == [10, 10, 5]
    assert [key for page in pages for key in page] == sorted(Item.objects.values_list("pk", flat=True))
    assert handled(Item) == {1: 25}
    assert (done.state, done.result, done.attempt) == ("done", {"handled": 25, "pages": 3}, 1)
    told = ledger(done)
    assert (told.outcome, told.processed, told.total, told.estimated) == ("completed", 25, 25, False)


def test_an_empty_table_completes_at_once() -> None:
    done = sweep(declare(None, Item))

    assert (done.state, done.result) == ("done", {"handled": 0, "pages": 0})
    assert (ledger(done).outcome, ledger(done).total) == ("completed", 0)


def test_a_source_without_rows_completes() -> None:
    make_items(3)

    done = sweep(declare(None, Item, source=lambda: Item.objects.filter(number=99)))

    assert (done.state, ledger(done).processed) == ("done", 0)


@pytest.mark.parametrize("batch", [1, 3, 7, "auto"])
def test_keys_of_every_kind_are_swept(batch: Any) -> None:
    Token.objects.bulk_create(Token(id=UUID(int=number**9)) for number in range(20))
    Cell.objects.bulk_create(Cell(sheet=f"s{n % 3}", place=n) for n in range(20))
    for number in range(10):
        Restaurant.objects.create(name=f"r{number}")
    Place.objects.create(name="no restaurant")

    for model in (Token, Cell, Restaurant):
        done = sweep(declare(None, model, name=f"t.{model.__name__}", batch=batch))
        assert done.state == "done", done.last_error

    assert handled(Token) == {1: 20}
    assert handled(Cell) == {1: 20}
    assert handled(Place) == {0: 1, 1: 10}


def test_rows_behind_the_bound_are_left_alone() -> None:
    make_items(10)

    def handler(run: Any, rows: list[Item]) -> None:
        make_items(10)
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)

    done = sweep(declare(handler, Item, batch=5))

    assert (done.state, handled(Item)) == ("done", {0: 20, 1: 10})


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (lambda: Item.objects.all()[:5], "is sliced"),
        (Item.objects.distinct, "is distinct"),
        (lambda: Item.objects.order_by("number"), "is ordered"),
        (lambda: Item.objects.union(Item.objects.all()), "union"),
        (lambda: Item.objects.values("pk"), "gives values"),
        (lambda: Organization.objects.annotate(n=Count("restaurant")), "grouped"),
        (lambda: Organization.objects.filter(restaurant__stars=3), "joins app_"),
        (lambda: Restaurant.objects.filter(owner__name="Acme"), "joins app_organization"),
        (lambda: Item.objects.annotate(n=Window(RowNumber())), "window function"),
        (lambda: [1, 2], "no queryset"),
        (lambda: Item.objects.raw("SELECT 1"), "no queryset"),
    ],
)
def test_a_source_that_cannot_be_swept_is_refused_before_anything_is_queued(source: Any, why: str) -> None:
    error = refused("X_BACKFILL_SOURCE_INVALID", declare(None, Item, source=source).enqueue)

    assert why in error.cause


def test_a_source_that_a_pass_cannot_sweep_ends_it_at_once() -> None:
    make_items(1)
    sources = iter([Item.objects.all(), Item.objects.all()[:5]])

    done = sweep(declare(None, Item, source=lambda: next(sources)))

    assert (done.state, done.stop) == ("dead", "terminal")
    assert "X_BACKFILL_SOURCE_INVALID" in done.last_error


@pytest.mark.parametrize(
    "source",
    [
        lambda: Restaurant.objects.filter(name__startswith="r", stars=0),
        lambda: Restaurant.objects.select_related("owner"),
        lambda: Restaurant.objects,
        lambda: Restaurant.objects.only("stars"),
    ],
)
def test_a_source_over_the_tables_of_a_models_parents_is_swept(source: Any) -> None:
    for number in range(5):
        Restaurant.objects.create(name=f"r{number}")

    done = sweep(declare(None, Restaurant, source=source, batch=2))

    assert (done.state, handled(Place)) == ("done", {1: 5}), done.last_error


def test_a_failing_handler_undoes_its_page_alone_and_the_pass_goes_on_from_there() -> None:
    make_items(20)
    calls: list[int] = []

    def handler(run: Any, rows: list[Item]) -> None:
        calls.append(run.attempt)
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)
        if len(calls) == 2:
            raise RuntimeError("no such luck")

    done = sweep(declare(handler, Item, batch=5))

    assert done.state == "delayed"
    assert "its rows: app_item with the keys" in done.last_error
    assert handled(Item) == {0: 15, 1: 5}
    row_of(done).update(run_at=done.created_at)
    run_due()
    assert (row(done.pk).state, handled(Item)) == ("done", {1: 20})
    assert ledger(done).processed == 20


def row_of(job: Any) -> QuerySet[Any]:
    return type(job).objects.filter(pk=job.pk)


def test_the_cursor_is_one_record_however_far_the_sweep_is() -> None:
    make_items(50)

    done = sweep(declare(None, Item, batch=1))

    (step,) = JobStep.objects.filter(run_id=done.run_id)
    assert (step.kind, step.state, step.output["handled"], step.output["pages"]) == ("cursor", "done", 50, 50)


def test_a_name_has_one_live_pass() -> None:
    backfill = declare(None, Item)
    first = backfill.enqueue()

    error = error_of("X_BACKFILL_RUNNING", lambda: backfill.enqueue(forced=True))

    assert str(first.id) in error.cause


def take_away() -> None:
    """Let another worker have the job, in a transaction that will not commit."""
    JobRow.objects.update(claim_token=uuid4())


def test_a_run_whose_page_is_refused_handles_no_other_page() -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(40))
    pages: list[int] = []

    def handler(run: Any, rows: list[Item]) -> None:
        pages.append(len(rows))
        if len(pages) == 1:
            take_away()

    lost = sweep(declare(handler, Item, batch=10))

    assert (pages, lost.state, ledger(lost).processed) == ([10], "running", 0)


def test_a_run_whose_first_cursor_is_refused_handles_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(40))
    pages: list[int] = []
    start = ledgers.start_pass

    def starting(*given: Any, **named: Any) -> None:
        start(*given, **named)
        take_away()

    monkeypatch.setattr(ledgers, "start_pass", starting)

    lost = sweep(declare(lambda run, rows: pages.append(len(rows)), Item, batch=10))

    assert (pages, lost.state, JobStep.objects.count()) == ([], "running", 0)
