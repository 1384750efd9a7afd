"""Starts of passes, and what is told of each: of one that a command was given, and of many of which each counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import DatabaseError

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.asking import ask
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.declare import Backfill
from ultimat3_jobs.backfills.plan import start
from ultimat3_jobs.enqueue import EnqueueResult
from ultimat3_jobs.errors import BackfillApplied, BackfillEnvironment, BackfillRunning, JobsError, MigrationMissing
from ultimat3_jobs.inspection import report, terminal
from ultimat3_jobs.inspection.refusals import refusal
from ultimat3_jobs.schema import unusable
from ultimat3_jobs.settings import get_settings

T = TypeVar("T")


@dataclass(frozen=True)
class Start:
    """What became of one that was to start."""

    name: str
    queued: EnqueueResult | None = None
    refusal: JobsError | None = None
    warnings: tuple[str, ...] = ()


def try_start(backfill: Backfill, *, forced: bool, by: str) -> Start:
    """Start a pass, for a worker to sweep; a refusal is an answer too.

    Args:
        backfill: to sweep.
        forced: whether it is swept again where it has been.
        by: who asks for it.
    """
    try:
        queued, warnings = start(backfill, forced=forced, by=by)
    except JobsError as error:
        return Start(backfill.name, refusal=error)
    return Start(backfill.name, queued, warnings=warnings)


def asked(backfill: Backfill, call: Callable[[], T]) -> T:
    """Do something for one of many; whatever its code raises is a refusal.

    Raises:
        JobsError: what it was refused for.
        MigrationMissing: where the queue has no tables, which is nobody's fault in particular.
    """
    return ask(call, refuse=lambda error: _refusal(backfill, error))


def _refusal(backfill: Backfill, error: BaseException) -> JobsError:
    """Return why one of many was refused, whatever its code raised.

    Raises:
        MigrationMissing: where the queue has no tables, which is nobody's fault in particular.
    """
    if isinstance(error, DatabaseError) and isinstance(told := unusable(queue_alias(), error), MigrationMissing):
        raise told from error
    return refusal(backfill.name, error)


def start_text(started: Start) -> Iterator[str]:
    """Yield the lines that tell of a start."""
    name = terminal.safe(started.name)
    for warning in started.warnings:
        yield f"warning: {terminal.safe(warning)}"
    if started.refusal is not None:
        yield f"{name}  not started: {started.refusal.code}: {terminal.safe(started.refusal.cause)}"
    elif started.queued is not None:
        yield f"{name}  started: job {started.queued.id}, for a worker to sweep. To follow it:"
        yield f"    {terminal.safe(backfill_command(started.name, '--wait'))}"


def starts_report(starts: Sequence[Start]) -> dict[str, Any]:
    """Return starts as plain JSON values."""
    return {"backfills": [start_report(one) for one in starts]}


def start_report(started: Start) -> dict[str, Any]:
    """Return a start as plain JSON values."""
    queued = started.queued
    return {
        "name": started.name,
        "id": None if queued is None else str(queued.id),
        "refused": started.refusal and report.error(started.refusal),
        "warnings": list(started.warnings),
    }


def is_quiet(refusal: JobsError) -> bool:
    """Whether it says no more than that nothing is to be done: it was swept, is being swept, or is meant for elsewhere.

    Where nobody has said which environment this is, nobody knows that nothing is to be done.
    """
    if isinstance(refusal, BackfillEnvironment):
        return bool(get_settings().environment)
    return isinstance(refusal, BackfillApplied | BackfillRunning)
