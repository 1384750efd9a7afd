"""A worker that lost its lease changes nothing: not by a late write, and not after it was stopped and continued."""

from __future__ import annotations

import json
import signal
from datetime import timedelta

import pytest

from tests.app.jobs import once, waiting
from tests.processes import Processes, wait_for
from tests.scenarios.effects import SHORT, ends, let_go, starts, wait_for_starts
from tests.working import age, history, row
from ultimat3_jobs import EnqueueResult
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobAttempt
from ultimat3_jobs.records import Ack, Claim, Failure, Nack, QueueSelection
from ultimat3_jobs.states import Stop

pytestmark = pytest.mark.usefixtures("queue")

FAILURE = Failure("shop.Error", "shop.jobs.ship", "c" * 64, "failed")

# A worker's process that claims, is left waiting by its test, and then writes late with the tokens it was given.
LATE = """
import json
from datetime import timedelta
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.records import Ack, Failure, Nack, QueueSelection
from ultimat3_jobs.states import Stop
from tests.app.models import Effect
from tests.processes import wait_for

driver = get_driver()
failure = Failure("shop.LateError", "shop.jobs.late", "c" * 64, "late")
jobs = driver.claim(worker="late", limit=4, lease=timedelta(seconds=30), queues=QueueSelection())
print("claimed", len(jobs), flush=True)
wait_for(lambda: Effect.objects.filter(detail="go").exists())
claims = [job.claim for job in jobs]
print(json.dumps({
    "ack": driver.ack([Ack(claim, '"late"') for claim in claims]),
    "retry": driver.nack([Nack.retry(claim, delay=timedelta(0), failure=failure) for claim in claims]),
    "bury": driver.nack([Nack.bury(claim, stop=Stop.TERMINAL, failure=failure) for claim in claims]),
    "park": driver.nack([Nack.park(claim, delay=timedelta(0), reason="late") for claim in claims]),
    "hand back": driver.nack([Nack.hand_back(claim) for claim in claims]),
    "heartbeat": driver.heartbeat(claims, lease=timedelta(hours=1)),
}), flush=True)
"""


def sweep() -> None:
    """Let all leases lapse, and take the jobs from their workers."""
    age(60, "visible_at")
    get_driver().sweep(limit=10)


def claim_of(queued: EnqueueResult) -> Claim:
    """Claim the first ready job as a second worker."""
    (one,) = get_driver().claim(worker="w2", limit=1, lease=timedelta(seconds=30), queues=QueueSelection())
    assert one.claim.id == queued.id
    return one.claim


def test_late_writes_with_the_tokens_of_earlier_claims_are_refused_and_change_nothing(processes: Processes) -> None:
    """Each job has moved on in another way: swept, claimed again, done by another, retried by hand."""
    labels = ("retried by hand", "done by another", "claimed again", "swept")
    queued = {label: once.enqueue(label) for label in labels}
    late = processes.django(LATE)
    late.wait_for_output("claimed 4")
    sweep()
    claims = {label: claim_of(queued[label]) for label in labels[:3]}
    assert get_driver().ack([Ack(claims["done by another"], '"by another"')]) == [True]
    assert get_driver().nack([Nack.bury(claims["retried by hand"], stop=Stop.TERMINAL, failure=FAILURE)]) == [True]
    get_driver().retry([queued["retried by hand"].id])
    states = [row(queued[label]).state for label in labels]
    assert states == ["ready", "done", "running", "ready"]
    before, kept = list(JobRow.objects.order_by("id").values()), JobAttempt.objects.count()

    let_go("late")
    assert late.wait() == 0

    assert json.loads(late.output().splitlines()[-1]) == {
        **dict.fromkeys(("ack", "retry", "bury", "park", "hand back"), [False] * 4),
        "heartbeat": ["lost"] * 4,
    }
    assert list(JobRow.objects.order_by("id").values()) == before
    assert JobAttempt.objects.count() == kept


@pytest.mark.parametrize("obedient", [False, True])
def test_a_worker_that_was_stopped_past_its_lease_and_continued_changes_no_row(
    processes: Processes, obedient: bool
) -> None:
    """W1 sleeps with its job; W2 runs it to its end; W1 wakes, and its body ends too, or stops as it is told."""
    queued = waiting.enqueue("slept", obedient=obedient)
    first = processes.manage("jobs_worker", jobs=SHORT)
    wait_for_starts("slept", 1)
    first.kill(signal.SIGSTOP)
    second = processes.manage("jobs_worker", jobs=SHORT)
    assert wait_for_starts("slept", 2) == [(1, first.pid), (2, second.pid)]
    let_go("slept")
    wait_for(lambda: row(queued).state == "done", "the second worker has ended it")
    before, kept = JobRow.objects.values().get(), len(history(queued))

    first.kill(signal.SIGCONT)
    first.wait_for_output("jobs.lease.lost")
    first.kill(signal.SIGTERM)
    assert first.wait() == 0

    assert JobRow.objects.values().get() == before
    assert len(history(queued)) == kept == 1
    assert before["claimed_by"] in second.output()
    assert (2, second.pid) in ends("slept")
    assert len(starts("slept")) == 2
