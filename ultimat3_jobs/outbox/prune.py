"""Pruning, in small batches: rows that were published or joined a job go after a while, events when they expire.

What was set aside stays.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from uuid import UUID

from django.db import connections

from ultimat3_jobs.aliases import outbox_aliases, queue_alias
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.logs import emit
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run

BATCH = 500
"""Rows that one step looks at in each outbox, and events that it deletes."""
LONGEST_REST = 3_600.0
"""Seconds between two walks at most."""
REST_OF_EVENTS = 60.0
"""Seconds between two looks for events that have expired."""
_FIRST = UUID(int=0)

monotonic = time.monotonic


class Pruner:
    """Walks each outbox in the order of its ids, which are about that of birth, up to the rows that are too young.

    So it needs no index, and reads nothing that lies behind. Then it rests for a part of the time that rows are kept,
    and begins again for what was left waiting on the way.
    """

    def __init__(self) -> None:
        self._after: dict[str, UUID] = {}
        self._rests_until: dict[str, float] = {}
        self._events_rest_until = 0.0

    def step(self) -> bool:
        """Look at one batch of each outbox and delete what is old; return whether there is more at once.

        Never raises for a database that cannot be reached: it is looked at again after the rest.
        """
        return self._step_outboxes() | self._step_events()

    def _step_events(self) -> bool:
        driver = get_driver()
        if Capability.EVENTS not in driver.capabilities or monotonic() < self._events_rest_until:
            return False
        try:
            deleted = driver.prune_events(limit=BATCH)
        except Exception as error:
            deleted = 0
            emit("jobs.event.prune-failed", level=logging.WARNING, error=type(error).__name__)
            _give_up_connection(queue_alias())
        if deleted:
            emit("jobs.event.pruned", level=logging.DEBUG, events=deleted)
        if deleted < BATCH:
            self._events_rest_until = monotonic() + REST_OF_EVENTS
        return deleted >= BATCH

    def _step_outboxes(self) -> bool:
        keep = get_settings().retention.outbox
        if keep is None:
            return False
        more = False
        for alias in outbox_aliases():
            if monotonic() < self._rests_until.get(alias, 0.0):
                continue
            try:
                goes_on = self._step(alias, keep.total_seconds())
            except Exception as error:  # one that is down holds up no other
                goes_on = False
                level = logging.WARNING
                emit("jobs.outbox.prune-failed", level=level, outbox=alias, error=type(error).__name__)
                _give_up_connection(alias)
            if not goes_on:
                self._after.pop(alias, None)
                self._rests_until[alias] = monotonic() + min(LONGEST_REST, keep.total_seconds() / 24)
            more = more or goes_on
        return more

    def _step(self, alias: str, keep: float) -> bool:
        after = self._after.get(alias, _FIRST)
        seen = run(alias, "aged", {"after": after.hex, "limit": BATCH, "keep": keep})
        old = [rows.uuid(row_id) for row_id, prunable, _ in seen if prunable]
        if old:
            run(alias, "prune", {"rows": rows.encode_ids(old), "keep": keep})
            emit("jobs.outbox.pruned", level=logging.DEBUG, outbox=alias, rows=len(old))
        if len(seen) < BATCH or seen[-1][2]:
            return False
        self._after[alias] = rows.uuid(seen[-1][0])
        return True


def _give_up_connection(alias: str) -> None:
    connection = connections[alias]
    if not connection.in_atomic_block:
        with suppress(Exception):
            connection.close()
