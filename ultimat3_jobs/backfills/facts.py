"""The facts that the gate judges by, as they are now."""

from __future__ import annotations

import difflib
from contextlib import suppress
from uuid import UUID

from django.db import DatabaseError, connections, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from ultimat3_jobs.backfills import checksum as checksums
from ultimat3_jobs.backfills.definition import BackfillDefinition
from ultimat3_jobs.backfills.gate import Facts
from ultimat3_jobs.backfills.passes import completed_pass, live_passes, named, unfinished_pass
from ultimat3_jobs.backfills.source import Rows
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.errors import BackfillMigrationPending
from ultimat3_jobs.settings import get_settings


def facts_of(job: JobDefinition, backfill: BackfillDefinition, rows: Rows, *, own_run: UUID | None = None) -> Facts:
    """Read what is to be known of a backfill whose source has been opened; see `read_facts`."""
    swept = checksums.checksum(backfill, rows.queryset)
    return read_facts(job, backfill, alias=rows.alias, checksum=swept, own_run=own_run)


def read_facts(
    job: JobDefinition, backfill: BackfillDefinition, *, alias: str, checksum: str, own_run: UUID | None = None
) -> Facts:
    """Read what is to be known before a pass may start or go on.

    Args:
        job: the declaration as a job: its names and its tenant.
        backfill: what it says beside.
        alias: of the database of the rows.
        checksum: of the declaration.
        own_run: of the pass that asks for itself; another's is told of first.

    Raises:
        BackfillMigrationPending: where the required migration is none that the project has.
    """
    found = named(job)
    live = list(live_passes([found]))
    return Facts(
        environment=get_settings().environment,
        migration_applied=backfill.requires is None or is_applied(backfill.name, backfill.requires, alias=alias),
        live_run=next((one for one in live if one != own_run), live[0] if live else None),
        completed=completed_pass(found.names),
        checksum=checksum,
        alias=alias,
        unfinished=unfinished_pass(found.names) if own_run is None and not live else None,
    )


def is_applied(name: str, migration: tuple[str, str], *, alias: str) -> bool:
    """Whether a migration is applied on `alias`, by itself or by one that replaces it.

    Args:
        name: of the backfill, for messages.
        migration: app label and name.
        alias: of the database.

    Raises:
        BackfillMigrationPending: where the project has no such migration.
    """
    connection = connections[alias]
    recorder = MigrationRecorder(connection)
    app, wanted = migration
    # The common answer, for one row: to load all migrations takes as long as a start of `migrate`.
    # Where the table is not there, that is told below; to look for it first lists all tables there are.
    with suppress(DatabaseError), transaction.atomic(using=alias):
        if recorder.migration_qs.filter(app=app, name=wanted).exists():
            return True
    # One that replaces others is applied where they all are, whether or not that has been written down.
    loader = MigrationLoader(connection)
    if migration in loader.applied_migrations:
        return True
    replaced = {target for one in loader.replacements.values() for target in one.replaces}
    if migration not in loader.disk_migrations and migration not in replaced:
        raise _unknown(name, migration, loader)
    return False


def _unknown(name: str, migration: tuple[str, str], loader: MigrationLoader) -> BackfillMigrationPending:
    app, wanted = migration
    cause = f"backfill {name!r} requires the migration {app}.{wanted}, "
    if app in loader.unmigrated_apps:
        return BackfillMigrationPending(
            f"{cause}and the app {app!r} has no migrations: it has no such folder, or MIGRATION_MODULES turns them off",
            fix="requires=None  # in the declaration",
        )
    names = sorted(one for label, one in loader.disk_migrations if label == app)
    if not names:
        apps = sorted(loader.migrated_apps)
        return BackfillMigrationPending(
            f"{cause}and no app of the label {app!r} is installed; those with migrations are {', '.join(apps)}",
            fix=f"requires={(_closest(app, apps), wanted)!r}  # in the declaration",
        )
    return BackfillMigrationPending(
        f"{cause}and that app has none of this name",
        fix=f"requires={(app, _meant(wanted, names))!r}  # in the declaration",
    )


def _meant(wanted: str, names: list[str]) -> str:
    """Return the migration that is most like it, its number aside; where none is, the last."""
    words = {one.partition("_")[2] or one: one for one in names}
    begun = [one for one in names if one.startswith(wanted)]
    close = difflib.get_close_matches(wanted.partition("_")[2] or wanted, words, n=1)
    return (begun or [words[one] for one in close] or names[-1:])[0]


def _closest(text: str, known: list[str]) -> str:
    """Return what is most like it; where nothing is, the last."""
    begun = [one for one in known if one.startswith(text)]
    return (begun or difflib.get_close_matches(text, known, n=1, cutoff=0.3) or known[-1:])[0]
