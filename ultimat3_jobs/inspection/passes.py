"""One pass as it is told: what the ledger keeps of it, put together with what its job says.

Whether a pass is live is for its job to say. Its row in the ledger is read after its job, or a pass that completes
meanwhile would look as if it had failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from ultimat3_jobs import registry
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.asking import ask
from ultimat3_jobs.backfills.checksum import checksum
from ultimat3_jobs.backfills.declared import backfill_of, declared_under
from ultimat3_jobs.backfills.passes import named
from ultimat3_jobs.backfills.pending import COMPLETED, PassStatus, pass_status
from ultimat3_jobs.backfills.source import open_rows
from ultimat3_jobs.backfills.windows import Window
from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.inspection.look import Look
from ultimat3_jobs.inspection.refusals import refusal
from ultimat3_jobs.inspection.step_texts import is_due, is_silent
from ultimat3_jobs.models import Backfill, Job
from ultimat3_jobs.moments import instant
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.states import State
from ultimat3_jobs.tenancy import as_tenant

MOST = 99
"""Percent that a pass shows at most before it has completed: its last page is not yet its end."""
_JOB = (
    "id", "run_id", "name", "queue", "input", "tenant_id", "idempotency_key", "state", "stop", "park_reason", "attempt",
    "max_attempts", "run_at", "parks", "wait_event", "error_class", "last_error", "visible_at", "enqueued_by",
    "created_at", "started_at", "finished_at", "cancel_requested_by", "cancel_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """One pass as it is told.

    Attributes:
        row: of the ledger; one that is not stored where the pass has not begun.
        begun: whether the ledger has it.
        job: that sweeps; None where it has been deleted. In a list without its input and result.
        status: where the pass stands.
        percent: of its rows that are handled, 0 to 100; 100 only where it has completed. None: the total is not known.
        rows_per_second: since its present run began, or in its last one; pauses are between runs. None: not known.
        seconds_left: at that speed, while it sweeps; None: not known.
        waits_for: why no worker sweeps it although it is live; empty where one does.
        is_due: whether that is a worker alone: its moment has come.
        swept: whether a pass of the backfill has completed, this one or another: a new one must be forced.
        checksum_changed: whether the code here declares it otherwise than it was swept; None: that cannot be told.
        now: the time of the queue's database when it was told.
    """

    row: Backfill
    begun: bool
    job: Job | None
    status: PassStatus
    percent: int | None
    rows_per_second: float | None
    seconds_left: float | None
    waits_for: str
    is_due: bool
    swept: bool
    checksum_changed: bool | None
    now: datetime

    @property
    def run_id(self) -> UUID:
        """Of the run, which is the id of its job."""
        return self.row.run_id

    @property
    def name(self) -> str:
        """Of the backfill, as the pass was queued."""
        return self.row.name

    @property
    def is_live(self) -> bool:
        """Whether it may go on."""
        return self.status in (PassStatus.RUNNING, PassStatus.PAUSED)

    @property
    def window(self) -> Window | None:
        """The hours in which it may sweep; None: always."""
        return window_of(self.row)


def window_of(row: Backfill) -> Window | None:
    """Return the hours in which a pass may sweep; None: always."""
    start, end = row.window_start, row.window_end
    return None if start is None or end is None else Window(start, end)


def tell_pass(run_id: UUID) -> PassReport | None:
    """Return all about one pass, or None where there is none.

    Args:
        run_id: of its run, which is the id of its job.
    """
    alias = queue_alias()
    # The job first: where it has ended well by then, the ledger has it.
    job = Job.objects.using(alias).filter(pk=run_id).first()
    row = Backfill.objects.using(alias).filter(pk=run_id).first()
    if row is None and (job is None or declared_under(job.name) is None):
        return None
    return next(iter(_reports([(row, job)])), None)


def pass_of(job: Job, look: Look | None = None) -> PassReport | None:
    """Return the pass that a job sweeps, or None where it sweeps none.

    Args:
        job: its row.
        look: at the queue; None: a new one.
    """
    row = Backfill.objects.using(queue_alias()).filter(pk=job.run_id).first()
    if row is None and declared_under(job.name) is None:
        return None
    return next(iter(_reports([(row, job)], look)), None)


def tell_passes(run_ids: Collection[UUID]) -> dict[UUID, PassReport]:
    """Return what there is to know of some passes, without inputs and results; in their order.

    Args:
        run_ids: of their runs. Those that are gone are left out.
    """
    alias = queue_alias()
    # The jobs first: where one has ended well by then, the ledger has it.
    jobs = Job.objects.using(alias).only(*_JOB).in_bulk(run_ids)
    rows = Backfill.objects.using(alias).in_bulk(run_ids)
    return {one.run_id: one for one in _reports([(rows.get(one), jobs.get(one)) for one in run_ids])}


def _reports(found: Iterable[tuple[Backfill | None, Job | None]], look: Look | None = None) -> list[PassReport]:
    pairs = [(row, job) for row, job in found if row is not None or job is not None]
    if not pairs:
        return []
    look, sum_of = look or Look(), cache(_checksum)
    reports = [_report(row, job, look, sum_of) for row, job in pairs]
    swept = _swept({one.name for one in reports if one.status in _MAY_NEED_FORCE})
    return [replace(one, swept=True) if one.name in swept else one for one in reports]


_MAY_NEED_FORCE = (PassStatus.FAILED, PassStatus.CANCELLED, PassStatus.SKIPPED)


def _swept(names: Collection[str]) -> set[str]:
    """Return those of some names whose backfill has completed, under this name or another of its own."""
    if not names:
        return set()
    others = {name: {name, *registry.names_of(name)} for name in names}
    ledger = Backfill.objects.using(queue_alias()).filter(name__in=set().union(*others.values()), outcome=COMPLETED)
    completed = set(ledger.order_by().values_list("name", flat=True).distinct())
    return {name for name, known in others.items() if known & completed}


def _report(row: Backfill | None, job: Job | None, look: Look, sum_of: Callable[[str], str | None]) -> PassReport:
    begun = row is not None
    if row is None:
        assert job is not None  # noqa: S101 - one of the two is there
        row = _unbegun(job)
    state = None if job is None else job.state
    status = pass_status(row.outcome, state, paused=row.paused_at is not None)
    summed = sum_of(row.name) if row.checksum else None
    report = PassReport(
        row=row,
        begun=begun,
        job=job,
        status=status,
        percent=_percent(row, status),
        rows_per_second=_speed(row, job, look.now),
        seconds_left=None,
        waits_for="" if job is None else _waits_for(job, look),
        is_due=job is not None and is_due(job, look),
        swept=status is PassStatus.COMPLETED,
        checksum_changed=None if not summed else summed != row.checksum,
        now=look.now,
    )
    left = _left(report)
    return report if left is None else replace(report, seconds_left=left)


def _unbegun(job: Job) -> Backfill:
    """Return what the ledger would say of a pass that is queued and has not begun."""
    declared = declared_under(job.name)
    window = None if declared is None else declared.window
    asked: Mapping[str, Any] = job.input if isinstance(job.input, dict) else {}
    return Backfill(
        run_id=job.run_id,
        name=job.name,
        table="",
        batch=declared.batch if declared and isinstance(declared.batch, int) else 0,
        rate=None if declared is None else declared.rate,
        window_start=None if window is None else window.start,
        window_end=None if window is None else window.end,
        processed=0,
        began_with=0,
        estimated=False,
        environment=get_settings().environment,
        requested_by=job.enqueued_by,
        pause_reason="",
        paused_by="",
        checksum="",
        release="",
        outcome="",
        forced=asked.get("forced") is True,
        created_at=job.created_at,
        updated_at=job.created_at,
    )


def _percent(row: Backfill, status: PassStatus) -> int | None:
    if status is PassStatus.COMPLETED:
        return 100
    if row.total is None:
        return None
    # Of nothing, nothing is done: it has yet to complete.
    return min(MOST, 100 * row.processed // row.total) if row.total > 0 else 0


def _speed(row: Backfill, job: Job | None, now: datetime) -> float | None:
    """Return rows a second of the run that goes on, or of the last one: between runs nothing is swept."""
    if job is None or job.started_at is None or row.updated_at <= job.started_at:
        return None  # no page of it has landed
    until = now if job.state == State.RUNNING else row.finished_at or row.updated_at
    seconds, rows = (until - job.started_at).total_seconds(), row.processed - row.began_with
    return rows / seconds if seconds > 0 and rows > 0 else None


def _left(report: PassReport) -> float | None:
    running = report.job is not None and report.job.state == State.RUNNING and report.is_live
    if not running or report.rows_per_second is None or report.row.total is None:
        return None
    return max(0, report.row.total - report.row.processed) / report.rows_per_second


def _waits_for(job: Job, look: Look) -> str:
    if is_due(job, look):
        return look.worker_for(job.queue)
    match job.state:
        case State.RUNNING if is_silent(job, look):
            return f"{look.worker_for(job.queue)}; the one that swept it went silent"
        case State.SUSPENDED:
            return job.park_reason or "no reason was kept"
        case State.DELAYED:
            return f"its next attempt, due at {instant(job.run_at)}"
    return ""


def _checksum(name: str) -> str | None:
    job = registry.find(name)
    declared = backfill_of(job)
    if job is None or declared is None:
        return None
    with suppress(JobsError):  # what its code raises is told where it is swept
        return ask(
            lambda: as_tenant(named(job).tenant, lambda: checksum(declared, open_rows(declared).queryset)),
            refuse=lambda error: refusal(name, error),
        )
    return None
