"""Cron tasks: how far each has fired, who leads, what happened."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from ultimat3_jobs.fields import InstantField
from ultimat3_jobs.ids import uuid7


class SchedulerState(models.Model):
    """How far one task has fired. The watermark moves in the transaction that stages the task's jobs."""

    task = models.CharField(max_length=200, primary_key=True)
    cron = models.CharField(max_length=200)  # a change of it anchors the task anew
    zone = models.CharField(max_length=64)
    anchored_at = InstantField()  # no occurrence before it exists
    watermark = InstantField()  # the latest occurrence that was decided
    error = models.TextField(db_default="")  # why the task is flagged
    failures = models.IntegerField(db_default=0)
    retry_at = InstantField(null=True)  # when a failing task is tried again

    class Meta:
        db_table = "x_scheduler_state"

    def __str__(self) -> str:
        return self.task


class SchedulerLeader(models.Model):
    """Who leads, for which term."""

    name = models.CharField(max_length=64, primary_key=True)
    holder = models.CharField(max_length=64, db_default="")
    since = InstantField(null=True)
    expires_at = InstantField(null=True)

    class Meta:
        db_table = "x_scheduler_leader"

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}"


class SchedulerRun(models.Model):
    """One occurrence of a task: fired, skipped or failed. It outlives the jobs it made."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    task = models.CharField(max_length=200)
    occurrence = InstantField()
    outcome = models.CharField(max_length=16)  # fired, skipped, failed
    by = models.CharField(max_length=64, db_default="")
    error = models.TextField(db_default="")
    created_at = InstantField()

    class Meta:
        db_table = "x_scheduler_runs"
        ordering: ClassVar = ["-occurrence"]
        constraints: ClassVar = [
            # An occurrence is decided once, also after its jobs are pruned.
            models.UniqueConstraint(fields=["task", "occurrence"], name="x_scheduler_runs_once"),
        ]

    def __str__(self) -> str:
        return f"{self.task} at {self.occurrence}"
