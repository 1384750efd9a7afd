"""How a run ends or pauses: what counts as an attempt, and when the job is due again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ultimat3_jobs.records import Ack, Nack
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.claiming import minute
from ultimat3_jobs.testing.conformance.harness import FAILURE, HOUR, MARGIN, Harness, claims, keys, request


class TestSettling:
    """Rules of `ack`, `nack` and `promote`."""

    def test_an_acked_job_is_over(self, harness: Harness) -> None:
        running = harness.running("k")

        assert harness.driver().ack([Ack(running[0], '{"shipped": 3}')]) == [True]
        harness.lapse()
        assert harness.driver().sweep(limit=10) == []
        assert harness.due() == 0
        assert harness.buckets() == {}

    def test_a_failed_attempt_is_tried_again_after_its_delay(self, harness: Harness) -> None:
        (claim,) = harness.running("k")

        assert harness.driver().nack([Nack.retry(claim, delay=timedelta(seconds=HOUR), failure=FAILURE)]) == [True]
        assert harness.buckets() == {"delayed": 1}
        harness.advance(HOUR - MARGIN)
        assert harness.due() == 0
        harness.advance(2 * MARGIN)
        assert harness.due() == 1
        assert [job.attempt for job in harness.claim()] == [2]

    def test_a_failed_attempt_without_a_delay_is_due_at_once(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        harness.driver().nack([Nack.retry(claim, delay=timedelta(0), failure=FAILURE)])

        assert harness.due() == 1
        assert [job.attempt for job in harness.claim()] == [2]

    @pytest.mark.parametrize("dead_letter", [True, False])
    def test_a_buried_job_is_over(self, harness: Harness, dead_letter: bool) -> None:
        (claim,) = harness.running("k")
        nack = Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE, dead_letter=dead_letter)

        assert harness.driver().nack([nack]) == [True]
        harness.lapse()
        assert (harness.driver().sweep(limit=10), harness.due(), harness.claim()) == ([], 0, [])
        if dead_letter:
            assert harness.buckets() == {"dead": 1}

    def test_a_parked_job_waits_and_burns_no_attempt(self, harness: Harness) -> None:
        (claim,) = harness.running("k", max_attempts=1)
        seen = []
        for _ in range(3):
            nack = Nack.park(claim, delay=timedelta(seconds=HOUR), reason="unknown name")
            assert harness.driver().nack([nack]) == [True]
            assert harness.buckets() == {"suspended": 1}
            harness.advance(HOUR - MARGIN)
            assert harness.due() == 0
            harness.advance(2 * MARGIN)
            assert harness.due() == 1
            (job,) = harness.claim()
            seen.append((job.attempt, job.parks))
            claim = job.claim

        assert seen == [(1, 1), (1, 2), (1, 3)]

    def test_a_failure_ends_the_row_of_parks(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        harness.driver().nack([Nack.park(claim, delay=timedelta(0), reason="unknown name")])
        harness.due()
        (claim,) = claims(harness.claim())
        harness.driver().nack([Nack.retry(claim, delay=timedelta(0), failure=FAILURE)])
        harness.due()

        assert [(job.attempt, job.parks) for job in harness.claim()] == [(2, 0)]

    def test_a_job_handed_back_is_ready_at_once_and_burns_no_attempt(self, harness: Harness) -> None:
        (claim,) = harness.running("k", max_attempts=1)

        assert harness.driver().nack([Nack.hand_back(claim)]) == [True]
        assert harness.buckets() == {"ready": 1}
        assert [job.attempt for job in harness.claim()] == [1]

    def test_a_job_handed_back_keeps_its_place_in_the_order(self, harness: Harness) -> None:
        harness.driver().enqueue([request(f"{number}", run_at=minute(number)) for number in range(4)])
        harness.driver().nack([Nack.hand_back(job.claim) for job in harness.claim(2)[::-1]])

        assert keys(harness.claim()) == ["0", "1", "2", "3"]

    def test_attempts_before_a_hand_back_stay_counted(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        harness.driver().nack([Nack.retry(claim, delay=timedelta(0), failure=FAILURE)])
        harness.due()
        harness.driver().nack([Nack.hand_back(job.claim) for job in harness.claim()])

        assert [job.attempt for job in harness.claim()] == [2]

    def test_one_batch_settles_every_kind(self, harness: Harness) -> None:
        retried, buried, failed, parked, handed_back = harness.running(*"abcde")
        hour = timedelta(hours=1)

        assert (
            harness.driver().nack(
                [
                    Nack.retry(retried, delay=hour, failure=FAILURE),
                    Nack.bury(buried, stop=Stop.TERMINAL, failure=FAILURE),
                    Nack.park(parked, delay=hour, reason="unknown name"),
                    Nack.hand_back(handed_back),
                ]
            )
            == [True] * 4
        )
        assert harness.buckets() == {"delayed": 1, "dead": 1, "suspended": 1, "ready": 1, "running": 1}
        assert harness.driver().ack([Ack(failed)]) == [True]

    def test_a_promotion_takes_no_more_than_it_is_asked_to(self, harness: Harness) -> None:
        for queue in "ab":
            harness.enqueue(*"12345", queue=queue, name=queue, delay=HOUR)
        harness.advance(HOUR + MARGIN)

        assert [harness.due(limit=4) for _ in range(4)] == [4, 4, 2, 0]

    def test_a_promotion_begins_with_what_has_waited_longest(self, harness: Harness) -> None:
        delays = [5, 2, 6, 1, 4, 3]
        harness.driver().enqueue(
            [request(f"{delay}", delay=float(delay), queue="ab"[at % 2]) for at, delay in enumerate(delays)]
        )
        harness.advance(MARGIN)
        taken = []
        for _ in delays:
            harness.due(limit=1)
            taken += keys(harness.claim())

        assert taken == ["1", "2", "3", "4", "5", "6"], "no queue waits for another to be empty"

    def test_promotions_at_once_promote_every_job_once(self, harness: Harness) -> None:
        harness.enqueue(*(f"{number}" for number in range(60)), delay=HOUR)
        harness.advance(HOUR + MARGIN)
        counts = harness.together(*[lambda: [harness.due(limit=7) for _ in range(12)]] * 3)

        assert sum(map(sum, counts)) == 60
        assert max(map(max, counts)) <= 7
        assert harness.buckets() == {"ready": 60}
