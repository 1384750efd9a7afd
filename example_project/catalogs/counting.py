"""Takes the words of the findings from the column to what builds on it: expand, backfill, contract."""

from __future__ import annotations

from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from example_project.catalogs.backfills import UNCOUNTED, count_words
from example_project.catalogs.models import Finding
from ultimat3_jobs.errors import BackfillRunning
from ultimat3_jobs.models import Backfill

APP = "catalogs"
EXPANDED = "0003_finding_words"
CONTRACTED = "0004_findings_by_words"
COMPLETED = "completed"


def migrate_to_expanded() -> None:
    """Apply all migrations but the contract, which comes after the backfill. A database that has it stays as it is.

    In an empty database the contract would pass at once: there is nothing to fill.
    """
    loader = MigrationLoader(connection)
    if (APP, CONTRACTED) in loader.applied_migrations:
        call_command("migrate", interactive=False, verbosity=0)
        return
    for app in sorted(loader.migrated_apps):
        upto = [EXPANDED] if app == APP else []
        call_command("migrate", app, *upto, interactive=False, verbosity=0)


def start_counting() -> bool:
    """Start a pass of the backfill and return whether one was started: not where one is live, or nothing is left."""
    swept = Backfill.objects.filter(name=count_words.name, outcome=COMPLETED).exists()
    if swept and not Finding.objects.filter(UNCOUNTED).exists():
        return False
    try:
        # What was scanned since the last pass completed takes another one.
        count_words.enqueue(forced=swept)
    except BackfillRunning:
        return False
    return True


def contract() -> None:
    """Apply the migration that needs every row to be filled.

    Raises:
        BackfillPending: where no pass has completed, or rows are left.
    """
    call_command("migrate", interactive=False, verbosity=0)
