"""Durable background jobs for Django.

A job's way through the package is seven hops, each in a file named after its verb:

    1 enqueue  -> 2 stage          -> 3 relay          -> 4 queue    -> 5 claim  -> 6 execute  -> 7 settle
    enqueue.py    outbox/stage.py     outbox/relay.py     drivers/      worker/claim.py, execute.py, settle.py
"""

from ultimat3_jobs.async_run import AsyncRun
from ultimat3_jobs.backfills.declare import Backfill, backfill
from ultimat3_jobs.context import Run, current_tenant
from ultimat3_jobs.control import Aborted
from ultimat3_jobs.enqueue import EnqueueResult
from ultimat3_jobs.error_registry import register_error_retry
from ultimat3_jobs.errors import EventTimeout, JobsError, JobTimeout
from ultimat3_jobs.events import apublish_event, publish_event
from ultimat3_jobs.job import Job, JobCall, job
from ultimat3_jobs.keys import NO_TENANT
from ultimat3_jobs.retry import Retry
from ultimat3_jobs.steps.waits import ReceivedEvent

__all__ = [
    "NO_TENANT",
    "Aborted",
    "AsyncRun",
    "Backfill",
    "EnqueueResult",
    "EventTimeout",
    "Job",
    "JobCall",
    "JobTimeout",
    "JobsError",
    "ReceivedEvent",
    "Retry",
    "Run",
    "apublish_event",
    "backfill",
    "current_tenant",
    "job",
    "publish_event",
    "register_error_retry",
]
__version__ = "0.1.0.dev0"
