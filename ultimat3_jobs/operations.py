"""Migration operations that are safe on large live tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from django.apps import apps
from django.db import NotSupportedError, connections, models, router
from django.db.migrations.operations import AddIndex
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState

from ultimat3_jobs import registry
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.declared import backfill_of
from ultimat3_jobs.backfills.passes import live_passes, named
from ultimat3_jobs.backfills.pending import COMPLETED
from ultimat3_jobs.errors import BackfillPending, DeclarationInvalid, MigrationMissing
from ultimat3_jobs.text import MAX_NAME, command_line, counted, is_label

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.backends.postgresql.schema import DatabaseSchemaEditor

LOCK_TIMEOUT = "60s"
"""How long a build waits for a lock or for older transactions to end. It keeps no writer waiting meanwhile, but it
keeps vacuum and other migrations off the table."""

MOST_COUNTED = 1_000
"""Rows that are counted for a message: to count them all might take longer than the migration."""

_VALIDITY = """
SELECT i.indisvalid
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_class AS t ON t.oid = i.indrelid
WHERE c.relname = %s AND t.relname = %s AND pg_table_is_visible(t.oid)
"""


class AddIndexOnline(AddIndex):
    """Builds an index while the table is written to: concurrently on PostgreSQL, plainly on other databases.

    The migration needs `atomic = False`. It can be run again after a build that was broken off: an invalid index that
    is left from one is dropped first, and a valid one is kept.
    """

    atomic = False

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        if schema_editor.connection.vendor != "postgresql":
            schema_editor.add_index(model, self.index)
            return
        editor = _online(self, schema_editor)
        valid = None if editor.collect_sql else _validity(editor, self.index.name, model._meta.db_table)
        with _bounded_waits(editor):
            if valid is False:
                editor.remove_index(model, self.index, concurrently=True)
            if not valid:
                editor.add_index(model, self.index, concurrently=True)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        _remove(self, schema_editor, from_state.apps.get_model(app_label, self.model_name), self.index)


class RequireBackfill(Operation):
    """Lets a migration go on only once a backfill has completed and none of its rows is left to handle.

    It passes where the model has no rows, as in a fresh database. Elsewhere the ledger must hold a completed pass of
    this name, and no row of the historical model may match `remaining`. It needs no declaration, so that it goes on
    working when the backfill's code is deleted; while one is there, a pass under another of its names counts too.
    Backwards it does nothing.

    The ledger is a table of this app: give the migration a dependency on `("ultimat3_jobs", "0005_backfills")`.

    Args:
        name: of the backfill, as it was declared when it was swept.
        model: "app.Model", or "Model" of the migration's own app.
        remaining: matches the rows that are not handled. Both questions end at the first row found; where none is,
            the database has looked at every row unless an index fits.

    Raises:
        DeclarationInvalid: where one of these is nothing that it may be.
    """

    reduces_to_sql = False
    reversible = True
    elidable = False
    category = OperationCategory.PYTHON

    def __init__(self, name: str, *, model: str, remaining: models.Q) -> None:
        if not is_label(name, MAX_NAME):
            raise DeclarationInvalid(
                f"RequireBackfill({name!r}) does not name a backfill", fix='RequireBackfill("rewrite-slugs", ...)'
            )
        if not isinstance(model, str) or not re.fullmatch(r"(\w+\.)?\w+", model):
            raise DeclarationInvalid(
                f"RequireBackfill({name!r}) has model={model!r}, which names no model", fix='model="blog.Post"'
            )
        if not isinstance(remaining, models.Q) or not remaining:
            raise DeclarationInvalid(
                f"RequireBackfill({name!r}) has remaining={remaining!r}, which does not say which rows are not handled",
                fix='remaining=Q(slug="")',
            )
        self.name, self.model, self.remaining = name, model, remaining

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        pass

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Look, and refuse where the migration must wait.

        Raises:
            BackfillPending: where no pass has completed, or rows are left.
            MigrationMissing: where the ledger's table is not there.
        """
        from_state.clear_delayed_apps_cache()  # `remaining` may ask about any model
        label, _, name = self.model.rpartition(".")
        model = from_state.apps.get_model(label or app_label, name)
        alias = schema_editor.connection.alias
        # Of a proxy or an unmanaged model, too: its rows wait for the backfill like any.
        if not router.allow_migrate_model(alias, model._meta.concrete_model or model):
            return
        # No manager of the model's, which might hide rows.
        everything: models.QuerySet[models.Model] = models.QuerySet(model=model, using=alias).order_by()
        left = everything.filter(self.remaining)
        if not everything.exists():
            return
        completed = self._has_completed(alias)
        if completed and not left.exists():
            return
        number = left.values("pk")[: MOST_COUNTED + 1].count()
        swept = f"the backfill {self.name!r} has {'completed' if completed else 'no completed pass'}"
        start = () if self._is_live() else ("--write", *(("--force",) if completed else ()))
        raise BackfillPending(
            f"{swept}, {'and' if number else 'although'} {_left(number, model._meta.label)}"
            f"{'' if start else '; a pass of it is live'}",
            fix=backfill_command(self.name, *start, "--wait"),
        )

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        pass

    def describe(self) -> str:
        return f"Require the backfill {self.name} of {self.model}"

    @property
    def migration_name_fragment(self) -> str:
        return f"require_{re.sub(r'[^a-z0-9]+', '_', self.name.lower()).strip('_') or 'backfill'}"

    def _is_live(self) -> bool:
        declared = registry.find(self.name)
        return declared is not None and backfill_of(declared) is not None and bool(live_passes([named(declared)]))

    def _has_completed(self, alias: str) -> bool:
        ledger = apps.get_model("ultimat3_jobs", "Backfill")
        table = ledger._meta.db_table
        queue = queue_alias()
        connection = connections[queue]
        if table not in connection.introspection.table_names():
            raise MigrationMissing(
                f"RequireBackfill({self.name!r}) finds no table {table} in {queue!r}",
                fix='dependencies = [("ultimat3_jobs", "0005_backfills")]  # in the migration that has it'
                if queue == alias
                else command_line("migrate", "ultimat3_jobs", "--database", queue),
            )
        # Under its other names too, as long as the code still says so: on this database it may have been swept since.
        declared = registry.find(self.name)
        names = {self.name, *(() if declared is None else (declared.name, *declared.aliases))}
        found: bool = ledger._base_manager.using(queue).filter(name__in=names, outcome=COMPLETED).exists()
        return found


