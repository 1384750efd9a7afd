"""The tables. Each module holds those of one concern, with what reads a column written beside it."""

from ultimat3_jobs.models.backfills import Backfill
from ultimat3_jobs.models.jobs import Job, JobAttempt
from ultimat3_jobs.models.limits import JobLease, JobPause
from ultimat3_jobs.models.outbox import OutboxEntry
from ultimat3_jobs.models.scheduler import SchedulerLeader, SchedulerRun, SchedulerState
from ultimat3_jobs.models.stats import JobStat
from ultimat3_jobs.models.steps import JobEvent, JobStep

__all__ = [
    "Backfill",
    "Job",
    "JobAttempt",
    "JobEvent",
    "JobLease",
    "JobPause",
    "JobStat",
    "JobStep",
    "OutboxEntry",
    "SchedulerLeader",
    "SchedulerRun",
    "SchedulerState",
]
