"""Named statements: the SQL that runs in loops, one file each, the same names for every database.

A file opens with a comment that says what it does. Parameters are written `:name`, so that a file can be pasted into
psql or the sqlite3 shell, and are bound by the database's driver: no statement is ever built from values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from django.db import connections

from ultimat3_jobs.errors import DriverUnavailable

VENDORS = ("postgresql", "sqlite")

# A colon before a name, but not the second of a cast's two.
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@cache
def statement(vendor: str, name: str) -> str:
    """Return the statement `name` for `vendor` in the parameter style of Django's cursors.

    Raises:
        DriverUnavailable: where the package has no statements for this database.
    """
    if vendor not in VENDORS:
        raise DriverUnavailable(
            f"the database driver speaks {' and '.join(VENDORS)}, not {vendor}",
            fix="set DATABASES to a PostgreSQL or SQLite database for the alias that the router gives this app",
        )
    text = _COMMENT.sub("", read(vendor, name)).rstrip().removesuffix(";")
    return _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))


def read(vendor: str, name: str) -> str:
    """Return the text of a statement as its file has it."""
    return (files(__name__) / vendor / f"{name}.sql").read_text(encoding="utf-8")


def names(vendor: str) -> list[str]:
    """Return the names of all statements for `vendor`, sorted."""
    folder = files(__name__) / vendor
    return sorted(entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql"))


def run(alias: str, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run one named statement on the connection `alias` and return its rows."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute(statement(connection.vendor, name), parameters)
        return cursor.fetchall() if cursor.description else []
