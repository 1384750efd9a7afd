"""A worker that lost its lease changes nothing: not by a late write, and not after it was stopped and continued."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from typing import Any

import pytest

from tests.app.jobs import once, waiting
from tests.processes import Processes, wait_for
from tests.scenarios.effects import SHORT, ends, let_go, starts, wait_for_starts
from tests.working import age, history, row
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.records import Ack, QueueSelection

pytestmark = pytest.mark.usefixtures("queue")

LEASE = timedelta(seconds=30)

# A worker's process that claims, is paused by its test, and then writes late with the token it was given.
LATE = """
import json, sys
from datetime import timedelta
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.records import Ack, Failure, Nack, QueueSelection
from ultimat3_jobs.states import Stop
from tests.app.models import Effect
from tests.processes import wait_for

driver = get_driver()
failure = Failure("shop.LateError", "shop.jobs.late", "c" * 64, "late")
(job,) = driver.claim(worker="late", limit=1, lease=timedelta(seconds=30), queues=QueueSelection())
print("claimed", flush=True)
wait_for(lambda: Effect.objects.filter(detail="go").exists())
print(json.dumps({
    "ack": driver.ack([Ack(job.claim, '"late"')]),
    "retry": driver.nack([Nack.retry(job.claim, delay=timedelta(0), failure=failure)]),
    "bury": driver.nack([Nack.bury(job.claim, stop=Stop.TERMINAL, failure=failure)]),
    "park": driver.nack([Nack.park(job.claim, delay=timedelta(0), reason="late")]),
    "hand back": driver.nack([Nack.hand_back(job.claim)]),
    "heartbeat": driver.heartbeat([job.claim], lease=timedelta(hours=1)),
}), flush=True)
"""
REFUSED = {
    "ack": [False],
    "retry": [False],
    "bury": [False],
    "park": [False],
    "hand back": [False],
    "heartbeat": ["lost"],
}


def values() -> dict[str, Any]:
    """Return the one job's row, whole."""
    return JobRow.objects.values().get()


@pytest.mark.parametrize("then", ["swept", "claimed again", "done by another", "retried by hand"])
def test_late_writes_with_the_token_of_an_earlier_claim_are_refused_and_change_nothing(
    processes: Processes, then: str
) -> None:
    queued = once.enqueue("late")
    late = processes.django(LATE)
    late.wait_for_output("claimed")
    assert row(queued).claimed_by == "late"
    age(60, "visible_at")
    assert [swept.id for swept in get_driver().sweep(limit=10)] == [queued.id]
    if then != "swept":
        (again,) = get_driver().claim(worker="w2", limit=1, lease=LEASE, queues=QueueSelection())
        assert again.claim.id == queued.id
        if then == "done by another":
            assert get_driver().ack([Ack(again.claim, '"by another"')]) == [True]
        if then == "retried by hand":
            age(60, "visible_at")
            get_driver().sweep(limit=10)
            assert row(queued).state == "dead"
            get_driver().retry([queued.id])
    before, kept = values(), len(history(queued))

    let_go("late")
    assert late.wait() == 0

    assert json.loads(late.output().splitlines()[-1]) == REFUSED
    assert values() == before
    assert len(history(queued)) == kept


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
    before, kept = values(), len(history(queued))

    first.kill(signal.SIGCONT)
    first.wait_for_output("jobs.lease.lost")
    first.kill(signal.SIGTERM)
    assert first.wait() == 0

    assert values() == before
    assert len(history(queued)) == kept == 1
    assert before["claimed_by"] in second.output()
    assert (2, second.pid) in ends("slept")
    assert len(starts("slept")) == 2
