"""What has been swept, as it is read: the ledger's rows, and the jobs that say whether a pass is live."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import apps

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.asking import ask, told
from ultimat3_jobs.backfills.gate import CompletedPass, UnfinishedPass
from ultimat3_jobs.backfills.pending import COMPLETED, Pass, PassStatus, pass_status
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.errors import BackfillSourceChanged, BackfillStalled, DeclarationInvalid, JobsError
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import LIVE, RETRYABLE, State
from ultimat3_jobs.traces import class_name

KEY = "pass"
"""The key of every pass, so that a backfill has one that is live."""


_NEED_ANOTHER = frozenset({class_name(BackfillStalled), class_name(BackfillSourceChanged)})


@dataclass(frozen=True)
class Named:
    """What the passes of one backfill are found by."""

    names: tuple[str, ...]
    """Its name, and those that it had before."""
    tenant: str | None
    refusal: JobsError | None = None
    """Why nobody can tell the tenant; passes are found by their names alone then."""


def needs_another_pass(error_class: str) -> bool:
    """Whether a pass that failed with an error of this class would get nowhere by a retry: another one is started.

    It has been through all of its rows, or the code here sweeps others than it began with.
    """
    return error_class in _NEED_ANOTHER


def named(definition: JobDefinition) -> Named:
    """Return what the passes of a backfill's job are found by.

    Raises:
        DeclarationInvalid: where the project's code for the tenant raises.
        TenantRequired, InputInvalid: where it gives none, or nothing that can be stored.
    """

    def refuse(error: BaseException) -> JobsError:
        return DeclarationInvalid(
            f"the tenant of backfill {definition.name!r} cannot be told: it raised {told(error)}",
            fix=f'tenant=lambda: "acme"  # in {definition.func.__module__}: what answers here too, or NO_TENANT',
        )

    return Named(definition.names, ask(lambda: definition.tenant_of({"forced": False}), refuse=refuse))


def named_or_refused(definition: JobDefinition) -> Named:
    """Return the same, for a look at many: with the refusal, where nobody can tell the tenant of one."""
    try:
        return named(definition)
    except JobsError as error:
        return Named(definition.names, None, error)


def live_passes(backfills: Iterable[Named]) -> dict[UUID, str]:
    """Return the runs of the passes that are queued, running or parked, with the name that each was queued under."""
    asked: list[dict[str, Any]] = []
    by_name: set[str] = set()
    for one in backfills:
        if one.refusal is None:
            asked.extend({"name": name, "tenant_id": one.tenant, "idempotency_key": KEY} for name in one.names)
        else:
            by_name.update(one.names)
    found = {
        rows.uuid(run_id): name for name, run_id in run(queue_alias(), "live_passes", {"rows": rows.encode(asked)})
    }
    return found | dict(live_under(by_name).values_list("run_id", "name")) if by_name else found


def live_under(names: Collection[str]) -> Any:
    """Return the jobs of the live passes under any of some names, of whichever tenant, as a queryset."""
    jobs = _model("Job")._base_manager.using(queue_alias())
    return jobs.filter(name__in=names, idempotency_key=KEY, state__in=LIVE).order_by()


def completed_pass(names: Sequence[str]) -> CompletedPass | None:
    """Return the newest completed pass under any of these names."""
    found = (
        _model("Backfill")
        .objects.using(queue_alias())
        .filter(name__in=names, outcome=COMPLETED)
        .order_by("-created_at", "-run_id")
        .values_list("run_id", "checksum", "finished_at")
        .first()
    )
    return None if found is None else CompletedPass(*found)


def unfinished_pass(names: Sequence[str]) -> UnfinishedPass | None:
    """Return the newest pass under any of these names where it has landed pages and ended without completing.

    None is live: whoever asks has looked.
    """
    alias = queue_alias()
    ledger = _model("Backfill").objects.using(alias).filter(name__in=names).order_by("-created_at", "-run_id")
    last = ledger.values_list("run_id", "outcome", "processed").first()
    if last is None or last[1] == COMPLETED or not last[2]:
        return None
    job = _model("Job").objects.using(alias).filter(pk=last[0]).values_list("state", "error_class").first()
    state, error_class = job or ("", "")
    return UnfinishedPass(
        run_id=last[0],
        processed=last[2],
        cancelled=state == State.CANCELLED,
        may_go_on=state in RETRYABLE and not needs_another_pass(error_class),
    )


def read_passes(backfills: Iterable[Named]) -> list[Pass]:
    """Return of every name the live pass, the newest and the newest that completed: what statuses are made of.

    Those that are live come first, then the others, the newest first: those that began last by the queue's clock.

    Args:
        backfills: those that are declared. Of other names, those in the ledger are returned, too.
    """
    # First of all: one that begins from here on is in the ledger when that is read, and its job's state with it.
    live = live_passes(backfills)
    asked = rows.encode({"run_id": one.hex} for one in live)
    begun = {
        rows.uuid(run_id): Pass(rows.uuid(run_id), name, pass_status(outcome, state, paused=bool(paused)))
        for run_id, name, outcome, paused, state in run(queue_alias(), "newest_passes", {"rows": asked})
    }
    first = [begun.pop(one, Pass(one, name, PassStatus.RUNNING)) for one, name in live.items()]
    return [*first, *begun.values()]


def _model(name: str) -> Any:
    # The package is imported before the apps are loaded.
    return apps.get_model("ultimat3_jobs", name)
