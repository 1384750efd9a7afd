"""Migration operations that are safe on large live tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from uuid import UUID

from django.apps import apps
from django.db import NotSupportedError, models, router
from django.db.migrations.operations import AddIndex
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState

from ultimat3_jobs import registry
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.declared import backfill_of
from ultimat3_jobs.backfills.passes import live_under
from ultimat3_jobs.backfills.pending import COMPLETED
from ultimat3_jobs.errors import BackfillPending, DeclarationInvalid, MigrationMissing
from ultimat3_jobs.schema import has_table
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

    While a row of the historical model matches `remaining`, it waits. Where none does, it goes on once the ledger holds
    a completed pass of this name, and also where no pass of it was ever begun or is queued: nothing was to be swept
    here, as in a fresh database whose rows migrations have made. Begun and not completed, it waits although no row
    matches. It needs no declaration, so that it goes on working when the backfill's code is deleted; while one is
    there, passes under other names of it count too. Backwards it does nothing.

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
            BackfillPending: where rows are left, or a pass was begun and none has completed.
            MigrationMissing: where rows are left, and the ledger's table is not there.
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
        passes, is_left = self._passes(), left.exists()
        if not is_left and (passes is None or passes.completed or not passes.known):
            return
        if passes is None:
            raise self._without_ledger(alias)
        raise self._pending(passes, left.values("pk")[: MOST_COUNTED + 1].count(), model._meta.label)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        pass

    def describe(self) -> str:
        return f"Require the backfill {self.name} of {self.model}"

    @property
    def migration_name_fragment(self) -> str:
        return f"require_{re.sub(r'[^a-z0-9]+', '_', self.name.lower()).strip('_') or 'backfill'}"

    def _passes(self) -> _Passes | None:
        """Return what is known of passes under all names of the backfill; None where the ledger's table is not there.

        The jobs are asked for by name alone: a tenant is for the project's code to say, which is not of this migration.
        """
        ledger, queue = apps.get_model("ultimat3_jobs", "Backfill"), queue_alias()
        if not has_table(queue, ledger._meta.db_table):
            return None
        # Under its other names too, as long as the code still says so: on this database it may have been swept since.
        declared = registry.find(self.name)
        names = {self.name, *registry.names_of(self.name)}
        live = list(live_under(names).values_list("pk", flat=True))  # before it is in the ledger
        begun = ledger._base_manager.using(queue).filter(name__in=names)
        return _Passes(
            completed=begun.filter(outcome=COMPLETED).exists(),
            known=bool(live) or begun.exists(),
            live=bool(live),
            paused=begun.filter(pk__in=live, paused_at__isnull=False).values_list("pk", flat=True).first(),
            declared=backfill_of(declared) is not None,
        )

    def _pending(self, passes: _Passes, number: int, model: str) -> BackfillPending:
        swept = f"the backfill {self.name!r} has {'completed' if passes.completed else 'no completed pass'}"
        cause = f"{swept}, {'and' if number else 'although'} {_left(number, model)}"
        if passes.paused is not None:
            resume = command_line("jobs", "resume", str(passes.paused))
            return BackfillPending(f"{cause}; a pass of it is paused", fix=resume)
        if passes.live:
            cause += "; a pass of it is live"
        start = () if passes.live else ("--write", *(("--force",) if passes.completed else ()))
        before = [] if passes.declared else ["in a release that declares it"]
        if passes.completed and not passes.live:
            # What was swept was written anew in the old form, and would be after another pass.
            before.append("once the code that writes the new form is deployed everywhere")
        comment = f"  # {', '.join(before)}" if before else ""
        return BackfillPending(cause, fix=backfill_command(self.name, *start, "--wait") + comment)

    def _without_ledger(self, alias: str) -> MigrationMissing:
        table, queue = apps.get_model("ultimat3_jobs", "Backfill")._meta.db_table, queue_alias()
        return MigrationMissing(
            f"RequireBackfill({self.name!r}) finds no table {table} in {queue!r}",
            fix='dependencies = [("ultimat3_jobs", "0005_backfills")]  # in the migration that has it'
            if queue == alias
            else command_line("migrate", "ultimat3_jobs", "--database", queue),
        )


@dataclass(frozen=True)
class _Passes:
    """What is known of the passes of a backfill: whether one has completed, is known at all, or is live."""

    completed: bool
    known: bool
    live: bool
    paused: UUID | None
    """The one that is live, where a person has paused it."""
    declared: bool
    """Whether the code here declares the backfill."""


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
