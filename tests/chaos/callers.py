"""The callers of the chaos run: they enqueue in transactions that commit and in transactions that are taken back."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

from django.db import connection, transaction

from tests.app.models import Item, Organization
from tests.chaos import jobs
from tests.chaos.database import name_session
from tests.chaos.ledger import Ledger
from tests.chaos.sweeping import SWEPT, sweeping
from tests.chaos.verdict import pending
from ultimat3_jobs.errors import BackfillRunning

BACKLOG = 60  # jobs that wait or run at most, so that the end is not far
MOST = 20_000  # jobs in a run
SWEEP_AGAIN = 5  # of the numbers of jobs: then a pass is started, unless one is live


class TakenBackError(Exception):
    """Rolls a transaction back."""


class Callers(threading.Thread):
    """A thread that enqueues until it is told to stop."""

    def __init__(self, seed: int) -> None:
        super().__init__(name="callers", daemon=True)
        self.ledger = Ledger()
        self.error: Exception | None = None
        self._random = random.Random(seed)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Have it end, and wait for that."""
        self._stopped.set()
        self.join()
        if self.error:
            raise self.error

    def run(self) -> None:
        """Enqueue a few at a time while there are not too many."""
        try:
            name_session()
            Item.objects.bulk_create(Item(number=number) for number in range(SWEPT))
            number = 0
            while not self._stopped.wait(0.01) and number < MOST:
                if number % SWEEP_AGAIN == 0:
                    with suppress(BackfillRunning):
                        sweeping.enqueue(forced=True)
                if pending() < BACKLOG:
                    number = self._transaction(number)
        except Exception as error:
            self.error = error
        finally:
            connection.close()

    def _transaction(self, number: int) -> int:
        """Ask for a few jobs beside a row of the business, and commit or take it all back, or a part of it."""
        kept, gone = {}, set()
        back = self._random.random() < 0.25
        with suppress(TakenBackError), transaction.atomic():
            Organization.objects.create(name=f"caller {number}")
            for _ in range(self._random.randint(1, 6)):
                number += 1
                label, kind = f"job {number}", self._kind()
                with suppress(TakenBackError), transaction.atomic():
                    self._enqueue(kind, label)
                    if self._random.random() < 0.1:
                        gone.add(label)
                        raise TakenBackError
                if label not in gone:
                    kept[label] = kind
            if back:
                raise TakenBackError
        self.ledger.taken_back |= gone | (set(kept) if back else set())
        self.ledger.committed |= {} if back else kept
        return number

    def _kind(self) -> str:
        kinds = {"plain": 5, "flaky": 3, "doomed": 1, "atomic": 4, "steps": 4}
        return self._random.choices(list(kinds), list(kinds.values()))[0]

    def _enqueue(self, kind: str, label: str) -> None:
        if kind == "flaky":
            jobs.flaky.enqueue(label=label, fails=self._random.randint(1, 3))
        else:
            getattr(jobs, kind).enqueue(label=label)
