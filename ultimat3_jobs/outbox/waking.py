"""Waking the runs that wait for events which are committed by now."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from django.db import connections

from ultimat3_jobs.aliases import in_transaction, queue_alias
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Event

BATCH = 500
"""Runs that one statement wakes at most."""
ROUNDS = 20
"""Statements at most: whoever is left finds the event at its next look for it, and the relay goes on."""


def wake(events: Sequence[Event]) -> int:
    """Make ready the runs that wait for events, which must be committed; return how many.

    Called behind the transaction that stored them. A run whose suspension commits later sees them itself: both write,
    commit, and then look.

    Never raises where that transaction has ended: a run that is not woken looks for its event again by itself.
    """
    if not events:
        return 0
    woken = 0
    try:
        for _ in range(ROUNDS):
            found = get_driver().wake(events, limit=BATCH)
            woken += found
            if found < BATCH:
                break
    except Exception as error:
        alias = queue_alias()
        if in_transaction(alias):
            raise  # of a caller's, as in a test: it is broken
        emit("jobs.event.wake-failed", level=logging.WARNING, events=len(events), error=type(error).__name__)
        with suppress(Exception):
            connections[alias].close()  # it may have died
    return woken
