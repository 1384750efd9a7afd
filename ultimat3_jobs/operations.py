"""Migration operations that are safe on large live tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from django.db import NotSupportedError, models
from django.db.migrations.operations import AddIndex
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.backends.postgresql.schema import DatabaseSchemaEditor

LOCK_TIMEOUT = "60s"
"""How long a build waits for a lock or for older transactions to end. It keeps no writer waiting meanwhile, but it
keeps vacuum and other migrations off the table."""

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
