"""The caller's own connections, lent to a body that runs inline: used, mended, never closed or replaced."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ultimat3_jobs.errors import TransactionBroken

IN_ERROR = 3
"""What PostgreSQL's client library calls a transaction in which a statement failed."""


class BorrowedConnections:
    """Entered around one body, in place of what a worker does with the connections of its thread.

    Where the caller has a transaction open, the body runs in a savepoint of it, which is kept however the body ends
    unless a database error broke it; to close the connection does nothing meanwhile. Hooks that the body left with
    `transaction.on_commit` are called when it has ended: the commit they wait for never comes in a test. Where no
    transaction is open, one that the body left open is rolled back.
    """

    error: BaseException | None = None
    """What the body raised."""

    def __enter__(self) -> None:
        self._savepoints = ExitStack()
        self._lent = [one for one in connections.all(initialized_only=True) if _in_transaction(one)]
        self._hooks = {one.alias: len(one.run_on_commit) for one in self._lent}
        for connection in self._lent:
            savepoint = transaction.atomic(using=connection.alias)
            # A worker has no transaction open: as in Django's TestCase, a durable block of the body's must not mind.
            savepoint._from_testcase = True  # type: ignore[attr-defined]
            self._savepoints.enter_context(savepoint)
            # Django's close_old_connections() closes a connection because of its open transaction.
            for closing in ("close", "close_if_unusable_or_obsolete"):
                self._savepoints.callback(_give_back, connection, closing, vars(connection).get(closing))
                setattr(connection, closing, _stay_open)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._end(error)
        except BaseException as other:
            self.error = error or other
            if error is None:
                raise
        else:
            self.error = error

    def _end(self, error: BaseException | None) -> None:
        broken = [one for one in self._lent if _broken(one)]
        try:
            if not broken:
                self._call_hooks()
                broken = [one for one in self._lent if _broken(one)]
        finally:
            for connection in self._lent:
                if _broken(connection):
                    connection.needs_rollback = True
            self._savepoints.close()
            self._mend()
        if broken and error is None:
            aliases = ", ".join(repr(one.alias) for one in broken)
            raise TransactionBroken(
                f"the body caught a database error and went on; that broke the transaction around it on {aliases}, "
                "and what it had written is undone",
                fix="with transaction.atomic(): ...  # in the body's try, around the statement that may fail",
            )

    def _call_hooks(self) -> None:
        for connection in self._lent:
            # A hook may leave further ones.
            while len(connection.run_on_commit) > self._hooks[connection.alias]:
                entry: Any = connection.run_on_commit.pop(self._hooks[connection.alias])
                _, hook, robust = entry
                with contextlib.suppress(*((Exception,) if robust else ())):
                    hook()

    def _mend(self) -> None:
        """End what the body left open where no transaction was; a worker would drop the connection, and the work."""
        for connection in connections.all(initialized_only=True):
            if connection in self._lent or connection.connection is None:
                continue
            connection.in_atomic_block = connection.needs_rollback = False
            connection.savepoint_ids.clear()
            connection.atomic_blocks.clear()
            if connection.closed_in_transaction:
                connection.closed_in_transaction, connection.connection = False, None
            else:
                connection.rollback()
                connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])


def _stay_open() -> None:
    """A connection of a worker is opened anew where a body has closed it; a test's transaction would be gone."""


def _give_back(connection: BaseDatabaseWrapper, name: str, before: object) -> None:
    if before is None:
        delattr(connection, name)
    else:
        setattr(connection, name, before)


def _in_transaction(connection: BaseDatabaseWrapper) -> bool:
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def _broken(connection: BaseDatabaseWrapper) -> bool:
    if connection.needs_rollback:
        return True
    if connection.vendor == "postgresql" and connection.connection is not None:
        return int(connection.connection.info.transaction_status) == IN_ERROR
    return False
