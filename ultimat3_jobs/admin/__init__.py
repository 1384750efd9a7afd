"""The admin: dead letters first, read-only; retry and cancel as actions; never a query that grows with a table."""

from __future__ import annotations

from django.contrib import admin

from ultimat3_jobs.admin.backfills import BackfillAdmin
from ultimat3_jobs.admin.events import JobEventAdmin
from ultimat3_jobs.admin.jobs import JobAdmin
from ultimat3_jobs.admin.outbox import OutboxEntryAdmin
from ultimat3_jobs.models import Backfill, Job, JobEvent, OutboxEntry

admin.site.register(Job, JobAdmin)
admin.site.register(OutboxEntry, OutboxEntryAdmin)
admin.site.register(JobEvent, JobEventAdmin)
admin.site.register(Backfill, BackfillAdmin)
