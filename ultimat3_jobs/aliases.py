"""Which database holds what: the answers of the project's routers and settings, never a guess."""

from __future__ import annotations

from django.apps import apps
from django.db import connections, router

from ultimat3_jobs.errors import SettingsInvalid
from ultimat3_jobs.settings import get_settings


def queue_alias() -> str:
    """Return the alias of the database that holds the queue.

    Raises:
        SettingsInvalid: where `QUEUE_DATABASE` names another than the project's routers do.
    """
    alias = router.db_for_write(apps.get_model("ultimat3_jobs", "Job"))
    wanted = get_settings().queue_database
    if wanted is not None and alias != wanted:
        raise SettingsInvalid(
            f'ULTIMAT3_JOBS["QUEUE_DATABASE"] is {wanted!r} and the routers put the queue in {alias!r}',
            fix='DATABASE_ROUTERS = ["ultimat3_jobs.routers.QueueRouter"]  # before routers that answer for every app',
        )
    return alias


def outbox_aliases() -> tuple[str, ...]:
    """Return the aliases of the databases that have an outbox, each to be relayed."""
    return get_settings().outbox.databases or (_routed(),)


def outbox_alias(declared: str | None = None) -> str:
    """Return the alias of the database on which work is staged.

    Args:
        declared: the alias that the job or the enqueue names; None: the one that the routers give for the outbox.

    Raises:
        SettingsInvalid: where no relay serves an outbox on that database.
    """
    alias = declared or _routed()
    served = outbox_aliases()
    if alias not in served:
        origin = "a job stages its work" if declared else "the routers put the outbox"
        raise SettingsInvalid(
            f"{origin} on {alias!r}, and no relay serves an outbox there; one does on {', '.join(map(repr, served))}",
            fix=f'ULTIMAT3_JOBS["OUTBOX"]["DATABASES"] = {[*served, alias]!r}  # and migrate --database {alias}',
        )
    return alias


def in_transaction(alias: str) -> bool:
    """Whether a transaction is open on the calling thread's connection `alias`."""
    connection = connections[alias]
    return connection.in_atomic_block or not connection.get_autocommit()


def _routed() -> str:
    return router.db_for_write(apps.get_model("ultimat3_jobs", "OutboxEntry"))
