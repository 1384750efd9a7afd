"""What has been swept, as it is read: the ledger's rows, and the jobs that say whether a pass is live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import apps

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.gate import CompletedPass
from ultimat3_jobs.backfills.pending import COMPLETED, Pass, pass_status
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import State

KEY = "pass"
"""The key of every pass, so that a backfill has one that is live."""
AT_ONCE = 500  # rows that are asked for by id in one statement


@dataclass(frozen=True)
class Named:
    """What the passes of one backfill are found by."""

    names: tuple[str, ...]
    """Its name, and those that it had before."""
    tenant: str | None


def named(definition: JobDefinition) -> Named:
    """Return what the passes of a backfill's job are found by."""
    return Named((definition.name, *definition.aliases), definition.tenant_of({"forced": False}))


def live_passes(backfills: Iterable[Named]) -> dict[UUID, str]:
    """Return the runs of the passes that are queued, running or parked, with the name that each was queued under."""
    asked = [{"name": name, "tenant_id": one.tenant, "idempotency_key": KEY} for one in backfills for name in one.names]
    found = run(queue_alias(), "live_passes", {"rows": rows.encode(asked)})
    return {rows.uuid(run_id): name for name, run_id in found}


def completed_pass(names: Sequence[str]) -> CompletedPass | None:
    """Return the newest completed pass under any of these names."""
    found = (
        _model("Backfill")
        .objects.using(queue_alias())
        .filter(name__in=names, outcome=COMPLETED)
        .order_by("-created_at")
        .values_list("run_id", "checksum", "finished_at")
        .first()
    )
    return None if found is None else CompletedPass(*found)


def read_passes(backfills: Iterable[Named]) -> list[Pass]:
    """Return of every name the live pass, the newest and the newest that completed: what statuses are made of.

    Those that are live come first, then the others, the newest first.

    Args:
        backfills: those that are declared. Of other names, those in the ledger are returned, too.
    """
    alias = queue_alias()
    # First of all: what begins or ends from here on is in the ledger, or its job is read below.
    live = live_passes(backfills)
    paused: set[UUID] = set()
    completed: set[UUID] = set()
    kept: dict[UUID, str] = dict(live)
    seen: set[tuple[str, bool]] = set()
    ledger = _model("Backfill").objects.using(alias).order_by("-created_at", "-run_id")
    for run_id, name, outcome, paused_at in ledger.values_list("run_id", "name", "outcome", "paused_at").iterator():
        is_completed = outcome == COMPLETED
        if run_id in live or (name, False) not in seen or (is_completed and (name, True) not in seen):
            kept[run_id] = name
            paused |= {run_id} if paused_at is not None else set()
            completed |= {run_id} if is_completed else set()
        seen |= {(name, False), (name, is_completed)}
    states = _states(alias, [run_id for run_id in kept if run_id not in live and run_id not in completed])
    return [
        Pass(
            run_id,
            name,
            pass_status(
                COMPLETED if run_id in completed else "",
                State.READY if run_id in live else states.get(run_id),
                paused=run_id in paused,
            ),
        )
        for run_id, name in kept.items()
    ]


def _states(alias: str, run_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the states of jobs; a run has the id of its job."""
    states: dict[UUID, str] = {}
    for start in range(0, len(run_ids), AT_ONCE):
        jobs = _model("Job").objects.using(alias).filter(id__in=run_ids[start : start + AT_ONCE])
        states.update(jobs.values_list("id", "state"))
    return states


def _model(name: str) -> Any:
    # The package is imported before the apps are loaded.
    return apps.get_model("ultimat3_jobs", name)
