"""Joining a running job can lose work: `while_running="again"` makes a new run follow it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from ultimat3_jobs.records import Ack, Claim, Nack, Receipt
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.harness import FAILURE, HOUR, Harness, keys, request


def ask_again(harness: Harness, key: str = "k") -> tuple[Receipt, UUID]:
    """Enqueue `key` once more; return the receipt and the id that the request carried."""
    again = request(key, while_running="again")
    return harness.driver().enqueue([again])[0], again.id


def end(harness: Harness, claim: Claim, how: str) -> None:
    """End a run in one of the ways after which its key is free."""
    match how:
        case "done":
            assert harness.driver().ack([Ack(claim)]) == [True]
        case "dead":
            assert harness.driver().nack([Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE)]) == [True]
        case "failed":
            nack = Nack.bury(claim, stop=Stop.EXHAUSTED, failure=FAILURE, dead_letter=False)
            assert harness.driver().nack([nack]) == [True]
        case "worker-lost":
            harness.lapse()
            assert [swept.id for swept in harness.driver().sweep(limit=10)] == [claim.id]


class TestAskedAgain:
    """Rules of `while_running`."""

    def test_joining_is_all_that_happens_unless_asked(self, harness: Harness) -> None:
        (claim,) = harness.running("k")

        assert harness.enqueue("k") == [Receipt(claim.id, claim.id, joined=True)]
        end(harness, claim, "done")
        assert harness.buckets() == {}

    def test_a_job_that_has_not_begun_is_joined_alone(self, harness: Harness) -> None:
        first = harness.enqueue_one("k")

        assert ask_again(harness)[0] == Receipt(first.id, first.run_id, joined=True)
        (job,) = harness.claim()
        end(harness, job.claim, "done")
        assert harness.buckets() == {}

    @pytest.mark.parametrize("how", ["done", "dead", "failed", "worker-lost"])
    def test_a_job_asked_again_is_followed_by_one_new_run(self, harness: Harness, how: str) -> None:
        (claim,) = harness.running("k", max_attempts=1)
        receipt, asked_id = ask_again(harness)

        assert receipt == Receipt(claim.id, claim.id, joined=True, asked_again=True)
        assert harness.buckets() == {"running": 1}, "nothing follows before the end"
        end(harness, claim, how)
        (follower,) = harness.claim()
        assert follower.claim.id == follower.run_id == asked_id
        assert follower.attempt == 1
        end(harness, follower.claim, "done")
        assert harness.claim() == [], "and nothing follows the follower"

    def test_a_follower_holds_the_key(self, harness: Harness) -> None:
        (claim,) = harness.running("k", dedupe_for=HOUR)
        _, asked_id = ask_again(harness)
        end(harness, claim, "done")

        assert harness.enqueue("k") == [Receipt(asked_id, asked_id, joined=True)]

    def test_of_two_who_ask_the_last_is_followed(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        ask_again(harness)
        _, asked_id = ask_again(harness)
        end(harness, claim, "done")

        assert [job.claim.id for job in harness.claim()] == [asked_id]

    def test_two_who_ask_in_one_batch_are_followed_once(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        receipts = harness.enqueue("k", "k", while_running="again")

        assert receipts == [Receipt(claim.id, claim.id, joined=True, asked_again=True)] * 2
        end(harness, claim, "done")
        assert harness.buckets() == {"ready": 1}

    def test_another_input_follows_where_a_warning_is_enough(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        (receipt,) = harness.enqueue("k", input={"key": "newer"}, while_running="again", on_key_reuse="warn")

        assert receipt == Receipt(claim.id, claim.id, joined=True, reused=True, asked_again=True)
        end(harness, claim, "done")
        assert keys(harness.claim()) == ["newer"]

    @pytest.mark.parametrize("pause", ["retry", "lapse", "hand-back", "park"])
    def test_nothing_follows_a_run_that_is_not_over(self, harness: Harness, pause: str) -> None:
        (claim,) = harness.running("k")
        _, asked_id = ask_again(harness)
        match pause:
            case "retry":
                harness.driver().nack([Nack.retry(claim, delay=timedelta(0), failure=FAILURE)])
            case "lapse":
                harness.lapse()
                harness.driver().sweep(limit=10)
            case "hand-back":
                harness.driver().nack([Nack.hand_back(claim)])
            case "park":
                harness.driver().nack([Nack.park(claim, delay=timedelta(0), reason="unknown name")])
        harness.due()

        assert harness.buckets() == {"ready": 1}
        (back,) = harness.claim()
        assert back.claim.id == claim.id
        end(harness, back.claim, "done")
        assert [job.claim.id for job in harness.claim()] == [asked_id], "what was asked is not forgotten"

    def test_a_job_that_waits_for_its_next_attempt_has_begun(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        harness.driver().nack([Nack.retry(claim, delay=timedelta(hours=1), failure=FAILURE)])

        assert ask_again(harness)[0].asked_again

    def test_a_done_job_that_holds_its_key_is_not_asked_again(self, harness: Harness) -> None:
        (claim,) = harness.running("k", dedupe_for=HOUR)
        end(harness, claim, "done")

        assert ask_again(harness)[0] == Receipt(claim.id, claim.id, joined=True)

    def test_an_ack_said_twice_is_followed_once(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        ask_again(harness)
        end(harness, claim, "done")
        end(harness, claim, "done")

        assert harness.buckets() == {"ready": 1}

    def test_a_refused_ack_is_not_followed(self, harness: Harness) -> None:
        (late,) = harness.running("k")
        ask_again(harness)
        harness.lapse()
        harness.driver().sweep(limit=10)
        harness.claim()

        assert harness.driver().ack([Ack(late)]) == [False]
        assert harness.buckets() == {"running": 1}

    def test_asking_while_the_run_ends_never_loses_the_request(self, harness: Harness) -> None:
        names = [f"{number}" for number in range(25)]
        running = harness.running(*names)

        def end_all() -> list[bool]:
            return [harness.driver().ack([Ack(claim)])[0] for claim in running]

        def ask_all() -> list[tuple[Receipt, UUID]]:
            return [ask_again(harness, name) for name in names]

        acked, *asked = harness.together(end_all, ask_all, ask_all)
        followers = {keys([job])[0]: job.claim.id for job in harness.claim(1_000)}

        assert all(acked)
        assert sorted(followers) == sorted(names), "each key has a follower"
        assert harness.buckets() == {"running": len(names)}, "and only one"
        for at, (name, ended) in enumerate(zip(names, running, strict=True)):
            answers = [answer[at] for answer in asked]
            assert followers[name] in [asked_id for _, asked_id in answers], "it is one that was asked for"
            assert all(receipt.id in (ended.id, followers[name]) for receipt, _ in answers)
