"""A database as it is before `migrate`, as far as one table or column goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections


@contextmanager
def without_table(table: str, *, using: str = "default") -> Iterator[None]:
    """Have a table of a database go by another name for the length of the block."""
    elsewhere = f"{table}_elsewhere"
    with _altered(f"{table} RENAME TO {elsewhere}", f"{elsewhere} RENAME TO {table}", using):
        yield


@contextmanager
def without_column(table: str, column: str) -> Iterator[None]:
    """Have a column of a table go by another name for the length of the block."""
    rename = f"{table} RENAME COLUMN {{}} TO {{}}"
    with _altered(
        rename.format(column, f"{column}_elsewhere"), rename.format(f"{column}_elsewhere", column), "default"
    ):
        yield


@contextmanager
def _altered(there: str, back: str, alias: str) -> Iterator[None]:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {there}")
    try:
        yield
    finally:
        with connections[alias].cursor() as cursor:
            cursor.execute(f"ALTER TABLE {back}")
