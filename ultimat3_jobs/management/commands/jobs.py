"""`manage.py jobs`: repair the queue from the shell."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import JobsError, NotRetryable, UnknownJob
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import RetryVerdict


class Command(BaseCommand):
    help = "Repairs the queue: `jobs retry ID...` starts dead letters again."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        retry = actions.add_parser("retry", help="start dead letters again; attempts start over, history stays")
        retry.add_argument("ids", nargs="+", type=UUID, metavar="ID")
        retry.add_argument("--reason", default="", help="why, kept in the job's history")

    def handle(self, *args: Any, **options: Any) -> None:
        ids: list[UUID] = options["ids"]
        verdicts = get_driver().retry(ids, by="manage.py jobs", reason=options["reason"])
        refusals = []
        for job_id, verdict in zip(ids, verdicts, strict=True):
            if verdict is RetryVerdict.RETRIED:
                self.stdout.write(f"{job_id} retried")
            else:
                refusals.append(str(_refusal(job_id, verdict)))
        if refusals:
            raise CommandError("\n".join(refusals))


def _refusal(job_id: UUID, verdict: RetryVerdict) -> JobsError:
    again = f"python manage.py jobs retry {job_id}"
    if verdict is RetryVerdict.NOT_FOUND:
        return UnknownJob(f"there is no job {job_id}", fix="look the id up in the admin, under Background jobs")
    if verdict is RetryVerdict.KEY_HELD:
        return NotRetryable(
            f"job {job_id} gave up its key when it died, and another job has taken it since",
            fix=f"{again}  # once the job that holds the key has ended",
        )
    if verdict is RetryVerdict.SUPERSEDED:
        return NotRetryable(
            f"job {job_id} gave up its key when it died, and a newer dead letter of that key was retried with it",
            fix=f"{again}  # once the newer one has ended",
        )
    job = Job.objects.get(pk=job_id)
    return NotRetryable(
        f"job {job_id} is {job.state}; only dead and failed jobs can be retried",
        fix=f"enqueue {job.name} again" if job.state in ("done", "cancelled") else f"{again}  # once it is dead",
    )
