"""The ledger of backfills: a report, never the place to resume from."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from ultimat3_jobs.fields import InstantField


class Backfill(models.Model):
    """One pass of a backfill. Whether it is live is its job's key's to say."""

    run_id = models.UUIDField(primary_key=True)  # of the job that sweeps
    name = models.CharField(max_length=200)
    table = models.CharField(max_length=255)
    bound = models.JSONField(null=True)  # the last key of the pass, fixed at its start
    batch = models.IntegerField()
    rate = models.FloatField(null=True)  # batches a second
    window_start = models.TimeField(null=True)  # hours in which it may sweep
    window_end = models.TimeField(null=True)
    processed = models.BigIntegerField(db_default=0)
    began_with = models.BigIntegerField(db_default=0)  # of `processed`, what was there when its present run began
    total = models.BigIntegerField(null=True)
    estimated = models.BooleanField(db_default=False)  # whether `total` is an estimate
    environment = models.CharField(max_length=100, db_default="")
    requested_by = models.CharField(max_length=255, db_default="")
    forced = models.BooleanField(db_default=False)
    checksum = models.CharField(max_length=64, db_default="")  # of the declaration that swept
    release = models.CharField(max_length=100, db_default="")
    outcome = models.CharField(max_length=16, db_default="")  # completed, or blank: how else a pass ended, its job says
    paused_at = InstantField(null=True)
    paused_by = models.CharField(max_length=255, db_default="")
    pause_reason = models.CharField(max_length=255, db_default="")
    created_at = InstantField()
    updated_at = InstantField()
    finished_at = InstantField(null=True)

    class Meta:
        db_table = "x_backfills"
        ordering: ClassVar = ["-created_at"]
        verbose_name = "pass of a backfill"
        verbose_name_plural = "backfills"
        # Of the admin's actions: to look is not to act.
        permissions: ClassVar = [
            ("pause_backfill", "Can pause, resume and pace passes of backfills"),
            ("start_backfill", "Can start passes of backfills"),
        ]
        # What became of a name, the newest pass first: the gate, the command and a migration ask for it.
        indexes: ClassVar = [models.Index(fields=["name", "-created_at"], name="x_backfills_name")]

    def __str__(self) -> str:
        return f"{self.name} {self.run_id}"
