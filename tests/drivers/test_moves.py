"""The table of moves, walked: what the driver does to a job in each state is what the table says, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.drivers.factories import JobFactory
from tests.drivers.harness import DatabaseHarness
from ultimat3_jobs.errors import RowStatusUnknown
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Ack, CancelVerdict, Claim, Nack, RetryVerdict
from ultimat3_jobs.states import MOVES, Cause, State, Stop, may_move, parse_state
from ultimat3_jobs.testing.conformance.events import event, publish
from ultimat3_jobs.testing.conformance.harness import FAILURE, request

UNKNOWN = "quarantined"
AT_ONCE = timedelta(0)

Attempt = Callable[[DatabaseHarness, Job, Claim], object]


def bury(claim: Claim, *, dead_letter: bool) -> Nack:
    return Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE, dead_letter=dead_letter)


def wake(harness: DatabaseHarness, job: Job, claim: Claim) -> int:
    """Have a job wait for an event, whatever its state, publish that, and wake whoever waits."""
    Job.objects.filter(pk=job.pk).update(wait_event="paid", run_at=in_a_day())
    return publish(harness, event())


def look_again(harness: DatabaseHarness, job: Job, claim: Claim) -> int:
    """Have a job wait for an event that is there, whatever its state, and look for it."""
    Job.objects.filter(pk=job.pk).update(wait_event="paid", run_at=in_a_day())
    harness.driver().publish([event()])
    return harness.driver().look_again([job.id])


def in_a_day() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


ATTEMPTS: list[tuple[Cause | None, Attempt]] = [
    (Cause.EVENT, wake),
    (Cause.EVENT, look_again),
    (Cause.PROMOTION, lambda harness, job, claim: harness.due()),
    (Cause.CLAIM, lambda harness, job, claim: harness.claim()),
    (Cause.SUCCESS, lambda harness, job, claim: harness.driver().ack([Ack(claim)])),
    (
        Cause.FAILURE,
        lambda harness, job, claim: harness.driver().nack([Nack.retry(claim, delay=AT_ONCE, failure=FAILURE)]),
    ),
    (Cause.EXHAUSTION, lambda harness, job, claim: harness.driver().nack([bury(claim, dead_letter=True)])),
    (Cause.EXHAUSTION, lambda harness, job, claim: harness.driver().nack([bury(claim, dead_letter=False)])),
    (
        Cause.SUSPENSION,
        lambda harness, job, claim: harness.driver().nack([Nack.park(claim, delay=AT_ONCE, reason="unknown name")]),
    ),
    (Cause.HAND_BACK, lambda harness, job, claim: harness.driver().nack([Nack.hand_back(claim)])),
    (Cause.LAPSE, lambda harness, job, claim: harness.driver().sweep(limit=10)),
    (Cause.RETRY, lambda harness, job, claim: harness.driver().retry([job.id])),
    (Cause.CANCEL, lambda harness, job, claim: harness.driver().cancel([job.id])),
    # What moves nothing.
    (None, lambda harness, job, claim: harness.driver().heartbeat([claim], lease=timedelta(seconds=30))),
    (None, lambda harness, job, claim: harness.enqueue(job.idempotency_key, while_running="again")),
    (None, lambda harness, job, claim: harness.driver().find_holders([request(job.idempotency_key)])),
    (None, lambda harness, job, claim: harness.driver().stats()),
]


def walk(harness: DatabaseHarness, state: str) -> dict[str, set[Cause | None]]:
    """Try everything on a job in `state` that makes it easy, and return where the job went and why."""
    reached: dict[str, set[Cause | None]] = defaultdict(set)
    for max_attempts in (1, 3):
        for cause, attempt in ATTEMPTS:
            Job.objects.all().delete()
            job = JobFactory(state=state, max_attempts=max_attempts)
            assert job.claim_token is not None
            attempt(harness, job, Claim(job.id, job.claim_token))
            after = Job.objects.get(pk=job.pk).state
            if after != state:
                reached[after].add(cause)
    return dict(reached)


@pytest.mark.parametrize("before", list(State))
def test_a_job_moves_where_the_table_says_and_for_the_reasons_it_gives(harness: DatabaseHarness, before: State) -> None:
    assert walk(harness, before) == {after: causes for (start, after), causes in MOVES.items() if start is before}


def test_a_state_that_this_build_does_not_know_is_never_moved(harness: DatabaseHarness) -> None:
    assert walk(harness, UNKNOWN) == {}


def test_a_state_that_this_build_does_not_know_affects_its_row_alone(harness: DatabaseHarness) -> None:
    foreign = JobFactory(state=UNKNOWN, idempotency_key="k")
    JobFactory(state="running")
    JobFactory(state="delayed")

    assert harness.driver().promote(limit=10) == 1
    assert len(harness.driver().sweep(limit=10)) == 1
    assert harness.buckets() == {"ready": 2}
    assert len(harness.claim()) == 2
    assert not harness.enqueue_one("k").joined, "a state that is not known to be live holds no key"
    assert harness.driver().retry([foreign.id]) == [RetryVerdict.NOT_RETRYABLE]
    assert harness.driver().cancel([foreign.id]) == [CancelVerdict.NOT_CANCELLABLE]
    with pytest.raises(RowStatusUnknown) as caught:
        parse_state(Job.objects.get(pk=foreign.pk).state)
    assert UNKNOWN in caught.value.cause


def test_every_move_is_legal_or_not() -> None:
    assert [edge for edge in MOVES if not may_move(*edge)] == []
    assert not may_move(State.DONE, State.READY)
    assert not may_move(State.CANCELLED, State.READY)
