"""The statements of docs/deploying.md that empty tables: run as they stand, they leave nothing of what they are for."""

from __future__ import annotations

import re
from uuid import UUID, uuid4

import pytest
from django.apps import apps
from django.db import connection
from django.utils import timezone

from tests.backfills.ledger_rows import ledger_row
from tests.processes import ROOT_DIRECTORY
from ultimat3_jobs.models import Backfill, Job, JobAttempt, JobEvent, JobLease, JobStep, OutboxEntry

pytestmark = pytest.mark.django_db

UNUSED = {"x_job_pauses", "x_job_stats", "x_scheduler_leader", "x_scheduler_runs", "x_scheduler_state"}
"""Tables that nothing writes to."""


def statements(marked: str) -> list[str]:
    """Return the statements of the block of SQL that holds a text, but for those around a transaction."""
    blocks = re.findall(r"```sql\n(.*?)```", (ROOT_DIRECTORY / "docs" / "deploying.md").read_text(), re.DOTALL)
    (block,) = (one for one in blocks if marked in one)
    found = re.sub(r"--.*", "", block).split(";")
    return [one.strip() for one in found if one.strip() not in ("", "BEGIN", "COMMIT")]


def execute(marked: str) -> None:
    with connection.cursor() as cursor:
        for one in statements(marked):
            cursor.execute(one)


def a_job(state: str) -> UUID:
    """Make a job with a step and an attempt."""
    now, run_id = timezone.now(), uuid4()
    fields = {"name": "n", "queue": "q", "fingerprint": "f", "idempotency_key": str(run_id), "max_attempts": 1}
    Job.objects.create(id=run_id, run_id=run_id, state=state, run_at=now, created_at=now, updated_at=now, **fields)
    JobStep.objects.create(run_id=run_id, name="one", seq=1, kind="step", state="done", output={"secret": 1})
    JobAttempt.objects.create(job_id=run_id, kind="failure", attempt=1)
    return run_id


def test_a_copy_keeps_nothing_but_what_was_swept() -> None:
    now = timezone.now()
    a_job("ready")
    OutboxEntry.objects.create(name="n", run_at=now, staged_at=now)
    JobEvent.objects.create(staged_id=uuid4(), name="e", published_at=now, expires_at=now)
    JobLease.objects.create(lease_key="worker:1", slot=0, kind="worker")
    ledger_row("swept", outcome="completed")
    ledger_row("begun")

    execute("x_backfills")

    left = {
        model._meta.db_table
        for model in apps.get_app_config("ultimat3_jobs").get_models()
        if model._base_manager.exists()
    }
    assert left == {"x_backfills"}
    assert [one.name for one in Backfill.objects.all()] == ["swept"]


def test_a_copy_is_told_of_every_table_that_is_written_to() -> None:
    ours = {model._meta.db_table for model in apps.get_app_config("ultimat3_jobs").get_models()}

    assert set(re.findall(r"\bx_\w+", " ".join(statements("x_backfills")))) == ours - UNUSED


def test_what_finished_jobs_leave_behind_goes_and_what_others_have_stays() -> None:
    gone, kept = a_job("done"), a_job("suspended")
    Job.objects.filter(pk=gone).delete()
    assert (JobStep.objects.count(), JobAttempt.objects.count()) == (2, 2), "no foreign key takes them along"

    execute("NOT EXISTS")

    assert [one.run_id for one in JobStep.objects.all()] == [kept]
    assert [one.job_id for one in JobAttempt.objects.all()] == [kept]
