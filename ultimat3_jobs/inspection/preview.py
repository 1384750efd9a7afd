"""What a retry would skip and what it would do again, before anything is changed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from uuid import UUID

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.errors import UnknownJob
from ultimat3_jobs.inspection.repair import not_retryable
from ultimat3_jobs.inspection.steps import recorded_names, unknown_step
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import RetryVerdict, StepKind
from ultimat3_jobs.states import RETRYABLE


@dataclass(frozen=True, slots=True)
class Preview:
    """What a retry would do.

    Attributes:
        id: of the job.
        name: the job's name.
        from_step: the step from which it would start again; None: as it stands.
        kept: name and kind of the recorded steps that would be skipped, in their order.
        again: name and kind of those that would be done again, in their order. Steps that are not recorded run anyway.
    """

    id: UUID
    name: str
    from_step: str | None
    kept: list[tuple[str, str]]
    again: list[tuple[str, str]]

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Those that are kept and over: neither is a sweep, which goes on."""
        return [(name, kind) for name, kind in self.kept if kind != StepKind.CURSOR]

    @property
    def notes(self) -> list[str]:
        """What becomes of a sweep: it is no step that is done or not."""
        goes_on = [f"{name} goes on behind its cursor" for name, kind in self.kept if kind == StepKind.CURSOR]
        anew = [
            f"{name} forgets its cursor: every row is handled again, from the first one"
            for name, kind in self.again
            if kind == StepKind.CURSOR
        ]
        return goes_on + anew


def preview_command(one: Preview) -> str:
    """Return the command that does what was previewed."""
    step = "" if one.from_step is None else f" --from-step {shlex.quote(one.from_step)}"
    return f"python manage.py jobs retry {one.id}{step}"


def preview(job_id: UUID, from_step: str | None) -> Preview:
    """Return what a retry of a job would do now.

    Args:
        job_id: of a dead or failed job.
        from_step: the recorded step from which it is to start again; None: as it stands.

    Raises:
        UnknownJob: where there is no such job.
        NotRetryable: where the job is neither dead nor failed.
        StepUnknown: where it has not recorded the step; the message lists those that it has.
    """
    job = Job.objects.using(queue_alias()).only("name", "state", "run_id").filter(pk=job_id).first()
    if job is None:
        raise UnknownJob(f"there is no job {job_id}", fix="copy an id from `python manage.py jobs ls`")
    if job.state not in RETRYABLE:
        raise not_retryable(job_id, RetryVerdict.NOT_RETRYABLE, job)
    recorded = recorded_names(job.run_id)
    if from_step is None:
        return Preview(job_id, job.name, None, [(name, kind) for name, _seq, kind in recorded], [])
    first = next((seq for name, seq, _kind in recorded if name == from_step), None)
    if first is None:
        raise unknown_step(job_id, from_step, [name for name, _seq, _kind in recorded])
    goes = [seq > first or name == from_step for name, seq, _kind in recorded]
    return Preview(
        id=job_id,
        name=job.name,
        from_step=from_step,
        kept=[(name, kind) for (name, _seq, kind), gone in zip(recorded, goes, strict=True) if not gone],
        again=[(name, kind) for (name, _seq, kind), gone in zip(recorded, goes, strict=True) if gone],
    )
