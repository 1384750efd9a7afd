"""Counts by the minute: charts and metrics stay right after finished jobs are pruned."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from ultimat3_jobs.fields import InstantField


class JobStat(models.Model):
    """What one minute saw of one job in one queue."""

    id = models.BigAutoField(primary_key=True)
    minute = InstantField()
    queue = models.CharField(max_length=100)
    name = models.CharField(max_length=200)
    outcome = models.CharField(max_length=16)  # done, failed, dead, cancelled; or "depth" for a sample
    count = models.BigIntegerField(db_default=0)
    wait_histogram = models.JSONField(null=True)
    run_histogram = models.JSONField(null=True)
    depth = models.JSONField(null=True)

    class Meta:
        db_table = "x_job_stats"
        constraints: ClassVar = [
            # Where the counts of a minute are added up.
            models.UniqueConstraint(fields=["minute", "queue", "name", "outcome"], name="x_job_stats_cell"),
        ]

    def __str__(self) -> str:
        return f"{self.minute} {self.queue} {self.name} {self.outcome}"
