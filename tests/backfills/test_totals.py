"""How many rows there are, counted for as long as that may take, and estimated where it takes longer."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet

from tests.app.models import Item
from tests.working import Failing
from ultimat3_jobs.backfills.totals import count_rows

pytestmark = pytest.mark.usefixtures("queue")
ON_POSTGRESQL = pytest.mark.postgresql_only(reason="SQLite bounds no statement, and its planner does not tell how many")


@pytest.fixture(autouse=True)
def items(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(5))


def slow() -> QuerySet[Item]:
    return Item.objects.extra(where=["pg_sleep(5) IS NOT NULL"])


def timeout() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def test_rows_are_counted() -> None:
    assert count_rows(Item.objects.filter(number__lt=3)) == (3, False)


@ON_POSTGRESQL
def test_what_takes_too_long_to_count_is_estimated() -> None:
    number, estimated = count_rows(slow(), patience=50)

    assert estimated
    assert number > 0


@ON_POSTGRESQL
@pytest.mark.parametrize("rows", [Item.objects.all, slow])
def test_in_a_callers_transaction_that_goes_on_with_its_own_limit(rows: type[QuerySet[Item]]) -> None:
    with transaction.atomic():
        connection.cursor().execute("SET LOCAL statement_timeout = '7s'")
        count_rows(rows(), patience=50)
        assert timeout() == "7s"
        assert Item.objects.count() == 5
    assert timeout() == "0"


@ON_POSTGRESQL
def test_whatever_else_a_count_fails_of_is_no_estimate() -> None:
    with (
        connection.execute_wrapper(Failing(1, lambda sql: "COUNT(" in sql)),
        pytest.raises(OperationalError, match="the connection is gone"),
    ):
        count_rows(Item.objects.all())
