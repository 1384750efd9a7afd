"""What must be so before work is staged or an event published: the tables are there, and so is the transaction."""

from __future__ import annotations

from typing import Literal

from django.db import DEFAULT_DB_ALIAS, connections

from ultimat3_jobs.aliases import in_transaction, queue_alias
from ultimat3_jobs.errors import MigrationMissing, OutboxNeedsTransaction
from ultimat3_jobs.outbox.stage import take_turn
from ultimat3_jobs.schema import has_table
from ultimat3_jobs.settings import get_settings

Verb = Literal["enqueued", "published"]
_NOUNS: dict[Verb, str] = {"enqueued": "enqueue", "published": "event"}
_SUBJECTS: dict[Verb, str] = {"enqueued": "work", "published": "an event"}
_VERBS: dict[Verb, str] = {"enqueued": "enqueues", "published": "publishes"}

_with_tables: set[tuple[str, str, str]] = set()


def admit(alias: str, name: str, *, needs: str, verb: Verb = "enqueued") -> bool:
    """Tell whether a transaction is open on `alias`; there, on SQLite, take the turn to write.

    Args:
        alias: of the outbox.
        name: of the job or the event, for messages.
        needs: the table of the queue that it goes to.
        verb: what is done with it, for messages.

    Raises:
        OutboxNeedsTransaction: where the mode is "required" and no transaction is open.
        MigrationMissing: where this app's tables are not there yet.
    """
    is_open = in_transaction(alias)
    try:
        if is_open:
            take_turn(alias)
    finally:
        # Where the tables are missing, this says so, and what to do about it.
        _require_table(alias, "x_outbox", verb)
        _require_table(queue_alias(), needs, verb)
    if get_settings().outbox.mode == "required" and not is_open:
        using, on = ("", "") if alias == DEFAULT_DB_ALIAS else (f"using={alias!r}", f" on {alias!r}")
        raise OutboxNeedsTransaction(
            f'{name} was {verb} outside a transaction{on} and OUTBOX["MODE"] is "required"',
            fix=f"with transaction.atomic({using}): ...  # around the change and the {_NOUNS[verb]} that belongs to it",
        )
    return is_open


def _require_table(alias: str, table: str, verb: Verb) -> None:
    """Look once for each database: asking before the write keeps a caller's transaction usable."""
    wanted = (alias, str(connections[alias].settings_dict["NAME"]), table)
    if wanted in _with_tables:
        return
    if not has_table(alias, table):
        raise MigrationMissing(
            f"{_SUBJECTS[verb]} was {verb} on {alias!r} before the tables of ultimat3_jobs were made there",
            fix=f'dependencies = [("ultimat3_jobs", "0001_initial")]  # in the migration that {_VERBS[verb]}',
        )
    _with_tables.add(wanted)
