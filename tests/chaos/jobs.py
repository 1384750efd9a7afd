"""The jobs of the chaos run: each leaves an effect that can be counted, and is there for long enough to be hit."""

from __future__ import annotations

import os
import time

from django.db import connection

from tests.app.models import Effect
from tests.chaos.marks import MARKS
from ultimat3_jobs import NO_TENANT, Retry, Run, job

# A kill counts as a start: there must be more starts than kills can take, and the waits between them must be short.
OFTEN = Retry(attempts=1_000, delay="50ms", max_delay="200ms")
LASTS = 0.03  # seconds
DOOMED_ATTEMPTS = 3
ATOMIC_STEP = "atomic step"  # the detail of their effects
ATOMIC_STEPS = 2  # of a job with steps


def _effect(run: Run, label: str, detail: str) -> None:
    Effect.objects.create(label=label, attempt=run.attempt, pid=os.getpid(), detail=detail)


@job(name="chaos.plain", idempotency_key="{label}", tenant=NO_TENANT, retry=OFTEN)
def plain(run: Run, label: str) -> None:
    """Write a row in a transaction of its own: at least once."""
    with MARKS.inside("body"):
        time.sleep(LASTS)
        _effect(run, label, "plain")


@job(name="chaos.flaky", idempotency_key="{label}", tenant=NO_TENANT, retry=OFTEN)
def flaky(run: Run, label: str, fails: int) -> None:
    """Fail so many times, then write a row."""
    with MARKS.inside("body"):
        time.sleep(LASTS / 3)
        if run.attempt <= fails:
            raise LookupError(f"attempt {run.attempt} fails")
        _effect(run, label, "flaky")


@job(
    name="chaos.doomed",
    idempotency_key="{label}",
    tenant=NO_TENANT,
    retry=Retry(attempts=DOOMED_ATTEMPTS, delay="50ms"),
)
def doomed(run: Run, label: str) -> None:
    """Fail to the end."""
    with MARKS.inside("body"):
        time.sleep(LASTS / 3)
        raise LookupError("always")


@job(name="chaos.atomic", idempotency_key="{label}", tenant=NO_TENANT, retry=OFTEN, atomic=True)
def atomic(run: Run, label: str) -> None:
    """Write a row in the transaction that ends the job: exactly once."""
    with MARKS.inside("body"):
        _effect(run, label, "atomic")
        # On SQLite it holds the only write lock.
        time.sleep(LASTS if connection.vendor == "postgresql" else LASTS / 10)


@job(name="chaos.steps", idempotency_key="{label}", tenant=NO_TENANT, retry=OFTEN)
def steps(run: Run, label: str) -> None:
    """Write rows in steps: atomic ones exactly once, a plain one at least once, with a sleep between them."""

    def write(detail: str) -> None:
        with MARKS.inside("body"):
            _effect(run, label, detail)
            time.sleep(LASTS / 3 if connection.vendor == "postgresql" else LASTS / 10)

    run.step("first", write, ATOMIC_STEP, atomic=True)
    run.step("plain", write, "plain step")
    run.sleep("50ms")
    run.step("last", write, ATOMIC_STEP, atomic=True)
