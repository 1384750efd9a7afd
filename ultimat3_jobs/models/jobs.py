"""Jobs and the history of their failures."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce

from ultimat3_jobs.fields import InstantField
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.states import LIVE, RETRYABLE, WAITING, State


def _choices() -> list[tuple[str, str]]:
    return [(state.value, state.value) for state in State]


class Job(models.Model):
    """One job: the row is its queue entry, its lease, its outcome and its dead letter.

    Written by the named statements of the database driver alone; everything else reads.
    """

    # What it is. Written by the enqueue, read by the claim.
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run_id = models.UUIDField()  # stable across retries and drivers; equal to the id here, so it needs no index
    name = models.CharField(max_length=200)  # read by the claim, the key's holder, look-ups
    queue = models.CharField(max_length=100)  # read by the claim, the sweep, the depth
    input = models.JSONField(null=True)  # read by the claim; emptied when only the key is still of use
    fingerprint = models.CharField(max_length=64)  # read by the key's holder: the same input, or another
    idempotency_key = models.CharField(max_length=255)  # read by the key's holder
    key_until = InstantField(null=True)  # read by the key's holder: a done row holds its key until then
    tenant_id = models.CharField(max_length=128, null=True)  # noqa: DJ001 - NULL is NO_TENANT; read by the claim
    priority = models.SmallIntegerField(db_default=0)  # read by the claim's order
    origin = models.JSONField(null=True)  # read by inspection: task and occurrence, backfill, staged id
    enqueued_by = models.CharField(max_length=255, db_default="")  # read by the run and the audit
    traceparent = models.CharField(max_length=64, db_default="")  # read by tracing
    lane = models.CharField(max_length=64, db_default="")  # read by the claim of limited jobs: their shared limits
    limit_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - NULL is no limit; read by the grant
    rate_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - NULL is no rate; read by the grant

    # Where it is.
    state = models.CharField(max_length=16, choices=_choices())  # read by every statement
    stop = models.CharField(max_length=32, db_default="")  # read by inspection: why it ended without being done
    attempt = models.IntegerField(db_default=0)  # read by the claim, the sweep: starts so far
    max_attempts = models.IntegerField()  # read by the sweep, the retry decision
    run_at = InstantField()  # read by promotion and the claim's order: when it is due
    rerun = models.JSONField(null=True)  # read by the settlement: the enqueue that follows when it ends
    lapses = models.IntegerField(db_default=0)  # read by inspection and the claim of lapsed rows
    parks = models.IntegerField(db_default=0)  # read by the worker: how long to park an unknown name
    park_reason = models.CharField(max_length=200, db_default="")  # read by inspection: why it is suspended
    cancel_requested_at = InstantField(null=True)  # read by inspection
    cancel_requested_by = models.CharField(max_length=255, db_default="")  # read by inspection
    cancel_reason = models.CharField(max_length=255, db_default="")  # read by inspection

    # Who has it. The token is the fence of every write.
    visible_at = InstantField(null=True)  # read by the sweep: when the lease ends; not indexed, see below
    claimed_by = models.CharField(max_length=64, db_default="")  # read by inspection and the sweep's report
    claim_token = models.UUIDField(null=True)  # read by every fence; kept by who ended it, taken by a sweep

    # What it waits for.
    wait_event = models.CharField(max_length=200, db_default="")  # read by the publication of events
    wait_match = models.CharField(max_length=255, db_default="")  # read by the publication of events
    wait_until = InstantField(null=True)  # read by promotion: its time-out
    wait_poll = models.FloatField(null=True)  # seconds; read by promotion: when to look for the event again

    # How it went.
    last_error = models.TextField(db_default="")  # read by inspection: bounded, ends with the verdict
    cause = models.CharField(max_length=64, db_default="")  # read by inspection: groups like failures
    error_class = models.CharField(max_length=255, db_default="")  # read by inspection
    error_place = models.CharField(max_length=255, db_default="")  # read by inspection
    progress = models.JSONField(null=True)  # read by inspection
    result = models.JSONField(null=True)  # read by inspection
    created_at = InstantField()  # read by inspection and the age of the oldest
    updated_at = InstantField()  # read by inspection
    started_at = InstantField(null=True)  # read by inspection; by the sweep: NULL is a last attempt not begun
    finished_at = InstantField(null=True)  # read by inspection and pruning

    class Meta:
        db_table = "x_jobs"
        ordering: ClassVar = ["-id"]
        # Of the admin's actions: to look is not to act.
        permissions: ClassVar = [("retry_job", "Can retry dead jobs"), ("cancel_job", "Can cancel jobs")]
        constraints: ClassVar = [
            # One row holds a key in its namespace. Conflict target of the enqueue, look-up of the holder: both spell
            # this expression and this predicate, and a test pins the three together.
            models.UniqueConstraint(
                F("name"),
                Coalesce("tenant_id", Value("")),
                F("idempotency_key"),
                condition=Q(state__in=[state.value for state in LIVE]) | Q(key_until__isnull=False),
                name="x_jobs_key",
            ),
        ]
        indexes: ClassVar = [
            # The claim: the first rows of each queue in order. Finished and waiting rows are not in it.
            models.Index(
                F("queue"),
                F("priority").desc(),
                F("run_at"),
                F("id"),
                condition=Q(state=State.READY.value),
                name="x_jobs_ready",
            ),
            # The promotion and the depth: what falls due first in each queue. The state is there to be counted.
            models.Index(
                fields=["queue", "run_at", "state"],
                condition=Q(state__in=[s.value for s in WAITING]),
                name="x_jobs_waiting",
            ),
            # The publication of an event: who waits for it. Rows that merely sleep are not in it.
            models.Index(
                fields=["wait_event", "wait_match"],
                condition=Q(state=State.SUSPENDED.value, wait_event__gt=""),
                name="x_jobs_awaiting",
            ),
            # The sweep and the depth. Not on visible_at: each renewal would then rewrite every index of its row.
            models.Index(fields=["queue"], condition=Q(state=State.RUNNING.value), name="x_jobs_running"),
            # Dead letters by queue, newest last.
            models.Index(
                fields=["queue", "finished_at"],
                condition=Q(state__in=[s.value for s in RETRYABLE]),
                name="x_jobs_dead",
            ),
            # Look-ups by people, newest first. `finished_at` is always there on these rows; that it is asked for keeps
            # the statements of the loops, which do not, from taking one of these indexes for their own.
            models.Index(
                fields=["id"],
                condition=Q(state__in=[s.value for s in RETRYABLE], finished_at__isnull=False),
                name="x_jobs_dead_newest",
            ),
            # Those of one cause. The state is left out, or the planner might take an index of dead letters and sort it.
            models.Index(
                fields=["cause", "id"], condition=Q(finished_at__isnull=False, cause__gt=""), name="x_jobs_ended_cause"
            ),
            # What became of a name's, a tenant's, a key's work. Live rows are left out: each claim would write them.
            models.Index(
                fields=["name", "state", "id"], condition=Q(finished_at__isnull=False), name="x_jobs_final_name"
            ),
            models.Index(
                fields=["tenant_id", "state", "id"],
                condition=Q(finished_at__isnull=False, tenant_id__isnull=False),
                name="x_jobs_final_tenant",
            ),
            models.Index(
                fields=["idempotency_key", "state", "id"],
                condition=Q(finished_at__isnull=False),
                name="x_jobs_final_key",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.id} ({self.state})"


class JobAttempt(models.Model):
    """A failed attempt, a retry or a cancellation. A plain success has no row."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)  # attempt numbers repeat after a retry
    job_id = models.UUIDField()  # read by inspection; no foreign key: the queue never waits for its history
    kind = models.CharField(max_length=16)  # failure, retry, cancel; of a backfill: pause, resume, pace
    attempt = models.IntegerField()
    worker = models.CharField(max_length=64, db_default="")
    release = models.CharField(max_length=100, db_default="")  # read by inspection: first and last seen in
    error_class = models.CharField(max_length=255, db_default="")
    message = models.TextField(db_default="")
    traceback = models.TextField(db_default="")
    rule = models.CharField(max_length=255, db_default="")  # what classified the error; the step a retry began from
    decision = models.CharField(max_length=32, db_default="")  # what was done about it
    by = models.CharField(max_length=255, db_default="")  # who retried or cancelled
    reason = models.CharField(max_length=255, db_default="")
    started_at = InstantField(null=True)
    finished_at = InstantField(null=True)
    next_run_at = InstantField(null=True)  # read by inspection: when the next attempt is due

    class Meta:
        db_table = "x_job_attempts"
        ordering: ClassVar = ["id"]
        # The history of one job, in its order.
        indexes: ClassVar = [models.Index(fields=["job_id", "id"], name="x_job_attempts_job")]

    def __str__(self) -> str:
        return f"{self.kind} of attempt {self.attempt} of {self.job_id}"
