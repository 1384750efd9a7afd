"""A source of which one row in ten thousand matches: no statement of the sweep looks through the table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import F

from tests.app.models import Item
from tests.backfills.sweeping import declare, ledger, sweep
from ultimat3_jobs import Run
from ultimat3_jobs.backfills import sweep as module

pytestmark = pytest.mark.usefixtures("queue")

ROWS, EVERY, BATCH = 200_000, 10_000, 400
TABLE = Item._meta.db_table


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """All statements of other threads over the swept table, but for the count at the start."""
    seen: list[tuple[str, Any]] = []
    real, here = CursorWrapper._execute, threading.get_ident()

    def execute(cursor: Any, sql: Any, params: Any, *given: Any) -> Any:
        if threading.get_ident() != here and TABLE in str(sql) and "COUNT(*)" not in str(sql):
            seen.append((str(sql), params))
        return real(cursor, sql, params, *given)

    monkeypatch.setattr(CursorWrapper, "_execute", execute)
    yield seen
    monkeypatch.undo()


def fill(number: str) -> None:
    """Make the rows, with a number that a statement gives each."""
    series = {
        "postgresql": f"generate_series(1, {ROWS}) AS n",
        "sqlite": f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) SELECT n FROM s)",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} (number, handled, note) SELECT {number}, 0, '' FROM {series}")
        cursor.execute({"postgresql": f"VACUUM ANALYZE {TABLE}", "sqlite": "ANALYZE"}[connection.vendor])


def rows_read(node: dict[str, Any]) -> float:
    """Return how many rows the scans of a plan have looked at."""
    inner = [rows_read(one) for one in node.get("Plans", [])]
    if inner:
        return max(inner)
    looked = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(looked * node["Actual Loops"])


def test_every_statement_of_a_sparse_sweep_reads_a_bounded_number_of_rows(statements: list[tuple[str, Any]]) -> None:
    fill(f"CASE WHEN n % {EVERY} = 0 THEN -1 ELSE 0 END")
    pages: list[int] = []

    def handler(run: Run, rows: list[Item]) -> None:
        pages.append(len(rows))
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)

    done = sweep(declare(handler, Item, source=lambda: Item.objects.filter(note="", number=-1), batch=BATCH))

    assert (done.state, sum(pages), ledger(done).processed) == ("done", ROWS // EVERY, ROWS // EVERY)
    stretches = ROWS // (module.STRETCH * BATCH)
    assert done.result["pages"] <= stretches + 1
    asked = [(sql, params) for sql, params in statements if sql.lstrip().upper().startswith("SELECT")]
    assert 2 * stretches <= len(asked) <= 2 * stretches + 5, "two statements a page: where its stretch ends, its rows"
    with connection.cursor() as cursor:
        for sql, params in asked[:: max(1, len(asked) // 40)]:
            if connection.vendor == "postgresql":
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
                plan = cursor.fetchone()[0]
                plan = json.loads(plan) if isinstance(plan, str) else plan
                assert rows_read(plan[0]["Plan"]) <= module.STRETCH * BATCH, (sql, plan)
            else:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                plan = " ".join(str(line[3]) for line in cursor.fetchall())
                assert "rowid" in plan or "DESC" in sql, (sql, plan)
                assert "TEMP B-TREE" not in plan, (sql, plan)
