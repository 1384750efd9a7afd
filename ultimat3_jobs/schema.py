"""What a database holds of this package: whether its tables are there, and what to run where they are not."""

from __future__ import annotations

import importlib
import json
import pkgutil
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.db import Error, ProgrammingError, connections, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Model

from ultimat3_jobs.errors import DriverUnavailable, MigrationMissing
from ultimat3_jobs.sql import run
from ultimat3_jobs.text import command_line, listed
from ultimat3_jobs.traces import first_line

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
    try:
        path = importlib.import_module(module).__path__
        applied = MigrationRecorder(connections[alias]).applied_migrations()
    except (ImportError, ProgrammingError):  # migrate says so; or this role may not read what was applied
        return []
    return sorted(one.name for one in pkgutil.iter_modules(path) if (APP, one.name) not in applied)


def schema_fault(alias: str) -> MigrationMissing | None:
    """Return what is said of a database that lacks tables or columns of this package's models; None where it has all.

    Indexes and constraints are not looked at: without them everything works, and more slowly.

    Args:
        alias: of the database. Routers say which of the models belong there.

    Raises:
        Error: where the database does not answer.
    """
    missing, is_empty = _missing(alias)
    if not missing:
        return None
    if _is_in_memory(alias):
        return MigrationMissing(
            f"{alias!r} is in memory, where each thread and each process has a database of its own, without tables",
            fix=f'DATABASES[{alias!r}]["NAME"] = BASE_DIR / "db.sqlite3"  # and migrate',
        )
    if is_empty and not router.allow_migrate(alias, APP):
        return MigrationMissing(
            f"{alias!r} has no tables of ultimat3_jobs, and the routers of the project keep them out of it",
            fix=f'ULTIMAT3_JOBS["QUEUE_DATABASE"] = {alias!r}  # with "ultimat3_jobs.routers.QueueRouter" as the first '
            "of DATABASE_ROUTERS; then migrate",
        )
    if is_empty:
        cause = f"{alias!r} has no tables of ultimat3_jobs"
    else:
        late = f"; not applied there: {', '.join(names)}" if (names := unapplied(alias)) else ""
        cause = f"{alias!r} lacks {listed(missing)} of ultimat3_jobs{late}"
    return MigrationMissing(cause, fix=command_line("migrate", "--database", alias))


def unusable(alias: str, error: Error) -> DriverUnavailable:
    """What an error of a database says about the queue on it: most often that `migrate` has not been run there."""
    # A database that cannot be asked is away, or in a transaction that is broken.
    with suppress(Error):
        if fault := schema_fault(alias):
            return fault
    told = first_line(error) or repr(error)
    return DriverUnavailable(f"the queue's database refused: {told}", fix=command_line("check", "--database", alias))


def _is_in_memory(alias: str) -> bool:
    connection: Any = connections[alias]
    return connection.vendor == "sqlite" and bool(connection.is_in_memory_db())


def _missing(alias: str) -> tuple[list[str], bool]:
    """Return the tables that are missing, and the columns as "table.column"; and whether there is no table at all."""
    models = {model._meta.db_table: model for model in _models(alias)}
    found: dict[str, set[str]] = {}
    for table, column in run(alias, "columns", {"rows": json.dumps([{"name": table} for table in models])}):
        found.setdefault(table, set()).add(column)
    missing = [table for table in models if table not in found]
    for table, columns in found.items():
        fields = models[table]._meta.concrete_fields
        missing += [f"{table}.{field.column}" for field in fields if field.column not in columns]
    return missing, not found


def _models(alias: str) -> list[type[Model]]:
    """Return the models whose tables belong there. All, where routers would have none: others may have made them."""
    models = list(apps.get_app_config(APP).get_models())
    return [model for model in models if router.allow_migrate_model(alias, model)] or models
