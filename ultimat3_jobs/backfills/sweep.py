"""The body of a pass: from its cursor to its bound, page by page, then the count, then the ledger."""

from __future__ import annotations

import logging
import operator
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, transaction

from ultimat3_jobs import registry
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills import cursor as cursors
from ultimat3_jobs.backfills import ledger
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.cursor import Cursor
from ultimat3_jobs.backfills.facts import facts_of
from ultimat3_jobs.backfills.gate import judge
from ultimat3_jobs.backfills.keyset import Keys, StoredKey, last_key, stretch, up_to
from ultimat3_jobs.backfills.pacing import Sizes
from ultimat3_jobs.backfills.pages import Pages
from ultimat3_jobs.backfills.passes import live_passes, named
from ultimat3_jobs.backfills.source import Rows, open_rows
from ultimat3_jobs.backfills.totals import count_rows
from ultimat3_jobs.backfills.turns import MOST_REASON, Turns
from ultimat3_jobs.context import steps_of, vitals_of
from ultimat3_jobs.errors import BackfillApplied, BackfillCountInvalid, BackfillSourceChanged, BackfillStalled
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Capability, Suspension
from ultimat3_jobs.sqlstates import QUERY_CANCELLED, sqlstate
from ultimat3_jobs.traces import repr_of

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.context import Run

STRETCH = 10
"""Keys of the table that one page may look at, as a multiple of the rows that it may have."""
LONGEST_NUMBER = 200
"""Bits of a count that is told in full."""
TAKEN = 15.0
"""Seconds until a pass looks again whether the table of another one is free."""


def sweep(backfill: BackfillDefinition, run: Run, *, forced: bool) -> dict[str, Any]:
    """Sweep the rows of a backfill from where the run is; return what it came to.

    Args:
        backfill: what to sweep.
        run: the run of the pass.
        forced: whether it sweeps although another pass has completed.
    """
    return _Sweep(backfill, run, forced=forced).run()


