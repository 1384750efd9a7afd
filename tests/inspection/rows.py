"""Rows as an incident leaves them, written straight into the tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Job, JobAttempt, JobEvent, JobLease, JobStep, OutboxEntry

MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)
LATER = MOMENT + timedelta(days=36_500)
"""Long after the tests: nothing is due then."""


def add_job(state: str = "dead", *, number: int = 0, **columns: Any) -> Job:
    """Insert a job; the newer call has the higher id."""
    row = uuid7()
    final = state in ("dead", "failed", "done", "cancelled")
    values = {
        "id": row,
        "run_id": row,
        "name": "shop.charge",
        "queue": "default",
        "input": {"order": number},
        "fingerprint": "",
        "idempotency_key": f"order-{number}-{row}",
        "tenant_id": "acme",
        "state": state,
        "attempt": 1,
        "max_attempts": 3,
        "run_at": MOMENT,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "finished_at": MOMENT if final else None,
        "started_at": MOMENT if state == "running" else None,
    }
    if state in ("dead", "failed"):
        values |= {"stop": "attempts-exhausted", "error_class": "ValueError", "cause": "c" * 64}
        values["last_error"] = "ValueError: declined\nverdict: dead (attempts-exhausted): attempt 3 of 3 was the last"
    return Job.objects.create(**values | columns)


def add_attempt(job: Job, kind: str = "failure", **columns: Any) -> JobAttempt:
    """Insert a row of a job's history."""
    values = {"attempt": 1, "error_class": "ValueError", "message": "ValueError: declined", "finished_at": MOMENT}
    return JobAttempt.objects.create(job_id=job.id, kind=kind, **values | columns)


def add_staged(outcome: str | None = "set_aside", **columns: Any) -> OutboxEntry:
    """Insert a row of the outbox."""
    values = {
        "name": "shop.charge",
        "queue": "default",
        "idempotency_key": "order",
        "tenant_id": "acme",
        "input": {"order": 1},
        "run_at": MOMENT - timedelta(days=1),
        "staged_at": MOMENT,
        "outcome": outcome,
        "error": "its key is held by another input" if outcome == "set_aside" else "",
    }
    return OutboxEntry.objects.create(**values | columns)


def add_step(job: Job, name: str, seq: int, **columns: Any) -> JobStep:
    """Insert a recorded step of a job."""
    values = {"kind": "step", "state": "done", "attempt": 1, "output": f"of {name}"}
    if columns.get("kind", "step") == "step":
        values |= {"started_at": MOMENT, "finished_at": MOMENT + timedelta(milliseconds=1_500)}
    else:
        values |= {"output": None, "started_at": MOMENT}
    return JobStep.objects.create(run_id=job.run_id, name=name, seq=seq, **values | columns)


def add_event(name: str = "review.done", **columns: Any) -> JobEvent:
    """Insert a published event; the newer call has the higher number."""
    values = {"staged_id": uuid7(), "published_at": MOMENT, "expires_at": MOMENT + timedelta(days=7)}
    return JobEvent.objects.create(name=name, **values | columns)


def add_worker(*queues: str) -> JobLease:
    """Have a worker say that it is alive and serves these queues; all of them where none is named."""
    holder = str(uuid7())
    times = {"granted_at": MOMENT, "expires_at": LATER}
    return JobLease.objects.create(
        lease_key=f"worker:{holder}", slot=0, kind="worker", holder=holder, data={"only": queues}, **times
    )
