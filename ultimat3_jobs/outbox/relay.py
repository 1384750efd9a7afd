"""Flow 3/7, relay: receives committed outbox rows in order, hands enqueue requests to the driver.

Each outbox is relayed by itself: one that is down holds up no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from django.db import DatabaseError, Error

from ultimat3_jobs.aliases import outbox_aliases, queue_alias
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.outbox.move import move
from ultimat3_jobs.outbox.publish import publish
from ultimat3_jobs.schema import schema_fault
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sqlstates import is_undefined


def relay_once(alias: str | None = None) -> int:
    """Relay one batch of committed rows; return how many were decided.

    A row that cannot be published is set aside, and so is one whose key is held by a job with another input: committed
    work never vanishes, and does not block what is behind it.

    Args:
        alias: of the outbox; None is each of them in turn.

    Raises:
        MigrationMissing: where `migrate` has not been run on its database, or the queue's.
        Exception: what stopped the pass. Nothing behind the row that was met by it has overtaken it. Of several
            outboxes the others have been relayed.
    """
    if alias is None:
        return _each(relay_once)
    pass_of = move if alias == queue_alias() and Capability.JOINS_TRANSACTION in get_driver().capabilities else publish
    try:
        return pass_of(alias)
    except DatabaseError as error:
        with suppress(Error):  # or it does not answer: its own words say more
            if is_undefined(error) and (fault := schema_fault(alias) or schema_fault(queue_alias())):
                raise fault from error
        raise


def relay_all(alias: str | None = None) -> int:
    """Relay everything that is committed by now; return how many rows were decided.

    What is committed while it works may be left: callers that never stop committing cannot hold it up.

    Args:
        alias: of the outbox; None is each of them in turn.

    Raises:
        Exception: what stopped a pass; see `relay_once`.
    """
    if alias is None:
        return _each(relay_all)
    total = moved = relay_once(alias)
    while moved >= get_settings().outbox.batch:
        moved = relay_once(alias)
        total += moved
    return total


def _each(relay: Callable[[str], int]) -> int:
    total, failed = 0, []
    for alias in outbox_aliases():
        try:
            total += relay(alias)
        except Exception as error:
            failed.append(error)
            if len(failed) > 1:  # the first is raised
                emit("jobs.relay.failed", level=logging.ERROR, exc_info=True, outbox=alias, error=type(error).__name__)
    if failed:
        raise failed[0]
    return total
