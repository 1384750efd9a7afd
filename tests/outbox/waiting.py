"""Runs that wait for events, as their bodies and settlements make them, and events as the tests look at them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.outbox.support import note
from ultimat3_jobs import publish_event
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job, JobEvent
from ultimat3_jobs.records import Claim, ClaimedJob, Nack, QueueSelection, Suspension, WaitAnswer
from ultimat3_jobs.testing.conformance.events import wait
from ultimat3_jobs.testing.conformance.harness import Harness

POLL = 3_600.0
_HOUR = timedelta(hours=1)


class Queue(Harness):
    """The process's queue, for the short words of the conformance suite."""

    def driver(self) -> Any:
        return get_driver()

    def advance(self, seconds: float) -> None:
        raise NotImplementedError


QUEUE = Queue()


def begun(label: str = "a") -> ClaimedJob:
    """Queue one job and claim it."""
    note.enqueue(label=label)
    return claimed()


def claimed() -> ClaimedJob:
    """Claim the only job that is due."""
    (job,) = get_driver().claim(worker="w", limit=2, lease=_HOUR, queues=QueueSelection())
    return job


def asks(job: ClaimedJob, match: str = "") -> WaitAnswer:
    """Wait for "paid", as the job's body does; return how that stands."""
    answer = wait(QUEUE, job, match=match)
    assert answer is not None
    return answer


def suspend(claim: Claim, match: str = "") -> None:
    """Let the claim go until "paid", as a settlement does, without its second look."""
    suspension = Suspension(reason="waits for paid", event="paid", match=match, poll=POLL)
    assert get_driver().nack([Nack.suspend(claim, suspension)]) == [True]


def parked(label: str = "a", match: str = "") -> ClaimedJob:
    """Queue a job whose run waits for "paid" in vain."""
    job = begun(label)
    assert asks(job, match).output is None
    suspend(job.claim, match)
    return job


def publish(*payloads: object, **options: Any) -> None:
    """Publish an event "paid" for each payload."""
    for payload in payloads:
        publish_event("paid", payload, **options)


def payloads(alias: str = "default") -> list[Any]:
    """Return the payloads of the stored events, in their order."""
    return list(JobEvent.objects.using(alias).order_by("id").values_list("payload", flat=True))


def states(alias: str = "default") -> dict[str, str]:
    """Return the state of every job by its label."""
    return {data["label"]: state for data, state in Job.objects.using(alias).values_list("input", "state")}