class _Sweep:
    """One attempt of one pass."""

    def __init__(self, backfill: BackfillDefinition, run: Run, *, forced: bool) -> None:
        self._backfill = backfill
        self._run = run
        self._forced = forced
        self._steps = steps_of(run)
        self._vitals = vitals_of(run)
        self._steps.require(Capability.STEPS, f"backfill {backfill.name!r}")
        self._turns = Turns(backfill, self._steps, self._vitals)
        job = registry.find(self._steps.job.name)
        assert job is not None  # noqa: S101 - its body runs
        self._job = job
        # Sorted, so that of two that begin at once one gets all; with the one that it was queued under, whatever is
        # declared now.
        self._names = sorted({*job.names, self._steps.job.name})
        self._rows: Rows
        self._keys: Keys
        self._pages: Pages
        self._until: StoredKey | None = None
        self._checksum = ""

    def run(self) -> dict[str, Any]:
        cursor = cursors.read(self._steps)
        if cursor is not None and cursor.finished:  # and its worker died before it could say so
            return _outcome(cursor)
        self._run.cancelled.call(self._turns.stop_waiting)
        self._vitals.winding_down.call(self._turns.stop_waiting)
        # Before anything is asked of the rows: who pauses a pass that does harm, or fails, is obeyed.
        self._turns.look()
        self._open_rows()
        self._let_older_go_first()
        # Before it is asked what has completed: whoever had the names before has written that down by now.
        self._take_names()
        checksum = self._ask_the_gate()
        if checksum is None:
            return {"skipped": "another pass of this backfill has completed, and this one is not forced"}
        if cursor is not None:
            self._require_its_table(cursor)
        self._open_pass(checksum, cursor)
        if cursor is None:
            cursor = self._start(checksum)
        elif cursor.pages:
            self._turns.resumed()
            self._warn_of_changes(cursor)
        self._tell(cursor)
        sizes = Sizes(self._backfill.batch, cursor.size)
        while not cursor.swept:
            self._turns.await_next(self._rows)
            cursor = self._land(cursor, sizes)
        self._verify()
        return self._complete(cursor)

    def _open_rows(self) -> None:
        self._rows = open_rows(self._backfill)
        self._keys = Keys(self._rows.model, backfill=self._backfill.name)
        self._pages = Pages(self._backfill, self._rows, self._keys, self._run, self._steps, open_again=self._open_again)

    def _let_older_go_first(self) -> None:
        """Give way where an older pass is live, under another of its names."""
        older = min(live_passes([named(self._job)]), default=self._run.run_id)
        if older < self._run.run_id:
            self._give_way(f"an older pass of it is live: {older}")

    def _take_names(self) -> None:
        """Take all names of the backfill, or give way: code that knows fewer of them takes one at least."""
        for name in self._names:
            if not ledger.take_name(self._run.run_id, name):
                self._give_way(f"another pass of it is live: {ledger.holder_of_name(name)}")

    def _ask_the_gate(self) -> str | None:
        """Return the checksum of the declaration, or None where another pass has done it all.

        Also where this one has begun: it may be a dead letter that is retried after a new pass has completed.

        Raises:
            BackfillEnvironment, BackfillMigrationPending: where the pass may not sweep.
        """
        facts = facts_of(self._job, self._backfill, self._rows, own_run=self._run.run_id)
        verdict = judge(self._backfill, replace(facts, live_run=None), forced=self._forced)
        for warning in verdict.warnings:
            self._emit("jobs.backfill.changed", level=logging.WARNING, why=warning)
        if isinstance(verdict.error, BackfillApplied):
            self._emit("jobs.backfill.skipped", why=verdict.error.cause)
            return None
        if verdict.error is not None:
            raise verdict.error
        return facts.checksum

    def _require_its_table(self, cursor: Cursor) -> None:
        """Refuse to go on over another table: nobody can tell whether any of its rows has been looked at.

        Raises:
            BackfillSourceChanged: where the source gives rows of another table, or of one in another database.
        """
        begun, now = (cursor.table, cursor.alias), (self._rows.table, self._rows.alias)
        if not cursor.table or begun == now:
            return
        raise BackfillSourceChanged(
            f"the pass of backfill {self._backfill.name!r} began with {begun[0]} on {begun[1]!r}, and its source now "
            f"gives rows of {now[0]} on {now[1]!r}: whether it has looked at any of them cannot be told",
            fix=f"{backfill_command(self._backfill.name, '--write')}  # starts another pass",
        )

    def _warn_of_changes(self, cursor: Cursor) -> None:
        if cursor.checksum and self._checksum and cursor.checksum != self._checksum:
            self._emit(
                "jobs.backfill.altered",
                level=logging.WARNING,
                why="it began with another handler or other filters than are declared now, and what is behind its "
                "cursor is not looked at again",
                pages=cursor.pages,
            )

    def _open_pass(self, checksum: str, cursor: Cursor | None) -> None:
        self._checksum = checksum
        if self._open_row() and cursor is not None:  # deleted since an earlier attempt
            self._open_again(cursor)
        for table in self._rows.tables if self._backfill.exclusive else ():
            if not ledger.take_table(self._run.run_id, self._rows.alias, table):
                self._give_way(f"another pass sweeps {table}: {ledger.holder_of_table(self._rows.alias, table)}")

    def _give_way(self, reason: str) -> None:
        """Look again later, and hold nothing until then: passes that wait for one another would do so for ever."""
        ledger.let_go(
            self._steps.job.claim,
            self._run.run_id,
            names=self._names,
            alias=self._rows.alias,
            tables=self._rows.tables,
        )
        self._steps.suspend(Suspension(reason=reason[:MOST_REASON], delay=TAKEN))

    def _open_row(self) -> bool:
        return ledger.open_pass(
            self._backfill,
            self._run.run_id,
            table=self._rows.table,
            forced=self._forced,
            requested_by=self._run.enqueued_by,
            checksum=self._checksum,
        )

    def _open_again(self, cursor: Cursor) -> None:
        """Open the ledger's row anew, as far as the pass is, with its controls as they are declared."""
        self._open_row()
        ledger.start_pass(self._run.run_id, cursor, checksum=cursor.checksum or self._checksum)
        ledger.tell_progress(self._run.run_id, cursor)

    def _start(self, checksum: str) -> Cursor:
        bound, total, estimated = last_key(self._rows), 0, False
        if bound is not None:
            total, estimated = count_rows(up_to(self._rows.queryset, bound))
        cursor = Cursor(
            bound=None if bound is None else self._keys.store(bound),
            size=Sizes(self._backfill.batch).size,
            total=total,
            estimated=estimated,
            table=self._rows.table,
            alias=self._rows.alias,
            checksum=checksum,
        )
        with transaction.atomic(using=queue_alias()):
            ledger.start_pass(self._run.run_id, cursor, checksum=checksum)
            self._write(cursor)
        self._emit("jobs.backfill.started", table=self._rows.table, total=total)
        return cursor

    def _land(self, cursor: Cursor, sizes: Sizes) -> Cursor:
        """Land one page, of fewer rows where the database's time limit was too short for it."""
        while True:
            self._turns.began()
            began_at, size = time.monotonic(), sizes.size
            try:
                if self._until is None or self._until == cursor.at:
                    self._until = self._next_stretch(cursor, STRETCH * size)
                moved = self._pages.land(cursor, self._until, size)
            except OperationalError as error:
                if sqlstate(error) != QUERY_CANCELLED or not sizes.timed_out():
                    raise
                self._until = None
                self._emit("jobs.backfill.split", level=logging.WARNING, size=sizes.size)
                self._steps.check()
                continue
            sizes.landed(moved.handled - cursor.handled, time.monotonic() - began_at)
            self._turns.landed()
            self._run.attempt = 1  # as its row has it now: the pass has got on
            self._tell(moved)
            return moved

    def _next_stretch(self, cursor: Cursor, length: int) -> StoredKey:
        bound = self._keys.load(cursor.bound or [])
        after = None if cursor.at is None else self._keys.load(cursor.at)
        return self._keys.store(stretch(self._rows, after, bound, length))

    def _tell(self, cursor: Cursor) -> None:
        self._run.progress(cursor.handled, cursor.total)

    def _verify(self) -> None:
        """Ask the backfill's own count whether rows are left.

        Raises:
            BackfillCountInvalid: where its answer is none.
            BackfillStalled: where rows are left.
        """
        if self._backfill.count is None:
            return
        left = checked_count(self._backfill.name, self._backfill.count())
        if left:
            raise BackfillStalled(
                f"the pass of backfill {self._backfill.name!r} went through all of its rows, and its count says that "
                f"{_number(left)} {'is' if left == 1 else 'are'} left",
                fix=f"{backfill_command(self._backfill.name, '--write')}  # once the code is mended",
            )

    def _complete(self, cursor: Cursor) -> dict[str, Any]:
        finished = cursor.completed()
        with transaction.atomic(using=queue_alias()):
            if not ledger.complete_pass(self._run.run_id, finished):
                self._open_again(finished)
                ledger.complete_pass(self._run.run_id, finished)
            self._write(finished)
        self._tell(finished)
        self._emit("jobs.backfill.completed", **_outcome(finished))
        return _outcome(finished)

    def _write(self, cursor: Cursor) -> None:
        """Write the cursor, fenced, as the last of the open transaction."""
        if not self._pages.checkpoint(cursor):
            self._steps.landed(None)

    def _emit(self, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
        emit(event, level=level, job=self._run.id, name=self._backfill.name, **fields)


def checked_count(name: str, answer: object) -> int:
    """Return what a backfill's count answered.

    Raises:
        BackfillCountInvalid: where it is no whole number of 0 or more.
    """
    try:
        count = -1 if isinstance(answer, bool) else operator.index(answer)  # type: ignore[arg-type]
    except Exception:  # whatever it makes of being asked
        count = -1
    if count < 0:
        raise BackfillCountInvalid(
            f"the count of backfill {name!r} answered {repr_of(answer)}, which is no whole number of 0 or more",
            fix='count=lambda: Post.objects.filter(slug="").count()',
        )
    return count


def _number(count: int) -> str:
    """Return a number as text: Python refuses to write one of thousands of digits."""
    return str(count) if count.bit_length() <= LONGEST_NUMBER else f"at least 2**{count.bit_length() - 1}"


def _outcome(cursor: Cursor) -> dict[str, Any]:
    return {"handled": cursor.handled, "pages": cursor.pages}
