"""What a person does about rows that were set aside."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ultimat3_jobs.aliases import outbox_aliases
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.logs import emit
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.records import RetryVerdict
from ultimat3_jobs.sql import run

BATCH = 500


def retry_set_aside(ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[RetryVerdict]:
    """Give rows that were set aside back to the relay, in whichever outbox they are; one verdict each.

    A row whose key was held with another input is published once the holder has let go of it, and is otherwise set
    aside again.

    Args:
        ids: of the rows. One that is named twice is retried once.
        by: who asked, for the log.
        reason: why, for the log.
    """
    return [
        verdict for first in range(0, len(ids), BATCH) for verdict in _retry(ids[first : first + BATCH], by, reason)
    ]


def _retry(ids: Sequence[UUID], by: str, reason: str) -> list[RetryVerdict]:
    verdicts = dict.fromkeys(ids, RetryVerdict.NOT_FOUND)
    for alias in outbox_aliases():
        left = [one for one, verdict in verdicts.items() if verdict is RetryVerdict.NOT_FOUND]
        if not left:
            break
        retried = {
            rows.uuid(row_id): name for row_id, name in run(alias, "retry_staged", {"rows": rows.encode_ids(left)})
        }
        there = OutboxEntry.objects.using(alias).filter(id__in=left).values_list("id", flat=True)
        verdicts.update(dict.fromkeys(there, RetryVerdict.NOT_RETRYABLE))
        verdicts.update(dict.fromkeys(retried, RetryVerdict.RETRIED))
        for row_id, name in retried.items():
            emit("jobs.outbox.retried", staged=row_id, name=name, by=by, reason=reason)
    answered: set[UUID] = set()
    answers = []
    for one in ids:
        twice = one in answered and verdicts[one] is RetryVerdict.RETRIED
        answers.append(RetryVerdict.NOT_RETRYABLE if twice else verdicts[one])
        answered.add(one)
    return answers
