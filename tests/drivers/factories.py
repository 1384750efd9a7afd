"""Rows of the queue in states that no call brings about."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import factory
from django.db import connection
from django.db.models import Model

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


def add_copies(job: Job, count: int) -> list[UUID]:
    """Store copies of a job and of its steps, each with an id and a key of its own; return their ids.

    The database makes them: to have the factory or the ORM make thousands takes longer than all that a test does.
    """
    ids = [uuid7() for _ in range(count)]
    stored = [Job._meta.pk.get_db_prep_value(one, connection) for one in (job.id, *ids)]
    rest = _columns(Job, without={"id", "run_id", "idempotency_key"})
    of_steps = _columns(JobStep, without={"run_id"})
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO x_jobs (id, run_id, idempotency_key, {rest})"
            f" SELECT %s, %s, %s, {rest} FROM x_jobs WHERE id = %s",
            [(one, one, f"copied-{number}", stored[0]) for number, one in enumerate(stored[1:])],
        )
        cursor.execute(
            f"INSERT INTO x_job_steps (run_id, {of_steps})"
            f" SELECT copied.id, {of_steps} FROM x_job_steps"
            " CROSS JOIN (SELECT id FROM x_jobs WHERE idempotency_key LIKE 'copied-%%') AS copied WHERE run_id = %s",
            [stored[0]],
        )
    return ids


def _columns(model: type[Model], *, without: set[str]) -> str:
    names = [field.column for field in model._meta.concrete_fields if field.column]
    return ", ".join(f'"{name}"' for name in names if name not in without)
