"""Whatever ends a worker takes no neighbour along.

Jobs of silent workers are claimed one at a time, and last attempts that had not begun come back.
"""

from __future__ import annotations

import pytest

from ultimat3_jobs.durations import parse_duration
from ultimat3_jobs.records import Ack, Nack
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.claiming import minute
from ultimat3_jobs.testing.conformance.harness import FAILURE, Harness, claims, forged, keys, request


def taken(harness: Harness) -> None:
    """Let every lease lapse, and sweep."""
    harness.lapse()
    while harness.driver().sweep(limit=100):
        pass


class TestLapses:
    """Rules of `claim(lapsed=)`, `begin` and what a sweep gives back."""

    def test_a_claim_takes_as_many_lapsed_jobs_as_it_asks_for_and_passes_over_the_rest(self, harness: Harness) -> None:
        harness.driver().enqueue([request(f"lapsed {n}", run_at=minute(n)) for n in range(5)])
        harness.claim()
        taken(harness)
        harness.driver().enqueue([request(f"fresh {n}", run_at=minute(5 + n)) for n in range(3)])

        assert keys(harness.claim(3, lapsed=1)) == ["lapsed 0", "fresh 0", "fresh 1"]
        assert keys(harness.claim(3, lapsed=0)) == ["fresh 2"]
        assert keys(harness.claim(3, lapsed=0)) == []
        assert keys(harness.claim(3, lapsed=1)) == ["lapsed 1"]
        assert keys(harness.claim(3, lapsed=2)) == ["lapsed 2", "lapsed 3"]

    def test_a_claimed_job_says_how_often_its_worker_went_silent(self, harness: Harness) -> None:
        harness.enqueue("k", max_attempts=9)
        for lapses in range(3):
            assert [job.lapses for job in harness.claim()] == [lapses]
            taken(harness)

    @pytest.mark.parametrize("ending", ["retry", "park"])
    def test_a_job_that_ended_by_itself_is_no_suspect_any_more(self, harness: Harness, ending: str) -> None:
        harness.running("k")
        taken(harness)
        (job,) = harness.claim()
        at_once = parse_duration(0)
        nack = {
            "retry": Nack.retry(job.claim, delay=at_once, failure=FAILURE),
            "park": Nack.park(job.claim, delay=at_once, reason="unknown name"),
        }[ending]
        assert harness.driver().nack([nack]) == [True]
        harness.due()

        assert [job.lapses for job in harness.claim(lapsed=0)] == [0]

    def test_a_job_that_was_handed_back_stays_a_suspect(self, harness: Harness) -> None:
        harness.running("k")
        taken(harness)
        (job,) = harness.claim()
        assert harness.driver().nack([Nack.hand_back(job.claim)]) == [True]

        assert harness.claim(lapsed=0) == []
        assert [job.lapses for job in harness.claim(lapsed=1)] == [1]

    def test_a_last_attempt_that_had_not_begun_is_given_back(self, harness: Harness) -> None:
        begun, unbegun = harness.running("begun", "unbegun", max_attempts=1, begun=False)
        assert harness.driver().begin([begun]) == [True]
        harness.lapse()

        assert {swept.id: swept.state for swept in harness.driver().sweep(limit=10)} == {
            begun.id: "dead",
            unbegun.id: "ready",
        }
        assert [(keys([job]), job.attempt) for job in harness.claim()] == [(["unbegun"], 1)]

    def test_an_attempt_that_is_not_the_last_counts_whether_it_had_begun_or_not(self, harness: Harness) -> None:
        harness.running("k", max_attempts=2, begun=False)
        taken(harness)

        assert [job.attempt for job in harness.claim(begun=False)] == [2]

    def test_a_mark_holds_for_its_own_attempt(self, harness: Harness) -> None:
        """What an earlier attempt was marked with says nothing of the last one."""
        (first,) = harness.running("k", max_attempts=2)
        assert harness.driver().begin([first]) == [True]
        taken(harness)
        assert [job.attempt for job in harness.claim(begun=False)] == [2]
        taken(harness)

        assert [job.attempt for job in harness.claim(begun=False)] == [2]

    def test_not_even_its_claim_may_end_a_process_for_ever(self, harness: Harness) -> None:
        harness.enqueue("k", max_attempts=1)
        starts = 0
        for _ in range(40):
            starts += len(harness.claim(begun=False))
            taken(harness)

        assert 5 < starts < 40
        assert harness.buckets() == {"dead": 1}

    def test_only_the_owner_of_a_job_begins_it(self, harness: Harness) -> None:
        mine, lost, done = harness.running("mine", "lost", "done", max_attempts=1, begun=False)
        assert harness.driver().ack([Ack(done)]) == [True]

        assert harness.driver().begin([mine, forged(lost), done]) == [True, False, False]
        harness.lapse()
        states = {swept.id: swept.state for swept in harness.driver().sweep(limit=10)}
        assert states == {mine.id: "dead", lost.id: "ready"}

    def test_a_claim_that_ended_its_job_is_told_so(self, harness: Harness) -> None:
        done, buried, running, swept = harness.running("done", "buried", "running", "swept")
        assert harness.driver().ack([Ack(done)]) == [True]
        assert harness.driver().nack([Nack.bury(buried, stop=Stop.TERMINAL, failure=FAILURE)]) == [True]
        asked = [done, forged(done), buried, running]

        assert harness.driver().settled(asked) == [True, False, True, False]
        taken(harness)
        assert harness.driver().settled([swept]) == [False]

    def test_a_killer_among_innocents_is_the_only_one_to_pay(self, harness: Harness) -> None:
        """Each round a worker of ten claims what it can; the killer ends it while all of these are under way."""
        harness.enqueue("killer", max_attempts=2)
        harness.enqueue(*(f"innocent {n}" for n in range(40)), max_attempts=2)
        done: list[str] = []
        for _ in range(100):
            jobs = harness.claim(10, lapsed=1)
            if not jobs:
                break
            if "killer" not in keys(jobs):
                assert all(harness.driver().ack([Ack(claim) for claim in claims(jobs)]))
                done += keys(jobs)
            taken(harness)

        assert sorted(done) == sorted(f"innocent {n}" for n in range(40))
        assert harness.buckets() == {"dead": 1}
