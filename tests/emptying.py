"""Empties the tables that tests fill: what is empty already is left alone, all of them in one look.

With `TEST_DATABASE_IS_MADE` in the environment, a run takes the test database as an earlier `--reuse-db` run left it,
and empties it first where that is "left", since the last test did not come to do so.
"""

from __future__ import annotations

from functools import cache

from django.apps import apps
from django.conf import settings
from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper

# The apps whose tables tests fill.
EMPTIED = ("ultimat3_jobs", "app", "catalogs")

MADE = "TEST_DATABASE_IS_MADE"
LEFT = "left"

_own: dict[str, BaseDatabaseWrapper] = {}


def empty_tables() -> None:
    """Empty the tables, over a connection that is kept for that: whatever a test did to its own does not matter."""
    try:
        _empty(_kept())
    except Error:  # a test may have cut every connection there was
        close()
        _empty(_kept())


def let_go(opened: BaseDatabaseWrapper) -> None:
    """Close a test's connection, or make it what a new one would be.

    A server's process takes longer to start, and to read the catalogs that the first statements need, than most tests
    take. One that a test left in a transaction, or in any other state that is not plain, is closed all the same.
    """
    if opened.vendor == "postgresql" and _is_plain(opened):
        try:
            with opened.cursor() as cursor:
                cursor.execute("DISCARD ALL")  # settings, locks, temporary tables, what it listens to
            opened.init_connection_state()
        except Error:
            opened.close()
    else:
        opened.close()


def _is_plain(opened: BaseDatabaseWrapper) -> bool:
    busy = opened.in_atomic_block or opened.needs_rollback or opened.run_on_commit or opened.execute_wrappers
    if opened.connection is None or busy or opened.connection.closed or not opened.get_autocommit():
        return False
    return bool(opened.connection.info.transaction_status == opened.connection.info.transaction_status.IDLE)


def take_made_database() -> None:
    """Lead the connection to the test database that an earlier run has made."""
    name = connection.creation._get_test_db_name()
    connection.close()
    settings.DATABASES[connection.alias]["NAME"] = connection.settings_dict["NAME"] = name


def close() -> None:
    """Close the connection: before the database is dropped."""
    for opened in _own.values():
        opened.close()
    _own.clear()


def _kept() -> BaseDatabaseWrapper:
    name = str(connection.settings_dict["NAME"])
    if name not in _own:
        _own[name] = connection.copy(alias="emptying")
        _own[name].inc_thread_sharing()
    return _own[name]


def _empty(opened: BaseDatabaseWrapper) -> None:
    look, tables = _look()
    with opened.cursor() as cursor:
        cursor.execute(look)
        filled = [tables[number] for (number,) in cursor.fetchall()]
        if filled:
            cursor.execute("BEGIN")
            for table in filled:
                cursor.execute(f"DELETE FROM {table}")
            cursor.execute("COMMIT")


@cache
def _look() -> tuple[str, list[str]]:
    """Return what selects the numbers of the tables that hold rows, and the tables."""
    models = [model for model in apps.get_models() if model._meta.app_label in EMPTIED]
    tables = [connection.ops.quote_name(model._meta.db_table) for model in models]
    looks = [f"SELECT {number} WHERE EXISTS (SELECT 1 FROM {table})" for number, table in enumerate(tables)]
    return " UNION ALL ".join(looks), tables
