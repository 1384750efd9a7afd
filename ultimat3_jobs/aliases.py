"""Which database holds what: the router's answer for the package's models, never a guess."""

from __future__ import annotations

from django.apps import apps
from django.db import connections, router

from ultimat3_jobs.errors import SettingsInvalid


def queue_alias() -> str:
    """Return the alias of the database that holds the queue."""
    return router.db_for_write(apps.get_model("ultimat3_jobs", "Job"))


def outbox_alias() -> str:
    """Return the alias of the database on which work is staged.

    Raises:
        SettingsInvalid: where the router puts queue and outbox in two databases.
    """
    alias = router.db_for_write(apps.get_model("ultimat3_jobs", "OutboxEntry"))
    if alias != queue_alias():
        raise SettingsInvalid(
            f"the router puts the outbox in {alias!r} and the queue in {queue_alias()!r}",
            fix="return one alias from db_for_write() for every model of ultimat3_jobs",
        )
    return alias


def in_transaction(alias: str) -> bool:
    """Whether a transaction is open on the calling thread's connection `alias`."""
    connection = connections[alias]
    return connection.in_atomic_block or not connection.get_autocommit()
