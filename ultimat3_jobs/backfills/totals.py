"""How many rows a pass has before it, without looking at all of them where that takes long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from ultimat3_jobs.sqlstates import QUERY_CANCELLED, sqlstate

PATIENCE = 2_000
"""Milliseconds that counting may take on PostgreSQL."""


def count_rows(queryset: QuerySet[Any], *, patience: int = PATIENCE) -> tuple[int, bool]:
    """Return how many rows a queryset has, and whether that is an estimate of the planner's.

    Args:
        queryset: on its database.
        patience: milliseconds that counting may take. SQLite has no such limit, and counts.
    """
    if connections[queryset.db].vendor != "postgresql":
        return queryset.count(), False
    try:
        with transaction.atomic(using=queryset.db), bounded(queryset.db, patience):
            return queryset.count(), False
    except OperationalError as error:
        if sqlstate(error) != QUERY_CANCELLED:
            raise
    plan = json.loads(queryset.explain(format="json"))
    return int(plan[0]["Plan"]["Plan Rows"]), True


@contextmanager
def bounded(alias: str, milliseconds: int) -> Iterator[None]:
    """Bound what each statement of the block may take on PostgreSQL; the block is in a transaction.

    Args:
        alias: of the database.
        milliseconds: that a statement may take.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        before = cursor.fetchone()[0]
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
    yield
    # The transaction may be a caller's, and go on.
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])
