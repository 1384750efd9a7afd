"""Writes that join the caller's transaction: all or nothing, and the caller can go on."""

from __future__ import annotations

from datetime import timedelta

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.records import Receipt
from ultimat3_jobs.testing.conformance.fences import AFTER, Write, ack, every_settlement, every_write
from ultimat3_jobs.testing.conformance.harness import LEASE, CapabilityRules, Harness, keys


class TestTransactions(CapabilityRules):
    """Rules of JOINS_TRANSACTION."""

    needs = Capability.JOINS_TRANSACTION

    def test_what_was_queued_in_a_transaction_that_commits_is_there(self, harness: Harness) -> None:
        with harness.transaction():
            harness.enqueue(*"ab")

        assert keys(harness.claim()) == ["a", "b"]

    def test_what_was_queued_in_a_transaction_that_rolls_back_never_was(self, harness: Harness) -> None:
        with harness.taken_back():
            harness.enqueue(*"ab")

        assert harness.buckets() == {}
        assert not harness.enqueue_one("a").joined

    def test_what_was_queued_in_an_inner_transaction_that_rolls_back_never_was(self, harness: Harness) -> None:
        with harness.transaction():
            harness.enqueue("outer")
            with harness.taken_back():
                harness.enqueue("inner")

        assert keys(harness.claim()) == ["outer"]

    @every_write
    def test_a_settlement_in_a_transaction_that_rolls_back_never_was(self, harness: Harness, write: Write) -> None:
        running = harness.running("k")
        with harness.taken_back():
            assert write(harness, running) == [True]

        assert harness.buckets() == {"running": 1}
        assert write(harness, running) == [True]
        assert harness.buckets() == AFTER[write]

    def test_a_follower_in_a_transaction_that_rolls_back_is_not_lost(self, harness: Harness) -> None:
        running = harness.running("k")
        harness.enqueue("k", while_running="again")
        with harness.taken_back():
            ack(harness, running)

        assert harness.buckets() == {"running": 1}
        ack(harness, running)
        assert harness.buckets() == {"ready": 1}

    def test_a_held_key_does_not_spoil_the_transaction_that_meets_it(self, harness: Harness) -> None:
        first = harness.enqueue_one("k")
        with harness.transaction():
            assert harness.enqueue("k") == [Receipt(first.id, first.run_id, joined=True)]
            harness.enqueue("other")

        assert keys(harness.claim()) == ["k", "other"]

    def test_an_enqueue_joins_what_the_transaction_that_held_its_key_committed(self, harness: Harness) -> None:
        with harness.transaction():
            first = harness.enqueue_one("k")
            second = harness.meanwhile(lambda: harness.enqueue_one("k"))

        assert second() == Receipt(first.id, first.run_id, joined=True)
        assert harness.buckets() == {"ready": 1}

    def test_an_enqueue_takes_the_key_of_a_transaction_that_rolled_back(self, harness: Harness) -> None:
        with harness.taken_back():
            harness.enqueue_one("k")
            second = harness.meanwhile(lambda: harness.enqueue_one("k"))

        assert not second().joined
        assert harness.buckets() == {"ready": 1}

    def test_two_transactions_that_meet_on_a_key_both_commit(self, harness: Harness) -> None:
        def enqueue_both() -> list[Receipt]:
            with harness.transaction():
                return harness.enqueue("theirs", "k", "theirs, later")

        with harness.transaction():
            mine = [harness.enqueue_one("mine"), harness.enqueue_one("k")]
            theirs = harness.meanwhile(enqueue_both)
            mine.append(harness.enqueue_one("mine, later"))

        assert [receipt.joined for receipt in mine] == [False, False, False]
        assert [receipt.joined for receipt in theirs()] == [False, True, False]
        assert harness.buckets() == {"ready": 5}

    def test_a_request_to_run_again_that_meets_the_end_of_the_run_is_a_new_run(self, harness: Harness) -> None:
        running = harness.running("k")
        with harness.transaction():
            ack(harness, running)
            second = harness.meanwhile(lambda: harness.enqueue_one("k", while_running="again"))

        assert not second().joined
        assert harness.buckets() == {"ready": 1}

    def test_an_end_that_meets_a_request_to_run_again_is_followed(self, harness: Harness) -> None:
        running = harness.running("k")
        with harness.transaction():
            assert harness.enqueue_one("k", while_running="again").asked_again
            acked = harness.meanwhile(lambda: ack(harness, running))

        assert acked() == [True]
        assert harness.buckets() == {"ready": 1}

    def test_jobs_claimed_in_an_open_transaction_are_nobody_elses(self, harness: Harness) -> None:
        harness.enqueue(*"ab")
        with harness.transaction():
            mine = harness.claim(1)
            theirs = harness.meanwhile(lambda: harness.claim(2))

        assert keys([*mine, *theirs()]) == ["a", "b"]

    def test_a_sweep_that_meets_a_renewal_takes_nothing(self, harness: Harness) -> None:
        running = harness.running("k")
        harness.lapse()
        with harness.transaction():
            harness.driver().heartbeat(running, lease=timedelta(seconds=LEASE))
            swept = harness.meanwhile(lambda: harness.driver().sweep(limit=10))

        assert swept() == []
        assert ack(harness, running) == [True]

    @every_settlement
    def test_a_settlement_that_meets_a_sweep_is_refused(self, harness: Harness, write: Write) -> None:
        lost = harness.running("k")
        harness.lapse()
        with harness.transaction():
            harness.driver().sweep(limit=10)
            answer = harness.meanwhile(lambda: write(harness, lost))

        assert answer() == [False]
        assert harness.buckets() == {"ready": 1}
