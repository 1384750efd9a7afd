"""What lets a run record its steps: its claim, its limits, and the queue."""

from __future__ import annotations

from collections.abc import Callable

from ultimat3_jobs.context import Run, vitals_of
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.steps.steps import Steps


def open_steps(
    driver: Driver, job: ClaimedJob, run: Run, definition: JobDefinition, *, kind: Callable[..., Steps] = Steps
) -> Steps:
    """Return the steps of one attempt. Nothing is read before the body asks for one."""
    return kind(
        driver,
        job,
        run.cancelled,
        in_one=definition.atomic,
        event_poll=definition.event_poll,
        deadline=run.step_deadline,
        vitals=vitals_of(run),
    )
