"""Setting aside what cannot be published: counted, kept with its error, said in the log once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.logs import emit
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.entries import Culprit
from ultimat3_jobs.outbox.faults import label_of, text_of
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run


def count_failures(alias: str, culprits: Sequence[Culprit], tokens: Mapping[str, UUID] | None = None) -> int:
    """Count a failed try of each row and set aside those that have used theirs; return how many were.

    In a transaction of its own, after that of the move: a move that was rolled back counts too.

    Args:
        alias: of the outbox.
        culprits: the rows.
        tokens: of the claims by the ids of their rows, where the outbox is relayed under leases.
    """
    if not culprits:
        return 0
    batch = rows.encode(
        {
            "id": culprit.id,
            "token": tokens[culprit.id].hex if tokens is not None else None,
            "tries": culprit.fault.value,
            "error": text_of(culprit.error),
        }
        for culprit in culprits
    )
    lease = get_settings().outbox.claim_lease.total_seconds()
    counted = {str(row[0]).replace("-", ""): row[1] for row in run(alias, "set_aside", {"rows": batch, "lease": lease})}
    aside = [one for one in culprits if counted.get(one.id) == OutboxEntry.Outcome.SET_ASIDE]
    for one in aside:
        log_set_aside(one.id, one.name, label_of(one.error))
    return len(aside)


def log_set_aside(staged: object, name: str, error: str) -> None:
    """Say that committed work waits for a person."""
    emit("jobs.outbox.set-aside", level=logging.ERROR, staged=staged, name=name, error=error)