def _left(number: int, model: str) -> str:
    if number == 0:
        return f"no row of {model} is left to handle"
    rows = f"more than {MOST_COUNTED:,} rows" if number > MOST_COUNTED else counted(number, "row")
    return f"{rows} of {model} {'is' if number == 1 else 'are'} left to handle"


def _remove(
    operation: Operation, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model], index: models.Index
) -> None:
    if not operation.allow_migrate_model(schema_editor.connection.alias, model):
        return
    if schema_editor.connection.vendor != "postgresql":
        schema_editor.remove_index(model, index)
        return
    editor = _online(operation, schema_editor)
    with _bounded_waits(editor):
        editor.remove_index(model, index, concurrently=True)


def _online(operation: Operation, schema_editor: BaseDatabaseSchemaEditor) -> DatabaseSchemaEditor:
    if schema_editor.connection.in_atomic_block:
        raise NotSupportedError(
            f"{type(operation).__name__} cannot run in a transaction; set atomic = False on the migration"
        )
    return cast("DatabaseSchemaEditor", schema_editor)


def _validity(editor: DatabaseSchemaEditor, index: str, table: str) -> bool | None:
    """Return whether the index is valid, or None where there is none."""
    with editor.connection.cursor() as cursor:
        cursor.execute(_VALIDITY, [index, table])
        found = cursor.fetchone()
    return None if found is None else bool(found[0])


@contextmanager
def _bounded_waits(editor: DatabaseSchemaEditor) -> Iterator[None]:
    # A build may take longer than any statement of the application: its time is not bounded, its waits are.
    editor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
    editor.execute("SET statement_timeout = 0")
    try:
        yield
    finally:
        editor.execute("RESET statement_timeout")
        editor.execute("RESET lock_timeout")
