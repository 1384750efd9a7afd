"""A database as it is before `migrate`, as far as one table goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def without_table(table: str) -> Iterator[None]:
    """Have a table go by another name for the length of the block."""
    elsewhere = f"{table}_elsewhere"
    _rename(table, elsewhere)
    try:
        yield
    finally:
        _rename(elsewhere, table)


def _rename(table: str, to: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {to}")
