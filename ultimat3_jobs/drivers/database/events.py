"""Events: stored, given to the runs that wait for them, and looked for where a wake-up may have passed a run by.

A publisher stores an event, commits, and then looks who waits. A run records that it waits, commits, and then looks
for its event. So one of the two sees the other, whichever is first.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.records import Claim, Event, StepState, Wait, WaitAnswer
from ultimat3_jobs.sql import run

ROUNDS = 20
"""Statements of one promotion at most. More than one follow where most of what is due waits for events in vain."""


def publish(alias: str, events: Sequence[Event]) -> None:
    """Store events in their order; one that is stored already changes nothing."""
    batch = rows.encode({"position": at} | rows.event_row(event) for at, event in enumerate(events))
    run(alias, "publish_events", {"rows": batch})


def wake(alias: str, events: Sequence[Event], *, limit: int) -> int:
    """Make ready at most `limit` suspended runs that wait for stored events; return how many."""
    return len(run(alias, "wake", {"rows": rows.encode_ids(event.staged_id for event in events), "limit": limit}))


def look_again(alias: str, job_ids: Sequence[UUID]) -> int:
    """Make ready those of suspended runs whose event is there by now; return how many."""
    return len(run(alias, "look_again", {"rows": rows.encode_ids(job_ids)}))


def promote(alias: str, *, limit: int) -> int:
    """Make ready at most `limit` waiting jobs whose time has come; return how many.

    What waits in vain for an event is put off in the same statements, and holds up nothing that is due behind it.
    """
    ready = 0
    for _ in range(ROUNDS):
        asked = limit - ready
        seen = run(alias, "promote", {"limit": asked})
        in_vain = [rows.uuid(row[0]) for row in seen if not row[1]]
        ready += len(seen) - len(in_vain)
        if in_vain:
            # A publisher that came meanwhile has passed over these rows, since they were locked.
            look_again(alias, in_vain)
        if not in_vain or len(seen) < asked:
            break
    return ready


def wait(alias: str, claim: Claim, wait: Wait) -> WaitAnswer | None:
    """Record a wait, give it the first event that it may have, and tell how it stands; None: the claim is lost."""
    record = wait.record
    row = rows.claim_row(claim) | {
        "event": wait.event,
        "match": wait.match,
        "name": record.name,
        "seq": record.seq,
        "attempt": record.attempt,
        "delay": record.delay,
    }
    found = run(alias, "wait", {"rows": rows.encode([row])})
    if not found:
        return None
    ((state, output, until),) = found
    return WaitAnswer(state=StepState(state), output=output, until=None if until is None else rows.parse_instant(until))
