"""A transaction whose last statement is a fence: what a body or a step writes commits with the right to write it.

The fence is a write, or a locking read, of the job's row under the claim's token. It comes last: where another worker
was given the job meanwhile, nothing remains; and no lock is held on the row while the body works, so that its lease can
be renewed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connections, transaction
from django.db.transaction import TransactionManagementError

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.errors import StepNotAtomic, TransactionBroken
from ultimat3_jobs.forks import leave_if_forked
from ultimat3_jobs.logs import emit
from ultimat3_jobs.marks import IDLE, IN_ERROR, Mark, mark
from ultimat3_jobs.sqlstates import OUT_OF_SIGHT, sqlstate
from ultimat3_jobs.statements import ends_the_transaction, only_reads

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ultimat3_jobs.drivers import Driver
    from ultimat3_jobs.records import ClaimedJob
    from ultimat3_jobs.vitals import Vitals


class FencedTransaction:
    """One durable transaction, on the queue's database unless another is named, kept whole until its fence.

    Args:
        driver: the queue.
        job: whose body or step works in it.
        owner: what works in it, for messages: "the body of the atomic job shop.ship".
        is_committed: asks the queue, on a sound connection, whether the transaction is there.
        alias: of another database.
        elsewhere: what to write instead for what goes to another database: a fix.
        vitals: where the worker sees that a transaction is open on the queue's database.

    Attributes:
        landed: whether the fence held. The commit comes after it.
        replaced: whether the connection had to be opened anew to learn of the commit: what the run had set in its
            session is gone.
    """

    def __init__(
        self,
        driver: Driver,
        job: ClaimedJob,
        *,
        owner: str,
        is_committed: Callable[[], bool],
        alias: str | None = None,
        elsewhere: str = "run.step(name, fn)  # a plain step for what goes to another database: at least once",
        vitals: Vitals | None = None,
    ) -> None:
        self._driver = driver
        self._elsewhere = elsewhere
        self._vitals = vitals
        self._job = job
        self._owner = owner
        self._ask = is_committed
        self._on = alias
        self._alias, self._depth = "", 0
        self._mark: Mark
        self.landed = self.replaced = False

    @contextmanager
    def open(self, *, alone: bool = False) -> Iterator[None]:
        """Open the transaction; `end_with` must be called when the work in it is done.

        Args:
            alone: refuse writes to other databases meanwhile: they would not commit with it.

        Raises:
            TransactionBroken: where what works in it would end it, or left a block of it open.
            StepNotAtomic: where it would write to another database.
        """
        queue = queue_alias()
        alias = self._on or queue
        process = os.getpid()
        try:
            with self._seen(alias == queue), transaction.atomic(using=alias, durable=True):
                # Before the body reads: SQLite refuses a transaction that has read and then comes to write.
                if alias == queue:
                    self._driver.take_turn()
                with self._kept_whole(alias), ExitStack() as watched:
                    if alone:
                        watched.enter_context(written_alone(alias, refuse=self._writes_elsewhere))
                    yield
            leave_if_forked(process)  # a hook that ran after the commit may have forked
        # SystemExit and the like too: raised by a hook, they come after the commit.
        except BaseException as error:
            leave_if_forked(process, error)
            if not (self.landed and self._is_committed(alias)):
                raise
            # Either the answer to the commit was lost, or a hook that ran after it raised.
            emit(
                "jobs.atomic.error-after-commit",
                level=logging.WARNING,
                exc_info=True,
                job=self._job.claim.id,
                name=self._job.name,
                error=type(error).__name__,
            )

    def end_with(self, fence: Callable[[], bool]) -> bool:
        """Run the last statement and return whether it landed; where it did not, the caller raises.

        Raises:
            TransactionBroken: where the transaction is not as it was opened.
        """
        connection = connections[self._alias]
        if self._mark.is_over():
            raise self._ended()
        if not connection.in_atomic_block or len(connection.atomic_blocks) != self._depth:
            raise self._broken("left a transaction.atomic() block open, or closed one that is not its own")
        try:
            is_marked, landed = self._mark.holds_with(fence)
        except DatabaseError as error:
            if sqlstate(error) in OUT_OF_SIGHT:
                error.add_note(
                    f"{self._owner} was done, and its fence could not be written: does it leave a role or a "
                    "search_path set? SET LOCAL ROLE NONE; SET LOCAL search_path TO DEFAULT  -- before it ends"
                )
            raise
        if not is_marked:
            raise self._ended()
        self.landed = landed
        return landed

    def is_sound(self) -> bool:
        """Whether what was written in the transaction so far will commit, where no statement of its own is its fence.

        After an error that was caught inside it, a commit rolls back and says nothing of it.
        """
        connection = connections[self._alias]
        if connection.connection is not self._mark.session or connection.needs_rollback:
            return False
        if connection.vendor == "postgresql":
            return int(connection.connection.info.transaction_status) != IN_ERROR
        return connection.is_usable()

    @contextmanager
    def _seen(self, in_queue: bool) -> Iterator[None]:
        """Have the worker see, for the length of the block, that writers may have to wait for it."""
        if self._vitals is None or not in_queue:
            yield
            return
        self._vitals.in_transaction = True
        try:
            yield
        finally:
            self._vitals.in_transaction = False

    @contextmanager
    def _kept_whole(self, alias: str) -> Iterator[None]:
        """Keep the body from ending the transaction: what it wrote would be there without the fence, or the reverse."""
        connection = connections[alias]
        self._alias, self._depth, self._mark = alias, len(connection.atomic_blocks), mark(connection)
        with kept_whole(alias, refuse=self._ends_it):
            try:
                yield
            except BaseException as error:
                with suppress(Exception):  # an exception can refuse even this
                    self._explain(connection, error)
                raise

    def _explain(self, connection: BaseDatabaseWrapper, error: BaseException) -> None:
        if connection.closed_in_transaction:
            error.add_note(f"{self._owner} closed the connection of its transaction: what it wrote is undone")
        elif not isinstance(error, TransactionBroken) and self._mark.is_over():
            error.add_note(f"{self._owner} had ended its transaction: what it committed stays written")
        elif connection.needs_rollback and isinstance(error, TransactionManagementError):
            error.add_note(
                f"{self._owner} caught an error inside transaction.atomic(savepoint=False), or called "
                "set_rollback(True): its transaction cannot commit"
            )

    def _ends_it(self) -> TransactionBroken:
        return self._broken("would end the transaction that it shares with its fence, by a statement of its own")

    def _writes_elsewhere(self, other: str) -> StepNotAtomic:
        return StepNotAtomic(
            f"{self._owner} writes to {other!r}, which does not commit with the queue's database {self._alias!r}",
            fix=self._elsewhere,
        )

    def _broken(self, what: str) -> TransactionBroken:
        return TransactionBroken(
            f"{self._owner} {what}; what it wrote is undone",
            fix="with transaction.atomic(): ...  # a part that can be undone by itself; or leave atomic=True out",
        )

    def _ended(self) -> TransactionBroken:
        return TransactionBroken(
            f"{self._owner} ended the transaction that it shares with its fence, past Django; what it committed so "
            "stays written, and is written again where it runs again",
            fix="with transaction.atomic(): ...  # a part that can be undone by itself; or leave atomic=True out",
        )

    def _is_committed(self, alias: str) -> bool:
        """Whether the transaction is there. Where that cannot be learnt, whatever is fenced and follows decides."""
        try:
            connection = connections[alias]
            if not connection.is_usable():
                connection.close()
            # Not what is usable tells: a failed commit closes the connection, and Django has opened another by now.
            self.replaced = connection.connection is not self._mark.session
            return self._ask()
        except Exception:
            return False


@contextmanager
def kept_whole(alias: str, *, refuse: Callable[[], Exception]) -> Iterator[None]:
    """Keep work from ending the transaction that is open on a database by a statement of its own.

    Args:
        alias: of the database.
        refuse: gives the exception to raise instead.
    """
    connection = connections[alias]
    depth = len(connection.atomic_blocks)

    def watch(execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if ends_the_transaction(sql, nested=connection.vendor == "postgresql", session=connection.connection):
            raise refuse()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        try:
            yield
        except BaseException as error:
            # Or the end of the caller's block would be taken for that of one which the work left open.
            while len(connection.atomic_blocks) > depth:
                connection.atomic_blocks[-1].__exit__(type(error), error, None)
            raise


@contextmanager
def written_alone(alias: str, *, refuse: Callable[[str], Exception]) -> Iterator[None]:
    """Refuse writes to all databases but one, for the length of the block and in this thread.

    Args:
        alias: of the one that may be written to.
        refuse: gives the exception to raise, from the alias of another.
    """

    def watch(execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        other = context["connection"]
        if not only_reads(sql, nested=other.vendor == "postgresql", session=other.connection):
            raise refuse(other.alias)
        return execute(sql, params, many, context)

    with ExitStack() as watched:
        for connection in connections.all():
            if connection.alias != alias:
                watched.enter_context(connection.execute_wrapper(watch))
        yield


TRIES = 5
"""How often a transaction is begun at most that the server ended for the sake of another."""
LONGEST_PAUSE = 0.2
"""Seconds between two of these tries; chance decides, so that two that met do not meet again."""


def in_raw_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction was begun past Django, with a statement of its own, on an open connection."""
    if connection.vendor == "sqlite":
        return bool(connection.connection.in_transaction)
    if connection.vendor == "postgresql":
        return int(connection.connection.info.transaction_status) != IDLE
    return False
