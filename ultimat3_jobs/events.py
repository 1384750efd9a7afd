"""Publishing events: each commits with what it tells of, travels through the outbox, and wakes the runs that wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async

from ultimat3_jobs.aliases import outbox_alias
from ultimat3_jobs.durations import Duration
from ultimat3_jobs.event_checks import MatchValue, check_event_name, check_ttl, match_text, payload_text
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.outbox.admission import admit
from ultimat3_jobs.outbox.stage import stage_event
from ultimat3_jobs.records import Event
from ultimat3_jobs.settings import get_settings


def publish_event(
    event: str,
    payload: Any = None,
    *,
    match: Mapping[str, MatchValue] | None = None,
    ttl: Duration = "7d",
    database: str | None = None,
) -> UUID:
    """Publish an event to all runs that wait for it, now or later, with `run.wait_for_event`.

    It is staged in the open transaction: a rollback, of a savepoint too, leaves no trace. Once that is committed, the
    relay stores it and wakes the runs that wait for it. Outside a transaction it is committed at once.

    Args:
        event: its name, as the waits name it: 1 to 200 printable characters.
        payload: plain data that the runs get: what an input may hold, at most `MAX_INPUT_BYTES` as JSON.
        match: what a wait must ask for to get it, beside the name: a flat dict of str, int, bool, UUID or None that is
            equal as a whole. A wait without a match gets every event of the name.
        ttl: for how long it is kept for runs that wait later ("7d"; numbers are seconds), from when the relay stores
            it.
        database: alias whose transaction is meant; None: the one that the routers give for the outbox.

    Returns:
        The id of the staged row.

    Raises:
        EventInvalid: naming the path of what cannot be stored and read back as what it is.
        OutboxNeedsTransaction: where the mode is "required" and no transaction is open.
        SettingsInvalid: where that database has no outbox.
        MigrationMissing: where this app's tables are not there yet.
    """
    name = check_event_name(event)
    staged = Event(
        staged_id=uuid7(),
        name=name,
        match=match_text(match),
        payload=payload_text(name, payload, max_bytes=get_settings().max_input_bytes),
        ttl=check_ttl(ttl).total_seconds(),
    )
    alias = outbox_alias(database)
    admit(alias, name, needs="x_job_events", verb="published")
    stage_event(alias, staged)
    return staged.staged_id


async def apublish_event(
    event: str,
    payload: Any = None,
    *,
    match: Mapping[str, MatchValue] | None = None,
    ttl: Duration = "7d",
    database: str | None = None,
) -> UUID:
    """`publish_event` for async callers."""
    return await sync_to_async(publish_event)(event, payload, match=match, ttl=ttl, database=database)
