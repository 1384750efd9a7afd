"""Whether a pass may start: a verdict from facts, the same for the command, the enqueue and the pass itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from ultimat3_jobs.backfills.commands import (
    DEFAULT_ALIAS,
    backfill_command,
    environment_setting,
    list_command,
    migrate_command,
)
from ultimat3_jobs.errors import (
    BackfillApplied,
    BackfillEnvironment,
    BackfillMigrationPending,
    BackfillRunning,
    JobsError,
)
from ultimat3_jobs.text import command_line, counted

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition


@dataclass(frozen=True)
class CompletedPass:
    """A pass that went through all of its rows."""

    run_id: UUID
    checksum: str
    """Of the declaration that swept; "" where it could not be worked out."""
    finished_at: datetime | None


@dataclass(frozen=True)
class UnfinishedPass:
    """A pass that ended before it had gone through all of its rows."""

    run_id: UUID
    processed: int
    """Rows whose pages have landed."""
    cancelled: bool
    may_go_on: bool
    """Whether a retry of its job has rows before it."""


@dataclass(frozen=True)
class Facts:
    """What a verdict is made from, as it was read."""

    environment: str
    """Name of the environment that the code runs in; "" where nobody says."""
    migration_applied: bool
    """Whether the required migration is applied on `alias`; True where none is required."""
    live_run: UUID | None
    """The run of the pass that is queued, running or parked."""
    completed: CompletedPass | None
    """The newest one."""
    checksum: str
    """Of the declaration in the running code; "" where it could not be worked out."""
    alias: str = DEFAULT_ALIAS
    """Of the database of the rows."""
    unfinished: UnfinishedPass | None = None
    """The newest pass, where it is that."""


@dataclass(frozen=True)
class Verdict:
    """What the gate says."""

    error: JobsError | None
    """Why no pass may start; None where one may."""
    warnings: tuple[str, ...] = ()


def judge(definition: BackfillDefinition, facts: Facts, *, forced: bool, own_run: UUID | None = None) -> Verdict:
    """Say whether a pass may start or go on.

    Args:
        definition: of the backfill.
        facts: as they are now.
        forced: whether to sweep again what has been swept.
        own_run: of the pass that asks for itself, which does not stand in its own way.
    """
    error = (
        _environment(definition, facts)
        or _migration(definition, facts)
        or _running(definition, facts, own_run)
        or _applied(definition, facts, forced=forced)
    )
    return Verdict(error, _warnings(definition, facts))


def judge_trial(definition: BackfillDefinition, facts: Facts) -> Verdict:
    """Say whether rows may be tried: what is rolled back may be tried wherever and as often as anyone likes.

    Args:
        definition: of the backfill.
        facts: as they are now.
    """
    elsewhere = _environment(definition, facts)
    return Verdict(_migration(definition, facts), () if elsewhere is None else (elsewhere.cause,))


def running(name: str, run_id: UUID) -> BackfillRunning:
    """Return the refusal of a pass where another one is live."""
    return BackfillRunning(f"a pass of backfill {name!r} is live already: run {run_id}", fix=list_command(name))


def _environment(definition: BackfillDefinition, facts: Facts) -> JobsError | None:
    meant = definition.environments
    if meant is None or facts.environment in meant:
        return None
    listed = " and ".join(meant)
    if not facts.environment:
        return BackfillEnvironment(
            f'backfill {definition.name!r} is meant for {listed}, and ULTIMAT3_JOBS["ENVIRONMENT"] does not say where '
            "this code runs",
            fix=environment_setting(definition),
        )
    return BackfillEnvironment(
        f"backfill {definition.name!r} is meant for {listed}, and this is {facts.environment}",
        fix=f"environments={[*meant, facts.environment]!r}  # in the declaration, if it is meant for this one too; "
        "if not, there is nothing to do here",
    )


def _migration(definition: BackfillDefinition, facts: Facts) -> JobsError | None:
    if definition.requires is None or facts.migration_applied:
        return None
    app, name = definition.requires
    return BackfillMigrationPending(
        f"backfill {definition.name!r} requires the migration {app}.{name}, which is not applied on {facts.alias!r}",
        fix=migrate_command(app, name, alias=facts.alias),
    )


def _running(definition: BackfillDefinition, facts: Facts, own_run: UUID | None) -> JobsError | None:
    if facts.live_run is None or facts.live_run == own_run:
        return None
    return running(definition.name, facts.live_run)


def _applied(definition: BackfillDefinition, facts: Facts, *, forced: bool) -> JobsError | None:
    if facts.completed is None or forced:
        return None
    again = backfill_command(definition.name, "--write", "--force")
    return BackfillApplied(
        _pass(definition, facts.completed),
        fix=f"{again}  # sweeps all its rows again; as a rule there is nothing to do",
    )


def _warnings(definition: BackfillDefinition, facts: Facts) -> tuple[str, ...]:
    return _unfinished(definition, facts) + _changed(definition, facts)


def _unfinished(definition: BackfillDefinition, facts: Facts) -> tuple[str, ...]:
    last = facts.unfinished
    if last is None:
        return ()
    told = (
        f"{'was cancelled' if last.cancelled else 'failed'} after {counted(last.processed, 'row')} (run {last.run_id})"
    )
    retry = command_line("jobs", "retry", str(last.run_id))
    instead = f"; {retry} lets that one go on from its last page" if last.may_go_on else ""
    return (f"the last pass of backfill {definition.name!r} {told}, and another begins with the first row{instead}",)


def _changed(definition: BackfillDefinition, facts: Facts) -> tuple[str, ...]:
    swept = facts.completed
    if swept is None or not swept.checksum or not facts.checksum or swept.checksum == facts.checksum:
        return ()
    warning = (
        f"{_pass(definition, swept)} with another handler or other filters than are declared now; "
        "a backfill that has changed is not swept again by itself"
    )
    return (warning,)


def _pass(definition: BackfillDefinition, completed: CompletedPass) -> str:
    when = "" if completed.finished_at is None else f" at {completed.finished_at.isoformat(' ', 'seconds')}"
    return f"a pass of backfill {definition.name!r} completed{when} (run {completed.run_id})"
