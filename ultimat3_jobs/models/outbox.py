"""The outbox: work staged in its caller's transaction."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from ultimat3_jobs.fields import InstantField
from ultimat3_jobs.ids import uuid7


class OutboxEntry(models.Model):
    """One enqueue, or one event, committed together with what caused it.

    A row is complete: the relay never asks the code what a name means.
    """

    class Kind(models.TextChoices):
        """What is published."""

        JOB = "job"
        EVENT = "event"

    class Outcome(models.TextChoices):
        """What the relay made of it. A row without an outcome waits for the relay."""

        PUBLISHED = "published"  # it became the job `job_id`
        DEDUPED = "deduped"  # the job `job_id` already held its key
        SET_ASIDE = "set_aside"  # it cannot be published; `error` says why

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)  # becomes the job's id
    kind = models.CharField(max_length=16, choices=Kind.choices, db_default=Kind.JOB)

    # All that an enqueue carries; read by the relay.
    name = models.CharField(max_length=200)  # of the job, or of the event
    queue = models.CharField(max_length=100, db_default="")
    input = models.JSONField(null=True)  # or an event's payload
    fingerprint = models.CharField(max_length=64, db_default="")
    idempotency_key = models.CharField(max_length=255, db_default="")
    tenant_id = models.CharField(max_length=128, null=True)  # noqa: DJ001 - NULL is NO_TENANT
    max_attempts = models.IntegerField(db_default=1)
    priority = models.SmallIntegerField(db_default=0)
    run_at = InstantField()
    dedupe_for = models.FloatField(null=True)  # seconds from staged_at
    while_running = models.CharField(max_length=8, db_default="join")
    on_key_reuse = models.CharField(max_length=8, db_default="error")
    lane = models.CharField(max_length=64, db_default="")
    limit_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - NULL is no limit
    rate_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - NULL is no rate
    origin = models.JSONField(null=True)
    enqueued_by = models.CharField(max_length=255, db_default="")
    traceparent = models.CharField(max_length=64, db_default="")
    match = models.CharField(max_length=255, db_default="")  # of an event: what a waiting run must ask for
    expires_at = InstantField(null=True)  # of an event

    # What became of it.
    staged_at = InstantField()  # read by the relay's order
    claimed_at = InstantField(null=True)  # read by relays that publish to another database: their lease
    claimed_by = models.CharField(max_length=64, db_default="")
    claim_token = models.UUIDField(null=True)
    published_at = InstantField(null=True)  # read by pruning
    outcome = models.CharField(max_length=16, choices=Outcome.choices, null=True)  # noqa: DJ001 - NULL is not yet
    job_id = models.UUIDField(null=True)  # read by look-ups by the staged id
    attempts = models.IntegerField(db_default=0)
    error = models.TextField(db_default="")

    class Meta:
        db_table = "x_outbox"
        verbose_name_plural = "outbox entries"
        permissions: ClassVar = [("retry_outboxentry", "Can retry outbox entries that were set aside")]
        ordering: ClassVar = ["-staged_at", "-id"]
        indexes: ClassVar = [
            # The relay: what waits, in order. What was published leaves it.
            models.Index(fields=["staged_at", "id"], condition=Q(outcome__isnull=True), name="x_outbox_pending"),
            # What people must look at, newest first. That a name is asked for keeps other statements off it.
            models.Index(fields=["id"], condition=Q(outcome="set_aside", name__gt=""), name="x_outbox_set_aside"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.id} ({self.outcome or 'pending'})"
