"""Database connections of a worker's threads: kept between runs, and replaced where a body spoilt them."""

from __future__ import annotations

import contextlib
import logging
import select
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ultimat3_jobs.logs import emit
from ultimat3_jobs.statements import changes_the_session
from ultimat3_jobs.transactions import in_raw_transaction
from ultimat3_jobs.worker.inflight import monotonic

LONG_IDLE = 30.0
"""Seconds after which a connection is asked whether it still works before a body gets it."""

_thread = threading.local()


def prepare_connections() -> frozenset[str]:
    """Before a run: make the thread's connections outlast it, whatever CONN_MAX_AGE says; drop dead ones.

    Returns:
        The aliases on which a caller has a transaction open. In a worker there are none.
    """
    idle = monotonic() - getattr(_thread, "used_at", 0.0) > LONG_IDLE
    in_transaction = set()
    _thread.watch = watch = _Watch(getattr(_thread, "watch", None))
    for connection in connections.all():
        connection.execute_wrappers.append(watch)
        if connection.in_atomic_block or not connection.autocommit:
            if connection.connection is not None:
                in_transaction.add(connection.alias)
            continue
        connection.close_at = None
        if connection.connection is not None and (idle or connection.errors_occurred or _server_spoke(connection)):
            _drop_unless(connection, connection.is_usable)
    return frozenset(in_transaction)


def replace_spoilt_connections(in_transaction: frozenset[str] = frozenset()) -> None:
    """After a run: drop every connection that a body left in a transaction, without autocommit, changed, or broken.

    Never raises: how the run ended is not changed by what is found here.

    Args:
        in_transaction: what `prepare_connections` returned: never touched.
    """
    watch: _Watch = getattr(_thread, "watch", None) or _Watch(None)
    _thread.watch = watch.outer
    for connection in connections.all(initialized_only=True):
        with contextlib.suppress(ValueError):
            connection.execute_wrappers.remove(watch)
        if connection.alias not in in_transaction:
            watch.close_cursors(connection.alias)
            _drop_unless(connection, partial(_clean, connection, watch))
    _thread.used_at = monotonic()


def _drop_unless(connection: BaseDatabaseWrapper, sound: Callable[[], bool]) -> None:
    try:
        if sound():
            connection.errors_occurred = False
            return
    except Exception as error:
        emit("jobs.connection.check-failed", level=logging.WARNING, error=type(error).__name__)
    # The wrapper too carries the state of a broken transaction: both go, and the next use makes them anew.
    try:
        if connection.vendor == "postgresql" and connection.connection is not None:
            connection.connection.close()  # by itself: a pool takes back what is open, and hands it to the next
        connection.close()
    except Exception as error:
        emit("jobs.connection.close-failed", level=logging.WARNING, error=type(error).__name__)
    del connections[connection.alias]


def _clean(connection: BaseDatabaseWrapper, watch: _Watch) -> bool:
    if connection.in_atomic_block or connection.needs_rollback or connection.closed_in_transaction:
        return False
    if connection.connection is None:
        return not connection.allow_thread_sharing
    if connection.allow_thread_sharing or connection.alias in watch.changed:
        return False
    if connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
        return False
    if connection.autocommit and in_raw_transaction(connection):
        return False
    return not connection.errors_occurred or connection.is_usable()


class _Watch:
    """Wraps the statements of one run. A body may share its connection with threads of its own: they are seen too."""

    def __init__(self, outer: _Watch | None) -> None:
        self.outer = outer
        self.changed: set[str] = set()
        self._cursors: WeakSet[Any] = WeakSet()

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """Note where a body changes its session, such as its `search_path`: nobody can tell how to change it back."""
        connection = context["connection"]
        if changes_the_session(sql, session=connection.connection):
            self.changed.add(connection.alias)
        self._cursors.add(context["cursor"])
        return execute(sql, params, many, context)

    def close_cursors(self, alias: str) -> None:
        """Close what a body left open and somebody still holds: on SQLite a read in the middle keeps its snapshot."""
        for cursor in list(self._cursors):
            if cursor.db.alias == alias:
                with contextlib.suppress(Exception):
                    cursor.close()


def _opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Forget what was changed in the session before: so far a new one has what the project sets in each of its own."""
    if connection.settings_dict["OPTIONS"].get("pool"):
        return  # of a pool it may be the very one that was changed
    watch: _Watch | None = getattr(_thread, "watch", None)
    while watch is not None:
        watch.changed.discard(connection.alias)
        watch = watch.outer


# Behind the receivers of the project, which were there when its apps were loaded.
connection_created.connect(_opened, dispatch_uid="ultimat3_jobs.worker.connections")


def _server_spoke(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server sent something unasked, as it does when it ends a connection. Costs no round trip."""
    if connection.vendor != "postgresql" or connection.connection is None or connection.connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
