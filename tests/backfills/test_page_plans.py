"""How PostgreSQL reads a page: from where it begins, in the order of keys, whatever the statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from tests.app.models import Item, Place, Restaurant
from tests.backfills.declared import definition
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
