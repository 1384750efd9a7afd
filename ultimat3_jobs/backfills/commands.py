"""The lines to type about a backfill: commands, and the setting without which nobody knows where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ultimat3_jobs.text import command_line, environment_line

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition

DEFAULT_ALIAS = "default"


def backfill_command(name: str, *flags: str) -> str:
    """Return the command line that is about one backfill, as a shell takes it."""
    # A name may begin like an option.
    words = (*flags, "--", name) if name.startswith("-") else (name, *flags)
    return command_line("backfill", *words)


def list_command(name: str) -> str:
    """Return the command line that shows the passes of one backfill."""
    return command_line("backfill", "--list", *((f"--name={name}",) if name.startswith("-") else ("--name", name)))


def migrate_command(*migration: str, alias: str) -> str:
    """Return the command line that migrates a database: all of it, an app, or up to a migration of one."""
    return command_line("migrate", *migration, *(() if alias == DEFAULT_ALIAS else ("--database", alias)))


def environment_setting(definition: BackfillDefinition) -> str:
    """Return the line of the settings that says where the code runs; of a backfill that is meant for some places."""
    assert definition.environments  # noqa: S101 - nothing asks where a backfill runs that is meant for all
    return environment_line(definition.environments, "this backfill is")
