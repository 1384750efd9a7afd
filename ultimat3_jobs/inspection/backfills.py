"""Where backfills stand and which passes they have: the one source for the command, the admin and JSON.

The newest pass is the one that began last by the clock of the queue's database, or was queued last where it has not
begun. The ids of runs are made by the clocks of those who ask for passes, and those differ.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills import pending as standings
from ultimat3_jobs.backfills.declared import declared_backfills, declared_under
from ultimat3_jobs.backfills.definition import BackfillDefinition
from ultimat3_jobs.backfills.passes import Named, live_passes, named_or_refused, read_passes
from ultimat3_jobs.backfills.pending import Difference, Pass, Status
from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.inspection.lists import LAST, MAX_PAGE
from ultimat3_jobs.inspection.passes import PassReport, tell_passes
from ultimat3_jobs.models import Backfill, Job
from ultimat3_jobs.registry import names_of
from ultimat3_jobs.settings import get_settings


@dataclass(frozen=True, slots=True)
class PassPage:
    """Some passes, the newest first; `before` is where the next page begins, None where there are no more."""

    passes: list[PassReport]
    before: UUID | None
    walked: int | None = None


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """One backfill as it is told.

    Attributes:
        name: that it is declared under or, where no code declares it any more, that its passes have.
        status: where it stands; of one that is not declared, where its newest pass does.
        keeps_back: whether a deploy must wait for it.
        definition: as the code here declares it; None where it does not.
        passes: the newest first, as far as the list goes.
        latest: the newest, whether or not the list goes so far; None where it has none.
        refusal: why nobody can tell its tenant; None where it can be told.
    """

    name: str
    status: Status
    keeps_back: bool
    definition: BackfillDefinition | None
    passes: tuple[PassReport, ...]
    latest: PassReport | None
    refusal: JobsError | None = None


def pending() -> Difference:
    """Return what is declared against what has been swept, live passes that have not begun with it."""
    asked = _named()
    return _compare(read_passes(asked), asked)


def list_backfills(name: str = "", status: str = "", limit: int = 50) -> list[BackfillReport]:
    """Return every declared backfill by name, then those that have passes and no declaration any more.

    Args:
        name: only the one of this name, or that had it before; empty means all.
        status: only those that stand so.
        limit: passes at most, of all together. A backfill is listed whether or not its passes are.
    """
    asked = _named()
    read = read_passes(asked)
    found, newest = _compare(read, asked), {one.name: one for one in reversed(read)}
    refusals = {one.name: one.refusal for one in found.standings}
    stand = [(one.name, one.status, one.latest) for one in found.standings]
    stand += [(one, Status(newest[one].status.value), newest[one]) for one in found.undeclared]
    wanted = names_of(name)[0] if name else ""
    chosen = [one for one in stand if wanted in ("", one[0]) and status in ("", one[1])]
    listed = _newest({each for one, *_ in chosen for each in names_of(one)}, limit=max(1, min(limit, MAX_PAGE)))
    told = tell_passes(list(dict.fromkeys([*listed, *(latest.run_id for *_, latest in chosen if latest is not None)])))
    by_name: dict[str, list[PassReport]] = {}
    for run_id in listed:
        if run_id in told:
            by_name.setdefault(names_of(told[run_id].name)[0], []).append(told[run_id])
    return [
        BackfillReport(
            name=one,
            status=stands,
            keeps_back=standings.keeps_back(stands) and declared_under(one) is not None,
            definition=declared_under(one),
            passes=tuple(by_name.get(one, ())),
            latest=None if latest is None else told.get(latest.run_id),
            refusal=refusals.get(one),
        )
        for one, stands, latest in chosen
    ]


def list_passes(name: str = "", *, limit: int = 50, before: UUID = LAST) -> PassPage:
    """Return the newest passes, those that are queued and have not begun among them.

    Args:
        name: only those of this backfill, under its other names too; empty means all.
        limit: passes at most; 1 to 1,000.
        before: only those that are older than this one, as a page gave it.
    """
    limit = max(1, min(limit, MAX_PAGE))
    found = _newest(names_of(name) if name else None, limit=limit + 1, before=before)
    shown = found[:limit]
    return PassPage(list(tell_passes(shown).values()), shown[-1] if len(found) > limit else None)


def _named() -> list[Named]:
    return [named_or_refused(job) for job, _ in declared_backfills()]


def _compare(passes: Sequence[Pass], asked: Sequence[Named]) -> Difference:
    """Compare what is declared with passes.

    Args:
        passes: the newest first.
        asked: what they were found by: whose tenant nobody can tell stands otherwise.
    """
    declared = [backfill for _, backfill in declared_backfills()]
    found = standings.difference(
        declared,
        passes,
        environment=get_settings().environment,
        former_names={alias: one.name for one in declared for alias in one.aliases},
    )
    refused = {one.names[0]: one.refusal for one in asked if one.refusal is not None}
    stand = (one.without_tenant(refused[one.name]) if one.name in refused else one for one in found.standings)
    return replace(found, standings=tuple(stand))


def _newest(names: Collection[str] | None, *, limit: int, before: UUID = LAST) -> list[UUID]:
    """Return the runs of the newest passes, at most `limit`; of these names, or of all where it is None."""
    alias = queue_alias()
    asked = [job for job, backfill in declared_backfills() if names is None or backfill.name in names]
    # Those that have not begun first: one that does meanwhile is in the ledger when that is read.
    live = live_passes(map(named_or_refused, asked))
    begun = set(Backfill.objects.using(alias).filter(pk__in=live).values_list("pk", flat=True)) if live else ()
    older = Q() if before == LAST else _older(before, _began(before))
    found: dict[UUID, datetime] = {}
    if unbegun := [one for one in live if one not in begun]:
        found |= Job.objects.using(alias).filter(older, pk__in=unbegun).values_list("run_id", "created_at")
    ledger = Backfill.objects.using(alias).filter(older).order_by("-created_at", "-run_id")
    if names is not None:
        ledger = ledger.filter(name__in=names)
    found |= ledger.values_list("run_id", "created_at")[:limit]
    return sorted(found, key=lambda one: (found[one], one), reverse=True)[:limit]


def _older(before: UUID, began: datetime | None) -> Q:
    """Return what a pass must be to be older than another; where that is gone, its id tells about when it was."""
    by_id = Q(run_id__lt=before)
    return by_id if began is None else Q(created_at__lt=began) | (Q(created_at=began) & by_id)


def _began(run_id: UUID) -> datetime | None:
    """Return when a pass began or, where it has not, when it was queued; None where it is gone."""
    alias = queue_alias()
    for found in (Backfill.objects.using(alias).filter(pk=run_id), Job.objects.using(alias).filter(pk=run_id)):
        moment: datetime | None = found.values_list("created_at", flat=True).first()
        if moment is not None:
            return moment
    return None
