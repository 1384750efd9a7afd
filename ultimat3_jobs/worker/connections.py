"""Database connections of a worker's threads: kept between runs, and replaced where a body spoilt them."""

from __future__ import annotations

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


def keep_connections() -> None:
    """Before a run: make the thread's connections outlast it, whatever CONN_MAX_AGE says; drop broken ones."""
    for connection in connections.all(initialized_only=True):
        connection.close_at = None
        if connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()


def replace_spoilt_connections() -> None:
    """After a run: drop every connection that a body left in a transaction, without autocommit, or broken."""
    for connection in connections.all(initialized_only=True):
        if _spoilt(connection):
            _drop(connection)
        elif connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()


def _spoilt(connection: BaseDatabaseWrapper) -> bool:
    if connection.in_atomic_block or connection.needs_rollback or connection.closed_in_transaction:
        return True
    if connection.connection is None:
        return False
    if connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
        return True
    return _in_raw_transaction(connection)


def _in_raw_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether a body began a transaction past Django, with a statement of its own."""
    if not connection.autocommit:
        return False
    if connection.vendor == "sqlite":
        return bool(connection.connection.in_transaction)
    if connection.vendor == "postgresql":
        return int(connection.connection.info.transaction_status) != 0
    return False


def _drop(connection: BaseDatabaseWrapper) -> None:
    # The wrapper too carries the state of the broken transaction: both go, and the next use makes them anew.
    raw, connection.connection = connection.connection, None
    if raw is not None:
        raw.close()
    del connections[connection.alias]
