"""How PostgreSQL reads a page: from where it begins, in the order of keys, whatever the statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.db.models import Exists, OuterRef, Subquery
from django.test.utils import isolate_apps

from tests.app.models import Effect, Item, Organization, Place, Restaurant
from tests.backfills.declared import definition
from tests.backfills.test_rows import model, table_of
from ultimat3_jobs.backfills.keyset import read_page
from ultimat3_jobs.backfills.source import open_rows

pytestmark = [pytest.mark.django_db, pytest.mark.postgresql_only(reason="its planner")]

MANY = 5_000


@contextmanager
def explained() -> Iterator[list[dict[str, Any]]]:
    """Collect how each locking read ran."""
    found: list[dict[str, Any]] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "FOR NO KEY UPDATE" in sql and not sql.startswith("EXPLAIN"):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
                found.append(cursor.fetchone()[0][0]["Plan"])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield found


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for below in plan.get("Plans", []) for node in nodes(below))]


def read(source: Any, after: int, until: int) -> list[dict[str, Any]]:
    """Return the nodes of the plan by which a page was read."""
    with explained() as found, transaction.atomic():
        read_page(open_rows(definition(source=source, aliases=())), after, until, 50)
    (plan,) = found
    return nodes(plan)


def test_a_filter_that_the_statistics_take_for_rare_is_not_read_whole_for_each_page() -> None:
    Item.objects.bulk_create(Item(number=0) for _ in range(MANY))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE app_item")
    Item.objects.update(number=1)  # of which the statistics know nothing
    first = Item.objects.order_by("pk").values_list("pk", flat=True)[0]

    plan = read(lambda: Item.objects.filter(number=1), first + 2_000, first + 2_500)

    assert "Sort" not in {node["Node Type"] for node in plan}
    (scan,) = [node for node in plan if "Relation Name" in node]
    assert (scan["Index Name"], scan["Actual Rows"]) == ("app_item_pkey", 50)
    with connection.cursor() as cursor:  # the handler's statements are planned as ever
        cursor.execute("SHOW enable_sort")
        assert cursor.fetchone() == ("on",)


def test_a_filter_by_a_foreign_key_is_read_in_the_order_of_keys_too() -> None:
    with isolate_apps("tests.app"):
        owner = models.ForeignKey(Organization, on_delete=models.CASCADE, db_constraint=False)
        note = model("Note", owner=owner)
        with table_of(note):
            note.objects.bulk_create(note(owner_id=1) for _ in range(MANY))
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE app_note")
            note.objects.update(owner_id=2)
            first = note.objects.order_by("pk").values_list("pk", flat=True)[0]

            plan = read(lambda: note.objects.filter(owner=2), first + 2_000, first + 2_500)

    assert "Sort" not in {node["Node Type"] for node in plan}
    (scan,) = [node for node in plan if "Relation Name" in node]
    assert (scan["Index Name"], scan["Actual Rows"]) == ("app_note_pkey", 50)


REFERRING = Effect.objects.filter(attempt=OuterRef("pk"))
NESTED: dict[str, Any] = {
    "exists not": lambda: Item.objects.filter(~Exists(REFERRING)),
    "exists": lambda: Item.objects.filter(Exists(REFERRING)),
    "keys": lambda: Item.objects.filter(pk__in=Effect.objects.values("attempt")),
    "raw": lambda: Item.objects.extra(where=["id IN (select attempt FROM app_effect)"]),
}


@pytest.mark.parametrize("form", NESTED)
def test_rows_that_another_table_decides_on_may_be_sorted(form: str) -> None:
    """Without, the whole of a table that has no index on its reference is looked through for each row of the page."""
    Item.objects.bulk_create(Item() for _ in range(MANY))
    first = Item.objects.order_by("pk").values_list("pk", flat=True)[0]
    Effect.objects.bulk_create(Effect(label="one", attempt=first + 2 * number) for number in range(MANY // 2))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE app_item, app_effect")

    plan = read(NESTED[form], first + 2_000, first + 2_500)

    kinds = {node["Node Type"] for node in plan}
    assert kinds >= {"Sort", "Hash Join"}
    assert "Nested Loop" not in kinds


def test_a_subquery_of_which_the_rows_are_in_an_order_may_be_sorted() -> None:
    items = Item.objects.bulk_create(Item() for _ in range(MANY))
    newest = REFERRING.order_by("-detail").values("label")[:1]

    plan = read(lambda: Item.objects.filter(number=0).annotate(label=Subquery(newest)), items[0].pk, items[-1].pk)

    assert not any(node.get("Disabled") for node in plan)


def test_a_column_that_is_called_select_is_no_subquery() -> None:
    with isolate_apps("tests.app"):
        odd = model("Odd", select=models.IntegerField())

        rows = open_rows(definition(source=lambda: odd.objects.filter(select=1), aliases=()))

    assert not rows.nested


def test_the_table_of_a_parent_is_not_read_from_its_first_row_on() -> None:
    places = Place.objects.bulk_create(Place(name=f"place {number}") for number in range(MANY))
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO app_restaurant (place_ptr_id, stars) SELECT id, 0 FROM app_place")
        cursor.execute("ANALYZE app_place, app_restaurant")
    first = places[0].pk

    plan = read(Restaurant.objects.all, first + 4_000, first + 4_500)

    touched = {
        node["Relation Name"]: node["Actual Rows"] * node["Actual Loops"] for node in plan if "Relation Name" in node
    }
    assert touched.keys() == {"app_place", "app_restaurant"}
    assert max(touched.values()) <= 501
