"""What a database holds of this package: whether its tables are there, and what to run where they are not."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress

from django.db import Error, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from ultimat3_jobs.errors import DriverUnavailable, MigrationMissing
from ultimat3_jobs.text import command_line

APP = "ultimat3_jobs"


def has_table(alias: str, table: str) -> bool:
    """Whether a database has a table where its connections look for it."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        return table in connection.introspection.table_names(cursor)


def unapplied(alias: str) -> list[str]:
    """Return the names of this package's migrations that a database has not got, in their order.

    The project's other migrations are not loaded for it: that takes as long as a start of `migrate`.
    """
    module, _ = MigrationLoader.migrations_module(APP)
    if module is None:  # turned off by MIGRATION_MODULES
        return []
    path = importlib.import_module(module).__path__
    applied = MigrationRecorder(connections[alias]).applied_migrations()
    return sorted(one.name for one in pkgutil.iter_modules(path) if (APP, one.name) not in applied)


def tables_missing(alias: str, table: str) -> MigrationMissing | None:
    """Return what is said of a database on which `migrate` has not been run; None where it has.

    Args:
        alias: of the database.
        table: of this package's, which is looked for.

    Raises:
        Error: where the database does not answer.
    """
    if has_table(alias, table):
        return None
    return MigrationMissing(
        f"{alias!r} has no tables of ultimat3_jobs", fix=command_line("migrate", "--database", alias)
    )


def unusable(alias: str, error: Error) -> DriverUnavailable:
    """What an error of a database says about the queue on it: most often that `migrate` has not been run there."""
    # A database that cannot be asked is away, or in a transaction that is broken.
    with suppress(Error):
        if missing := tables_missing(alias, "x_jobs"):
            return missing
    first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    return DriverUnavailable(f"the queue's database refused: {first}", fix=command_line("check", "--database", alias))
