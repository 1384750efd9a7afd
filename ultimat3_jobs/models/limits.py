"""Leases that are rows: slots of fleet-wide limits, workers alive; and what is paused."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from ultimat3_jobs.fields import InstantField
from ultimat3_jobs.ids import uuid7


class JobLease(models.Model):
    """One slot of a limit, or one worker alive. Rows are reused; expiry has no index: renewals stay cheap."""

    pk = models.CompositePrimaryKey("lease_key", "slot")
    lease_key = models.CharField(max_length=255)
    slot = models.IntegerField()
    kind = models.CharField(max_length=16)  # concurrency, rate, worker, table, backfill
    token = models.UUIDField(null=True)  # the claim that owns it: the fence of renewal and release
    holder = models.CharField(max_length=64, db_default="")
    granted_at = InstantField(null=True)
    expires_at = InstantField(null=True)
    data = models.JSONField(null=True)  # of a worker: what it serves

    class Meta:
        db_table = "x_job_leases"
        indexes: ClassVar = [
            # Workers among the slots of limits. Not by expiry, which each renewal moves.
            models.Index(fields=["lease_key"], condition=models.Q(kind="worker"), name="x_job_leases_workers"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.lease_key}[{self.slot}]"


class JobPause(models.Model):
    """A queue, a job name or a task that a person has paused."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=16)  # queue, job, task
    name = models.CharField(max_length=200)
    by = models.CharField(max_length=255, db_default="")
    reason = models.CharField(max_length=255, db_default="")
    at = InstantField()
    until = InstantField(null=True)

    class Meta:
        db_table = "x_job_pauses"
        constraints: ClassVar = [
            # One pause a thing: pausing twice changes who and why, and one resume ends it.
            models.UniqueConstraint(fields=["kind", "name"], name="x_job_pauses_one"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
