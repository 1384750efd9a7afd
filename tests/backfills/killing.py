"""A pass over items for workers that are killed or stopped at one point of it, and what tells whether it kept its word.

A child process runs `work(point, pages, signal)`: a worker that sends itself a signal once it has come to that point
after so many pages.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from typing import Any

from django.core.management import call_command
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F

from tests.app.models import Item
from tests.backfills.sweeping import declare
from ultimat3_jobs import Backfill, Retry
from ultimat3_jobs.backfills import ledger
from ultimat3_jobs.backfills import sweep as totals_of
from ultimat3_jobs.backfills.turns import Turns
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import Job as JobRow

ATTEMPTS = 3
POINTS = ("between", "locked", "written", "told", "moved", "committed")
"""In the order of a page: before it, its rows are read, its handler has written, the ledger, the cursor, its commit."""

CHILD = """
import sys
from tests.backfills.killing import work
work(*sys.argv[1:])
"""


class Killer:
    """Sends a signal to this process at one point, once."""

    def __init__(self) -> None:
        self.point, self.pages, self.number = "", 0, signal.SIGKILL
        self._landed = 0

    def reach(self, here: str) -> None:
        """Take note of where the sweep is."""
        self._landed += here == "committed"
        if here == self.point and self._landed >= self.pages:
            self.point = ""
            print("reached", here, flush=True)
            # To this thread: what is sent to the process may stop it a little later.
            signal.pthread_kill(threading.get_ident(), self.number)


killer = Killer()


def handler(run: Any, rows: list[Item]) -> None:
    """Add 1 to each row: to some by a statement, to others by a save of all that was read."""
    killer.reach("locked")
    Item.objects.filter(pk__in=[one.pk for one in rows if one.pk % 2]).update(handled=F("handled") + 1)
    for one in rows:
        if not one.pk % 2:
            one.handled = F("handled") + 1
            one.save()
    killer.reach("written")


def declare_sweep(**options: Any) -> Backfill:
    """Declare the pass, alike in the test and in its children."""
    return declare(
        handler, Item, **{"name": "t.killed", "batch": 10, "retry": Retry(attempts=ATTEMPTS, delay=0), **options}
    )


def work(point: str, pages: str, number: str, *options: str) -> None:
    """Run a worker that sends itself a signal at a point, once so many pages have landed in this process.

    Args:
        point: where; none of them is never reached.
        pages: a number.
        number: name of the signal.
        options: whether pages are atomic, whether rows are locked ("1" or "0"), and pages a second.
    """
    atomic, lock, rate = (*options, *("1", "1", "1000")[len(options) :])
    killer.point, killer.pages, killer.number = point, int(pages), getattr(signal, number)
    told, moved, commit, turn = (
        ledger.tell_progress,
        DatabaseDriver.checkpoint,
        BaseDatabaseWrapper._commit,
        Turns.await_next,
    )
    counted = totals_of.count_rows  # type: ignore[attr-defined]
    at = threading.local()

    def telling(*given: Any) -> bool:
        has_row = told(*given)
        killer.reach("told")
        return has_row

    def moving(*given: Any) -> bool:
        landed = moved(*given)
        at.end = landed
        killer.reach("moved")
        return landed

    def committing(wrapper: Any) -> None:
        commit(wrapper)
        if getattr(at, "end", False):
            at.end = False
            killer.reach("committed")

    def waiting(turns: Any, *given: Any) -> None:
        turn(turns, *given)
        killer.reach("between")

    def counting(*given: Any) -> tuple[int, bool]:
        found = counted(*given)
        killer.reach("counted")
        return found

    totals_of.count_rows = counting  # type: ignore[attr-defined]
    ledger.tell_progress, DatabaseDriver.checkpoint = telling, moving  # type: ignore[method-assign]
    BaseDatabaseWrapper._commit, Turns.await_next = committing, waiting  # type: ignore[method-assign]
    declare_sweep(atomic=bool(int(atomic)), lock=bool(int(lock)), rate=float(rate))
    print("works", os.getpid(), file=sys.stderr, flush=True)
    call_command("jobs_worker", concurrency=1)


class Beside:
    """People who edit, delete and add rows while a pass sweeps, one thing at a time, and look at its progress.

    Args:
        keys: of the rows that there are.
        seed: of what they do.
    """

    def __init__(self, keys: list[int], seed: int) -> None:
        self.notes: dict[int, str] = {}
        self.deleted: dict[int, int] = {}
        self.processed: list[int] = []
        self.progress: list[float] = []
        self._keys = keys
        self._random = random.Random(seed)
        self._over = threading.Event()

    def stop(self) -> None:
        """Let them go home."""
        self._over.set()

    def __call__(self) -> None:
        """Do a bounded number of things."""
        for number in range(20_000):
            if self._over.wait(0.004):
                return
            self.look()
            self._random.choice([self._edit, self._edit_all, self._edit, self._edit_all, self._delete, self._add])(
                number
            )

    def look(self) -> None:
        """Note how far the pass says it is."""
        self.processed += Ledger.objects.values_list("processed", flat=True)
        told = JobRow.objects.values_list("progress", flat=True)
        self.progress += [one["done"] for one in told if one]

    def _edit(self, number: int) -> None:
        one = Item(pk=self._random.choice(self._keys), note=f"edit {number}")
        if one.pk not in self.deleted:
            one.save(update_fields=["note"])
            self.notes[one.pk] = one.note

    def _edit_all(self, number: int) -> None:
        with transaction.atomic():
            one = Item.objects.select_for_update().filter(pk=self._random.choice(self._keys)).first()
            if one is None:
                return
            one.note = f"edit of all {number}"
            one.save()
        self.notes[one.pk] = one.note

    def _delete(self, number: int) -> None:
        if number % 4:
            return
        with transaction.atomic():
            one = Item.objects.select_for_update().filter(pk=self._random.choice(self._keys)).first()
            if one is None:
                return
            self.deleted[one.pk] = one.handled
            one.delete()
        self.notes.pop(next(iter(set(self.notes) & set(self.deleted)), 0), None)

    def _add(self, number: int) -> None:
        self._keys.append(Item.objects.create(number=number).pk)
