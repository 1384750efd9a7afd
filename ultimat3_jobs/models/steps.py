"""What a run has recorded, and the events it may wait for."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from ultimat3_jobs.fields import InstantField


class JobStep(models.Model):
    """One recorded step of a run: its result is stored before the step returns."""

    pk = models.CompositePrimaryKey("run_id", "name")  # a step's name is unique in its run; one read has them all
    run_id = models.UUIDField()
    name = models.CharField(max_length=200)
    seq = models.IntegerField()  # read by the replay and the time line: the order of recording
    kind = models.CharField(max_length=16)  # a StepKind
    state = models.CharField(max_length=16)  # a StepState
    attempt = models.IntegerField(db_default=0)  # the job's attempt that recorded it
    output = models.JSONField(null=True)  # read by the replay
    event_id = models.BigIntegerField(null=True)  # read by later waits: a run gets each event once
    error = models.TextField(db_default="")
    until = InstantField(null=True)  # read by the replay: when a sleep or a wait is over
    started_at = InstantField(null=True)
    finished_at = InstantField(null=True)

    class Meta:
        db_table = "x_job_steps"
        # The events that a run has had, whatever number of steps it has.
        indexes: ClassVar = [
            models.Index(fields=["run_id", "event_id"], condition=Q(event_id__isnull=False), name="x_job_steps_events")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of {self.run_id}"


class JobEvent(models.Model):
    """A published event, kept until it expires so that a run which waits later still gets it."""

    id = models.BigAutoField(primary_key=True)  # the order of publication
    staged_id = models.UUIDField(unique=True)  # of the outbox row: a second publication changes nothing
    name = models.CharField(max_length=200)
    match = models.CharField(max_length=255, db_default="")
    payload = models.JSONField(null=True)
    published_at = InstantField()
    expires_at = InstantField()

    class Meta:
        db_table = "x_job_events"
        ordering: ClassVar = ["id"]
        indexes: ClassVar = [
            # What a run waits for: the first of a name, or of a name and a match, since the run was enqueued.
            models.Index(fields=["name", "published_at", "id"], name="x_job_events_name"),
            models.Index(fields=["name", "match", "published_at", "id"], name="x_job_events_match"),
            # The pruning.
            models.Index(fields=["expires_at"], name="x_job_events_expiry"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.id}"
