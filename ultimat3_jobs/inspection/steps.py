"""What a run has recorded, as people are told of it: the last steps of a run, bounded, and which names there are."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, F, IntegerField, JSONField, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Coalesce, Length

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.errors import StepUnknown
from ultimat3_jobs.inspection.masking import masked
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.records import StepKind, StepState

MAX_STEPS_SHOWN = 200
"""Steps that a page or a terminal is given unless it asks for more."""
MAX_STEPS = 10_000
"""Steps that can be asked for."""
MAX_OUTPUT = 2_000
"""Characters of an output that is shown; of a longer one its size is told."""
MAX_NAMED = 10
"""Names that a refusal lists."""

_COLUMNS = ("name", "seq", "kind", "state", "attempt", "until", "started_at", "finished_at")


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One recorded step.

    Attributes:
        name: its name, of which a run has one.
        seq: its place in the order of recording.
        kind: a `StepKind`, or one that another build wrote.
        state: a `StepState`, or one that another build wrote.
        attempt: the job's attempt that recorded it.
        until: when a sleep or a wait is over.
        started_at: when it was begun.
        finished_at: when it was done.
        output: what it returned, secrets masked; None where it is too long to be shown.
        output_size: characters of what it returned, as it is stored.
    """

    name: str
    seq: int
    kind: str
    state: str
    attempt: int
    until: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    output: Any = None
    output_size: int = 0

    @property
    def seconds(self) -> float | None:
        """How long a step took; None of sleeps and waits, and where it is not known."""
        if self.kind != StepKind.STEP or self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()

    def is_over(self, now: datetime) -> bool:
        """Whether a run goes past it."""
        if self.state != StepState.WAITING:
            return True
        return self.kind == StepKind.SLEEP and self.until is not None and self.until <= now


def last_steps(run_id: UUID, *, limit: int = MAX_STEPS_SHOWN) -> tuple[list[RecordedStep], bool]:
    """Return the last steps that a run has recorded, in their order, and whether there are earlier ones.

    Args:
        run_id: the run.
        limit: steps at most; 1 to 10,000.
    """
    limit = max(1, min(limit, MAX_STEPS))
    rows = list(_of(run_id).order_by("-seq", "-name").values(*_COLUMNS)[: limit + 1])
    shown = rows[:limit][::-1]
    outputs = _outputs(run_id, first=shown[0]["seq"]) if shown else {}
    steps = []
    for row in shown:
        output, size = outputs.get(row["name"], (None, 0))
        steps.append(RecordedStep(**row, output=masked({row["name"]: output})[row["name"]], output_size=size))
    return steps, len(rows) > limit


def unknown_step(job_id: UUID, name: str, known: Sequence[str] | None = None) -> StepUnknown:
    """Return the refusal of a step that a job has not recorded.

    Args:
        job_id: the job.
        name: the step that was asked for.
        known: the names that it has recorded, in their order; None where they were not looked up.
    """
    cause = f"job {job_id} has recorded no step {name!r}"
    fix = f"python manage.py jobs retry {job_id}  # what is not recorded is done anyway, and what is, is kept"
    if known is None:
        return StepUnknown(cause, fix=fix)
    if not known:
        return StepUnknown(
            f"{cause}, nor any other", fix=f"python manage.py jobs retry {job_id}  # does it from its start"
        )
    listed = ", ".join(map(repr, known[-MAX_NAMED:]))
    more = f"its last {MAX_NAMED} of {len(known)} are" if len(known) > MAX_NAMED else "it has"
    cause = f"{cause}; {more} {listed}"
    if alike := difflib.get_close_matches(name, known, n=1):
        return StepUnknown(
            f"{cause}. Did you mean {alike[0]!r}?",
            fix=f"python manage.py jobs retry {job_id} --from-step {shlex.quote(alike[0])}",
        )
    return StepUnknown(cause, fix=fix)


def recorded_names(run_id: UUID) -> list[tuple[str, int, str]]:
    """Return name, place and kind of all that a run has recorded, in its order."""
    return list(_of(run_id).order_by("seq", "name").values_list("name", "seq", "kind"))


def _of(run_id: UUID) -> QuerySet[JobStep]:
    return JobStep.objects.using(queue_alias()).filter(run_id=run_id)


def _outputs(run_id: UUID, *, first: int) -> dict[str, tuple[Any, int]]:
    """Return outputs and their sizes from one place on; those that are too long are not read."""
    size = Coalesce(Length(Cast("output", TextField())), Value(0), output_field=IntegerField())
    short = Case(When(size__lte=MAX_OUTPUT, then=F("output")), default=None, output_field=JSONField())
    rows = _of(run_id).filter(seq__gte=first, output__isnull=False).annotate(size=size).annotate(short=short)
    return {name: (output, length) for name, output, length in rows.values_list("name", "short", "size")}
