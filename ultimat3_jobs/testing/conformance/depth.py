"""What `stats` says of each queue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ultimat3_jobs.records import Ack, Nack, QueueStats
from ultimat3_jobs.testing.conformance.harness import HOUR, MARGIN, Harness
from ultimat3_jobs.testing.conformance.keys import LIVE, bring


class TestDepth:
    """Rules of `stats`."""

    def test_a_queue_without_work_is_not_listed(self, harness: Harness) -> None:
        assert harness.driver().stats() == []
        running = harness.running("k", dedupe_for=HOUR)
        harness.driver().ack([Ack(claim) for claim in running])
        assert harness.driver().stats() == []

    @pytest.mark.parametrize("state", [*LIVE, "dead"])
    def test_a_job_is_in_the_bucket_of_its_state_and_in_no_other(self, harness: Harness, state: str) -> None:
        bring(harness, state, queue="only")

        (stats,) = harness.driver().stats()
        age = stats.oldest_ready_seconds
        counts = {"ready": 0, "delayed": 0, "suspended": 0, "running": 0, "dead": 0} | {state: 1}
        assert stats == QueueStats(queue="only", oldest_ready_seconds=age, capped=False, **counts)
        assert (age is None) is (state != "ready")

    def test_every_queue_is_counted_for_itself_and_listed_by_name(self, harness: Harness) -> None:
        harness.enqueue(*"12345", queue="middle", name="middle")
        harness.enqueue(*"12", queue="a-first", name="a-first")
        harness.enqueue(*"123", queue="z-last", name="z-last")
        one, two = harness.claim(2, only=["middle"])
        harness.driver().nack([Nack.park(one.claim, delay=timedelta(hours=1), reason="unknown name")])
        harness.enqueue("6", queue="middle", name="middle", delay=HOUR)

        assert [stats.queue for stats in harness.driver().stats()] == ["a-first", "middle", "z-last"]
        assert harness.buckets("middle") == {"ready": 3, "delayed": 1, "suspended": 1, "running": 1}
        assert harness.buckets("a-first") == {"ready": 2}
        assert harness.driver().ack([Ack(two.claim)]) == [True]
        assert harness.buckets("middle") == {"ready": 3, "delayed": 1, "suspended": 1}

    def test_the_age_is_that_of_the_oldest_ready_job(self, harness: Harness) -> None:
        harness.enqueue("older", priority=-5)
        harness.advance(HOUR)
        harness.enqueue("younger", priority=5)
        harness.enqueue("later", delay=HOUR)

        age = harness.depth().oldest_ready_seconds
        assert age is not None
        assert HOUR <= age < HOUR + MARGIN
        harness.claim()
        harness.enqueue("new")
        age = harness.depth().oldest_ready_seconds
        assert age is not None
        assert 0 <= age < MARGIN

    def test_a_job_has_no_age_before_it_is_due(self, harness: Harness) -> None:
        harness.enqueue("k", delay=HOUR)
        harness.advance(3 * HOUR)
        harness.due()

        age = harness.depth().oldest_ready_seconds
        assert age is not None
        assert 2 * HOUR <= age < 2 * HOUR + MARGIN
