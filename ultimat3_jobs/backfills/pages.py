"""One page of a sweep: its rows are read, handed to the handler, and the cursor is moved behind them.

Where the rows are in the queue's database all of this is one transaction, and its last statement is the fence: a page
is handled exactly once. Elsewhere the page commits first and the cursor is moved then: a page may be handled again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, transaction

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills import cursor as cursors
from ultimat3_jobs.backfills import ledger
from ultimat3_jobs.backfills.handlers import call_handler
from ultimat3_jobs.backfills.keyset import Keys, StoredKey, go_up, read_page
from ultimat3_jobs.context import vitals_of
from ultimat3_jobs.control import Suspended
from ultimat3_jobs.errors import BackfillKeysMoved, BackfillSourceInvalid, TransactionBroken
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Suspension
from ultimat3_jobs.sqlstates import AGAIN, sqlstate
from ultimat3_jobs.text import command_line
from ultimat3_jobs.transactions import LONGEST_PAUSE, TRIES, FencedTransaction

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.cursor import Cursor
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.backfills.source import Rows
    from ultimat3_jobs.context import Run
    from ultimat3_jobs.steps.steps import Steps


class Pages:
    """Lands the pages of one attempt of a pass.

    Args:
        backfill: what is swept.
        rows: its rows.
        keys: of their model.
        run: what the handler gets.
        steps: what records the run.
        open_again: opens the ledger's row of the pass, where somebody has deleted it, at a cursor.
    """

    def __init__(
        self,
        backfill: BackfillDefinition,
        rows: Rows,
        keys: Keys,
        run: Run,
        steps: Steps,
        *,
        open_again: Callable[[Cursor], None],
    ) -> None:
        self._backfill = backfill
        self._rows = rows
        self._keys = keys
        self._run = run
        self._steps = steps
        self._vitals = vitals_of(run)
        self._open_again = open_again
        self._found: list[Any] = []  # the keys of the rows of the page that is being handled

    def land(self, cursor: Cursor, until: StoredKey, size: int) -> Cursor:
        """Handle the next page and return how far the pass is then.

        A page that the database ended for the sake of another transaction is begun again, and so is one whose rows had
        their keys changed while it was read.

        Args:
            cursor: how far the pass is.
            until: the last key that the page may have.
            size: rows that it may have.

        Raises:
            Aborted: where the run is over. What the page wrote is rolled back.
            BackfillKeysMoved: where its rows have their keys changed again and again.
            Exception: what the handler raised.
        """
        handle = self._with_the_cursor if self._rows.in_one else self._before_the_cursor
        for left in reversed(range(TRIES)):
            try:
                with self._naming_rows():
                    return handle(cursor, until, size)
            except (OperationalError, BackfillKeysMoved) as error:
                if not left or not (isinstance(error, BackfillKeysMoved) or sqlstate(error) in AGAIN):
                    raise
                job = self._steps.job
                emit("jobs.backfill.again", level=logging.WARNING, job=job.claim.id, name=job.name, left=left)
            self._run.cancelled.wait(random.uniform(0, LONGEST_PAUSE))  # noqa: S311 - chance, not a secret
            self._steps.check()
        raise AssertionError("the last try returns or raises")

    def _write(self, cursor: Cursor) -> bool:
        if not ledger.tell_progress(self._run.run_id, cursor):
            self._open_again(cursor)
        return self.checkpoint(cursor)

    def checkpoint(self, cursor: Cursor) -> bool:
        """Write the cursor alone; return whether the claim still owns the job. The last statement of a transaction."""
        job = self._steps.job
        return self._steps.driver.checkpoint(job.claim, cursor.record(job, self._run.attempt))

    def _with_the_cursor(self, cursor: Cursor, until: StoredKey, size: int) -> Cursor:
        moved = cursor
        one = FencedTransaction(
            self._steps.driver,
            self._steps.job,
            owner=f"a page of backfill {self._backfill.name}",
            is_committed=lambda: self._is_there(moved),
            elsewhere="atomic=False  # in the declaration: what a page writes elsewhere happens at least once",
            vitals=self._vitals,
        )
        with one.open(alone=True):
            moved = self._handle(cursor, until, size)
            if not one.end_with(lambda: self._write(moved)):
                self._steps.landed(None)
        if self._steps.pending is not None:  # by a hook of the commit, whose signal went no further
            raise Suspended(self._steps.pending)
        if one.replaced:
            # What the run had set on its connection, its tenant's scoping perhaps, is gone: begin again on a sound one.
            self._steps.suspend(Suspension(reason=f"the connection was lost at the commit of page {moved.pages}"))
        return moved

    def _before_the_cursor(self, cursor: Cursor, until: StoredKey, size: int) -> Cursor:
        owner = f"a page of backfill {self._backfill.name}"
        one = FencedTransaction(
            # Whether it is there is never asked: a page of which that is not known is handled again.
            self._steps.driver,
            self._steps.job,
            owner=owner,
            is_committed=lambda: False,
            alias=self._rows.alias,
            vitals=self._vitals,
        )
        with one.open():
            moved = self._handle(cursor, until, size)
            # Or the cursor would move behind a page that is not there.
            if not one.end_with(one.is_sound):
                raise TransactionBroken(
                    f"{owner} caught an error of the database, and its transaction cannot commit; what it wrote is "
                    "undone",
                    fix="with transaction.atomic(): ...  # around what may fail, inside the try",
                )
        with transaction.atomic(using=queue_alias()):
            if not self._write(moved):
                self._steps.landed(None)
        return moved

    def _handle(self, cursor: Cursor, until: StoredKey, size: int) -> Cursor:
        after = None if cursor.at is None else self._keys.load(cursor.at)
        rows = read_page(self._rows, after, self._keys.load(until), size)
        # Before the handler, which may do to its rows whatever it likes.
        found = self._found = [row.pk for row in rows]
        if found and self._keys.store(found[0]) == cursor.at:
            raise BackfillSourceInvalid(
                f"{self._rows.table} has the row {found[0]!r} behind the key {after!r}, which is its own: the database "
                "does not have it as Django reads and writes it, and the sweep would not get past it",
                fix=f"{self._rows.model.__name__}.objects.get(pk={found[0]!r})  # must find the row: mend its key",
            )
        if found and not go_up(after, found, self._keys.load(until)):
            raise BackfillKeysMoved(
                f"the keys of the rows of page {cursor.pages + 1} of backfill {self._backfill.name!r} do not go up: "
                f"{found[0]!r} to {found[-1]!r}, behind {after!r} and up to {until!r}; somebody has changed them",
                fix=command_line("jobs", "retry", str(self._run.id)),
            )
        # Where there may be more rows in the stretch, it goes on behind the last one.
        at = self._keys.store(found[-1]) if len(found) == size else until
        if rows:
            with self._steps.refused_inside(f"a page of backfill {self._backfill.name}"):
                page = f"page {cursor.pages + 1}"
                self._steps.timed(page, call_handler, (self._backfill, self._run, rows), within=page)
            self._steps.check()
        return cursor.after(at, rows=len(found), size=size)

    @contextmanager
    def _naming_rows(self) -> Iterator[None]:
        """Have what is raised in the block, at the commit too, say which rows it was about."""
        self._found = []
        try:
            yield
        except Exception as error:
            if self._found:
                with suppress(Exception):  # an exception can refuse even this
                    keys = f"{self._found[0]!r} to {self._found[-1]!r}"
                    error.add_note(f"its rows: {self._rows.table} with the keys {keys}")
            raise

    def _is_there(self, moved: Cursor) -> bool:
        job, driver = self._steps.job, self._steps.driver
        if not driver.recorded(job.claim, cursors.NAME):
            return False
        return cursors.parse(driver.step_output(job.run_id, cursors.NAME), job.run_id).pages >= moved.pages
