"""What people do to a live pass: pause it, let it go on, change its pace. Kept in the ledger, and in the job's history.

A control moves the ledger's row, and has the run look at it: one that is parked falls due, one that runs looks before
its next page, within a second where it waits for it. The row of the job is locked meanwhile, behind that of the ledger
as in the transaction of a page: a pass that ends at the same moment has been steered before, or the control is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills import ledger
from ultimat3_jobs.backfills.commands import backfill_command, list_command
from ultimat3_jobs.backfills.declared import declared_under
from ultimat3_jobs.backfills.pacing import check_rate
from ultimat3_jobs.backfills.passes import needs_another_pass
from ultimat3_jobs.backfills.pending import COMPLETED
from ultimat3_jobs.backfills.windows import Window, parse_window
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.repairs import MAX_ATTRIBUTION, log_repairs
from ultimat3_jobs.errors import BackfillNotLive
from ultimat3_jobs.models import Backfill, Job
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import RETRYABLE
from ultimat3_jobs.text import bounded, command_line


class _Unchanged(Enum):
    WINDOW = "unchanged"


UNCHANGED: Final = _Unchanged.WINDOW
"""The window stays as it is: None would take it away."""


class Verdict(StrEnum):
    """What became of a control."""

    PAUSED = "paused"
    RESUMED = "resumed"
    NOT_PAUSED = "not-paused"  # there was nothing to resume
    PACED = "paced"


@dataclass(frozen=True, slots=True)
class Controlled:
    """What a control came to."""

    run_id: UUID
    name: str
    verdict: Verdict


def pause(run_id: UUID, *, by: str, reason: str = "") -> Controlled:
    """Have a live pass rest before its next page until it is resumed. Done again, it changes who and why.

    Args:
        run_id: of the pass.
        by: who asks; kept in the ledger and the history.
        reason: why; kept there too.

    Raises:
        BackfillNotLive: where the pass has ended, or there is none.
    """
    who = {"by": bounded(by, MAX_ATTRIBUTION), "reason": bounded(reason, MAX_ATTRIBUTION)}
    return _Control("pause", run_id, by, reason).carry_out("pause_pass", who, Verdict.PAUSED)


def resume(run_id: UUID, *, by: str, reason: str = "") -> Controlled:
    """Let a paused pass go on. Of one that is not paused the verdict says so.

    Args:
        run_id: of the pass.
        by: who asks; kept in the history.
        reason: why; kept there too.

    Raises:
        BackfillNotLive: where the pass has ended, or there is none.
    """
    return _Control("resume", run_id, by, reason).carry_out(
        "resume_pass", {}, Verdict.RESUMED, otherwise=Verdict.NOT_PAUSED
    )


def pace(
    run_id: UUID,
    *,
    by: str,
    rate: float | None = None,
    window: str | tuple[str, str] | Window | _Unchanged | None = UNCHANGED,
    reason: str = "",
) -> Controlled:
    """Change how fast a live pass may sweep, or when.

    Args:
        run_id: of the pass.
        by: who asks; kept in the history.
        rate: pages a second at most, 0.0001 to 1,000; None leaves it as it is.
        window: the hours in which it may sweep, in the project's time zone; None: always.
        reason: why; kept in the history.

    Raises:
        DeclarationInvalid: where the rate or the window is none.
        BackfillNotLive: where the pass has ended, or there is none.
    """
    rate = None if rate is None else check_rate(rate)
    hours = parse_window(window) if window is not None and window is not UNCHANGED else None
    told = [] if rate is None else [f"rate {rate:g}"]
    if window is not UNCHANGED:
        told.append("no window" if hours is None else f"window {hours}")
    asked = {
        "rate": rate,
        "with_window": window is not UNCHANGED,
        "window_start": None if hours is None else hours.start.isoformat(),
        "window_end": None if hours is None else hours.end.isoformat(),
    }
    return _Control("pace", run_id, by, reason, ", ".join(told)).carry_out("pace_pass", asked, Verdict.PACED)


@dataclass(frozen=True)
class _Control:
    """Who does what to which pass."""

    kind: str
    run_id: UUID
    by: str
    reason: str
    rule: str = ""

    def carry_out(
        self, statement: str, parameters: dict[str, Any], done: Verdict, *, otherwise: Verdict | None = None
    ) -> Controlled:
        """Move the ledger's row of a live pass and have its run look at it.

        Args:
            statement: that moves the row, and returns it where it did.
            parameters: of the statement, beside the run.
            done: the verdict where it moved.
            otherwise: the verdict where the pass is live and there was nothing to move.
        """
        alias = queue_alias()
        with transaction.atomic(using=alias):
            get_driver().take_turn()  # where one transaction at a time can write: before it reads
            name = self._open(alias)
            moved = bool(run(alias, statement, {"run_id": self.run_id.hex, **parameters}))
            live = bool(run(alias, "nudge", {"id": self.run_id.hex, "known": declared_under(name) is not None}))
            if not live or (not moved and (otherwise is None or self._outcome(alias) == COMPLETED)):
                raise self._refusal(alias, name)
            if moved:
                log_repairs(alias, self.kind, [self.run_id], by=self.by, reason=self.reason, rule=self.rule)
        return Controlled(self.run_id, name, done if moved or otherwise is None else otherwise)

    def _open(self, alias: str) -> str:
        """Return the name of the backfill; open the ledger's row where the pass has not begun."""
        row = Backfill.objects.using(alias).filter(pk=self.run_id).values_list("name").first()
        if row is not None:
            return str(row[0])
        job = Job.objects.using(alias).filter(pk=self.run_id).only("name", "input", "enqueued_by").first()
        declared = None if job is None else declared_under(job.name)
        if job is None or declared is None:
            what = "there is no job" if job is None else f"{job.name!r} is no backfill that the code here declares: job"
            raise BackfillNotLive(f"{what} {self.run_id}", fix=command_line("backfill", "--list"))
        ledger.open_pass(
            declared,
            self.run_id,
            table="",  # is for the source to say, which may be what the pass is paused for: told when it begins
            forced=bool((job.input or {}).get("forced")),
            requested_by=job.enqueued_by,
        )
        return declared.name

    def _outcome(self, alias: str) -> str | None:
        outcome: str | None = (
            Backfill.objects.using(alias).filter(pk=self.run_id).values_list("outcome", flat=True).first()
        )
        return outcome

    def _refusal(self, alias: str, name: str) -> BackfillNotLive:
        found = Job.objects.using(alias).filter(pk=self.run_id).values_list("state", "error_class").first()
        state, error_class = found or (None, "")
        asked = f"cannot {self.kind} the pass {self.run_id} of backfill {name!r}"
        if self._outcome(alias) == COMPLETED:
            return BackfillNotLive(f"{asked}: it has completed", fix=list_command(name))
        if state in RETRYABLE and not needs_another_pass(error_class):
            return BackfillNotLive(f"{asked}: it is {state}", fix=command_line("jobs", "retry", str(self.run_id)))
        return BackfillNotLive(
            f"{asked}: {'its job has been deleted' if state is None else f'it is {state}'}",
            fix=backfill_command(name, "--write"),
        )
