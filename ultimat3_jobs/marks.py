"""Marks by which the transaction that is open on a connection is told from any other that is open there later.

They see what no guard of statements sees: ends that went past Django, through the driver's own connection or cursor.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

IDLE = 0
"""What PostgreSQL's client library calls a connection without a transaction."""
IN_ERROR = 3
"""What it calls a transaction in which a statement failed."""

_SETTING = "ultimat3_jobs.transaction"
_ASK = f"SELECT current_setting('{_SETTING}', true)"
_KEPT_BY_SAVEPOINT = ("sqlite", "mysql")
"""Where a savepoint that is not there any more cannot be released, and a release is a statement."""


class Mark:
    """The transaction that is open on a connection, and holds nothing yet; the session alone, where it has no mark."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self.session: Any = connection.connection

    def is_over(self) -> bool:
        """Whether the transaction has ended, as far as that is known without a statement. Not of a lost connection."""
        session = self._connection.connection
        return session is not None and session is not self.session

    def holds_with(self, last: Callable[[], bool]) -> tuple[bool, bool]:
        """Run what is the last of the transaction.

        Returns:
            Whether the transaction is the one that was marked, and what `last` returned. False, where it was not run.
        """
        return True, last()


class _SettingMark(Mark):
    """PostgreSQL: a setting that ends with its transaction. It takes no snapshot, and no subtransaction.

    It is asked for in the same round trip as the first statement of what comes last: the one statement that a mark
    costs is that which sets it.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self._token = secrets.token_hex(8)
        _execute(connection, f"SET LOCAL {_SETTING} = '{self._token}'")

    def is_over(self) -> bool:
        return super().is_over() or (self._connection.connection is not None and _status(self._connection) == IDLE)

    def holds_with(self, last: Callable[[], bool]) -> tuple[bool, bool]:
        seen: list[Any] = []

        def ask(execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
            if seen or many or not isinstance(sql, str) or not _takes_several(context["cursor"].cursor):
                return execute(sql, params, many, context)
            result = execute(f"{_ASK};\n{sql}", params, many, context)
            seen.append(context["cursor"].fetchone())
            context["cursor"].nextset()
            return result

        with self._connection.execute_wrapper(ask):
            landed = last()
        if landed and not seen:
            seen.append(_execute(self._connection, _ASK).fetchone())
        return not seen or seen[0] == (self._token,), landed


class SavepointMark(Mark):
    """A savepoint, which is gone with its transaction. On PostgreSQL it costs a subtransaction."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self._name = f"x_{secrets.token_hex(8)}"
        _execute(connection, connection.ops.savepoint_create_sql(self._name))

    def is_over(self) -> bool:
        if self._connection.vendor == "sqlite" and self._connection.connection is self.session:
            with self._connection.wrap_database_errors:
                return not self.session.in_transaction
        return super().is_over()

    def holds_with(self, last: Callable[[], bool]) -> tuple[bool, bool]:
        # What Django knows to be undone cannot commit, and says so by itself.
        if not self._connection.needs_rollback and not self._there(self._connection.ops.savepoint_commit_sql):
            return False, False
        return True, last()

    def undone(self) -> bool:
        """Undo what was done since, whatever failed meanwhile; return whether the transaction was there to do it.

        Raises:
            DatabaseError: where the connection does not work.
        """
        if self._connection.connection is None:
            raise DatabaseError("the connection was closed")
        return not self.is_over() and self._there(self._connection.ops.savepoint_rollback_sql)

    def _there(self, of: Callable[[str], str]) -> bool:
        try:
            _execute(self._connection, of(self._name))
        except DatabaseError:
            if not self._connection.is_usable() and not self._is_in_error():
                raise
            return False
        return True

    def _is_in_error(self) -> bool:
        return self._connection.vendor == "postgresql" and _status(self._connection) == IN_ERROR


def mark(connection: BaseDatabaseWrapper) -> Mark:
    """Mark the transaction that is open on a connection."""
    if connection.vendor == "postgresql":
        return _SettingMark(connection)
    return SavepointMark(connection) if connection.vendor in _KEPT_BY_SAVEPOINT else Mark(connection)


def _execute(connection: BaseDatabaseWrapper, sql: str) -> Any:
    """Run a statement past the wrappers of Django's cursors, which are for the statements of others."""
    with connection.wrap_database_errors:
        cursor = connection.connection.cursor()
        cursor.execute(sql)
        return cursor


def _status(connection: BaseDatabaseWrapper) -> int:
    return int(connection.connection.info.transaction_status)


def _takes_several(cursor: Any) -> bool:
    """Whether a cursor sends a string of several statements, with its parameters, as it is: psycopg's own kind does."""
    return hasattr(cursor, "mogrify") and hasattr(cursor, "pgresult")
