"""Rows of the queue in states that no call brings about."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import factory

from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Job, JobStep

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class JobFactory(factory.django.DjangoModelFactory[Job]):
    """A job that was due and whose lease lapsed long ago, one of three attempts used: any statement may want it."""

    class Meta:
        model = Job

    id = factory.LazyFunction(uuid7)
    run_id = factory.SelfAttribute("id")
    name = "shop.ship"
    queue = "default"
    input = factory.LazyAttribute(lambda job: {"key": job.idempotency_key})
    fingerprint = "f" * 64
    idempotency_key = factory.Sequence(lambda number: f"made-{number}")
    tenant_id = "acme"
    state = "ready"
    attempt = 1
    max_attempts = 3
    run_at = LONG_AGO
    visible_at = LONG_AGO
    claim_token = factory.LazyFunction(uuid4)
    created_at = LONG_AGO
    updated_at = LONG_AGO
    started_at = LONG_AGO


def add_steps(job: Job, *names: str) -> None:
    """Let a job have recorded these steps, in this order."""
    for seq, name in enumerate(names, 1):
        JobStep.objects.create(run_id=job.run_id, name=name, seq=seq, kind="step", state="done", attempt=1, output=name)
