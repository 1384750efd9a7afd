"""Who gets which job, in which order, and how often."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.records import Nack
from ultimat3_jobs.testing.conformance.harness import (
    FAILURE,
    HOUR,
    MARGIN,
    CapabilityRules,
    Harness,
    keys,
    request,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LONG_HENCE = datetime(2200, 1, 1, tzinfo=UTC)


def minute(number: int) -> datetime:
    """Return a moment of long ago."""
    return LONG_AGO + timedelta(minutes=number)


class TestClaiming:
    """Rules of `claim`."""

    def test_a_claimed_job_carries_what_was_queued(self, harness: Harness) -> None:
        queued = request("k", input={"order": [1, "ü"]}, enqueued_by="ann", traceparent="00-1", max_attempts=7)
        harness.driver().enqueue([queued])

        (job,) = harness.claim()

        assert job.claim.id == job.run_id == queued.id
        assert (job.name, job.queue, job.tenant_id) == ("shop.ship", "default", "acme")
        assert msgspec.json.decode(job.input) == {"order": [1, "ü"]}
        assert (job.attempt, job.max_attempts, job.parks) == (1, 7, 0)
        assert (job.enqueued_by, job.traceparent) == ("ann", "00-1")

    def test_a_job_without_a_tenant_has_none(self, harness: Harness) -> None:
        harness.enqueue("k", tenant_id=None)

        assert [job.tenant_id for job in harness.claim()] == [None]

    def test_jobs_come_by_time_due_across_queues(self, harness: Harness) -> None:
        order = [5, 2, 8, 1, 9, 3, 7, 4, 6]
        harness.driver().enqueue(
            [request(f"{number}", queue="abc"[at % 3], run_at=minute(number)) for at, number in enumerate(order)]
        )

        assert keys(harness.claim(4)) == ["1", "2", "3", "4"]
        assert [keys(harness.claim(1)) for _ in range(5)] == [["5"], ["6"], ["7"], ["8"], ["9"]]

    def test_jobs_due_at_once_come_by_id(self, harness: Harness) -> None:
        requests = [request(f"{number}", queue="ab"[number % 2], run_at=LONG_AGO) for number in range(9)]
        harness.driver().enqueue(requests[::-1])

        assert [keys(harness.claim(3)) for _ in range(3)] == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"]]

    def test_no_more_jobs_are_claimed_than_asked_for(self, harness: Harness) -> None:
        for queue in "abcd":
            harness.enqueue(*"12345", queue=queue, name=f"shop.{queue}")

        assert [len(harness.claim(limit)) for limit in (1, 3, 7, 100)] == [1, 3, 7, 9]

    def test_a_job_is_not_claimed_before_it_is_due(self, harness: Harness) -> None:
        harness.enqueue("delayed", delay=HOUR)
        harness.enqueue("later", run_at=LONG_HENCE)

        assert harness.due() == 0
        assert harness.claim() == []
        harness.advance(HOUR - MARGIN)
        assert harness.due() == 0
        harness.advance(2 * MARGIN)
        assert harness.due() == 1
        assert keys(harness.claim()) == ["delayed"]

    def test_a_running_job_is_not_claimed_again(self, harness: Harness) -> None:
        harness.enqueue("k")

        assert keys(harness.claim()) == ["k"]
        assert harness.claim() == []
        harness.lapse()
        assert harness.claim() == [], "only a sweep takes a job from its worker"

    def test_only_the_served_queues_are_claimed_from(self, harness: Harness) -> None:
        for queue in "abc":
            harness.enqueue(queue, queue=queue)

        assert harness.claim(only=["nothing"]) == []
        assert keys(harness.claim(only=["a", "c"], excluded=["c"])) == ["a"]
        assert keys(harness.claim(excluded=["c", "nothing"])) == ["b"]
        assert keys(harness.claim(only=["c"])) == ["c"]

    def test_every_claim_has_a_token_of_its_own(self, harness: Harness) -> None:
        harness.enqueue(*"abc")
        first = harness.claim()
        harness.driver().nack([Nack.hand_back(job.claim) for job in first])
        second = harness.claim()

        assert len({job.claim.token for job in [*first, *second]}) == 6

    def test_a_claim_counts_an_attempt(self, harness: Harness) -> None:
        (receipt,) = harness.enqueue("k")
        seen = []
        for _ in range(3):
            (job,) = harness.claim()
            seen.append((job.attempt, job.run_id == receipt.run_id))
            harness.driver().nack([Nack.retry(job.claim, delay=timedelta(0), failure=FAILURE)])
            harness.due()

        assert seen == [(1, True), (2, True), (3, True)]

    def test_claimers_at_once_get_every_job_once_and_no_more_than_they_ask_for(self, harness: Harness) -> None:
        ids = {
            receipt.id for queue in "abc" for receipt in harness.enqueue(*map(str, range(40)), queue=queue, name=queue)
        }

        def claim_all() -> list[list[UUID]]:
            batches = []
            while batch := [job.claim.id for job in harness.claim(7)]:
                batches.append(batch)
            return batches

        batches = [batch for answer in harness.together(*[claim_all] * 4) for batch in answer]
        claimed = [job_id for batch in batches for job_id in batch]

        assert max(map(len, batches)) <= 7
        assert sorted(claimed) == sorted(ids)


class TestPriorities(CapabilityRules):
    """Rules of PRIORITIES."""

    needs = Capability.PRIORITIES

    def test_a_higher_priority_comes_first_across_queues(self, harness: Harness) -> None:
        order = [(-100, 1), (0, 9), (100, 8), (5, 3), (5, 2), (0, 1)]
        harness.driver().enqueue(
            [
                request(f"{priority}/{number}", priority=priority, run_at=minute(number), queue="ab"[number % 2])
                for priority, number in order
            ]
        )

        assert keys(harness.claim(2)) == ["100/8", "5/2"]
        assert [keys(harness.claim(1)) for _ in range(4)] == [["5/3"], ["0/1"], ["0/9"], ["-100/1"]]

    def test_a_priority_is_kept_by_a_job_that_comes_back(self, harness: Harness) -> None:
        harness.enqueue("urgent", priority=10)
        harness.enqueue("other", run_at=LONG_AGO)
        (urgent,) = harness.claim(1)
        harness.driver().nack([Nack.retry(urgent.claim, delay=timedelta(0), failure=FAILURE)])
        harness.due()

        assert keys(harness.claim()) == ["urgent", "other"]
