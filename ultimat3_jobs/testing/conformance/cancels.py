"""Stopping live jobs for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import CancelVerdict, Renewal, RetryVerdict
from ultimat3_jobs.testing.conformance.fences import Write, ack, every_settlement, every_write
from ultimat3_jobs.testing.conformance.harness import HOUR, LEASE, MARGIN, CapabilityRules, Harness, claims
from ultimat3_jobs.testing.conformance.keys import LIVE, LOST_KEYS, bring

CANCELLED = CancelVerdict.CANCELLED
TOO_LATE = CancelVerdict.NOT_CANCELLABLE


class TestCancels(CapabilityRules):
    """Rules of `cancel`."""

    needs = Capability.INTROSPECT

    @pytest.mark.parametrize("state", LIVE)
    def test_a_live_job_is_over_and_stays_so(self, harness: Harness, state: str) -> None:
        job = bring(harness, state)

        assert harness.driver().cancel([job.id], by="ann", reason="a mistake") == [CANCELLED]
        harness.advance(2 * HOUR)
        assert (harness.due(), harness.driver().sweep(limit=10), harness.claim()) == (0, [], [])
        assert harness.buckets() == {}

    @pytest.mark.parametrize("state", ["done", "cancelled", *LOST_KEYS])
    def test_a_job_that_has_ended_is_refused(self, harness: Harness, state: str) -> None:
        job = bring(harness, state)
        before = harness.buckets()

        assert [harness.driver().cancel([job.id]) for _ in range(2)] == [[TOO_LATE]] * 2
        assert harness.buckets() == before

    def test_an_unknown_job_is_not_found(self, harness: Harness) -> None:
        assert harness.driver().cancel([uuid7()]) == [CancelVerdict.NOT_FOUND]

    def test_a_job_asked_for_twice_is_cancelled_once(self, harness: Harness) -> None:
        job = bring(harness, "ready")

        assert harness.driver().cancel([job.id, job.id]) == [CANCELLED, TOO_LATE]
        assert harness.driver().cancel([job.id]) == [TOO_LATE]

    def test_a_cancelled_job_is_not_started_again(self, harness: Harness) -> None:
        job = bring(harness, "cancelled")

        assert harness.driver().retry([job.id]) == [RetryVerdict.NOT_RETRYABLE]

    @pytest.mark.parametrize("state", LIVE)
    def test_a_cancelled_job_lets_its_key_go_at_once(self, harness: Harness, state: str) -> None:
        job = bring(harness, state, dedupe_for=HOUR)
        harness.driver().cancel([job.id])
        following = harness.enqueue_one("k")

        assert not following.joined
        assert [claimed.claim.id for claimed in harness.claim()] == [following.id]

    @every_write
    def test_the_worker_of_a_cancelled_job_has_lost_its_claim(self, harness: Harness, write: Write) -> None:
        running = harness.running("k")
        harness.driver().cancel([running[0].id])

        assert write(harness, running) == [False]
        assert harness.buckets() == {}
        assert harness.driver().cancel([running[0].id]) == [TOO_LATE]

    def test_a_heartbeat_tells_a_cancelled_job_from_one_that_was_taken(self, harness: Harness) -> None:
        (taken,) = harness.running("a")
        harness.lapse()
        harness.driver().sweep(limit=10)
        (again,) = claims(harness.claim(1))
        cancelled, kept = harness.running(*"bc")
        harness.driver().cancel([cancelled.id])

        lease = timedelta(seconds=LEASE)
        for _ in range(2):
            assert harness.driver().heartbeat([taken, cancelled, kept], lease=lease) == [
                Renewal.LOST,
                Renewal.CANCELLED,
                Renewal.RENEWED,
            ]
        harness.driver().cancel([again.id])
        answers = harness.driver().heartbeat([taken, again], lease=lease)
        assert answers == [Renewal.CANCELLED] * 2, "nobody runs it again, whoever had it"

    def test_nothing_follows_a_cancelled_job_that_was_asked_again(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        assert harness.enqueue_one("k", while_running="again").asked_again
        harness.driver().cancel([claim.id])

        assert ack(harness, [claim]) == [False]
        assert harness.buckets() == {}

    def test_a_large_batch_is_answered_in_its_own_order(self, harness: Harness) -> None:
        jobs = harness.enqueue(*(f"{number}" for number in range(1_000)))
        asked = [uuid7() if at % 3 == 1 else job.id for at, job in enumerate(jobs)]

        assert harness.driver().cancel(asked) == [
            CancelVerdict.NOT_FOUND if at % 3 == 1 else CANCELLED for at in range(1_000)
        ]
        assert harness.buckets() == {"ready": 333}

    def test_two_who_cancel_in_opposite_orders_cancel_every_job_once(self, harness: Harness) -> None:
        jobs = [job.id for job in harness.enqueue(*(f"{number}" for number in range(200)))]
        one, other = harness.together(
            lambda: harness.driver().cancel(jobs), lambda: harness.driver().cancel(jobs[::-1])
        )

        assert {frozenset(pair) for pair in zip(one, other[::-1], strict=True)} == {frozenset({CANCELLED, TOO_LATE})}

    def test_a_cancel_against_an_ack_has_one_winner(self, harness: Harness) -> None:
        running = harness.running(*(f"{number}" for number in range(60)))
        acked, cancelled = harness.together(
            lambda: [ack(harness, [claim])[0] for claim in running],
            lambda: [harness.driver().cancel([claim.id])[0] for claim in running[::-1]][::-1],
        )

        for landed, verdict in zip(acked, cancelled, strict=True):
            assert landed is (verdict is TOO_LATE)
        assert harness.buckets() == {}

    def test_a_cancel_against_a_claim_is_never_lost(self, harness: Harness) -> None:
        jobs = [job.id for job in harness.enqueue(*(f"{number}" for number in range(60)))]
        claimed, cancelled = harness.together(
            lambda: [job.claim for _ in range(20) for job in harness.claim(3)],
            lambda: [harness.driver().cancel([job])[0] for job in jobs[::-1]],
        )

        assert set(cancelled) == {CANCELLED}, "a job is live before its claim and after it"
        assert harness.buckets() == {}
        assert not any(ack(harness, claimed))

    def test_a_cancel_against_a_sweep_has_the_last_word(self, harness: Harness) -> None:
        running = harness.running(*(f"{number}" for number in range(60)))
        harness.lapse()
        swept, cancelled = harness.together(
            lambda: [job.id for _ in range(20) for job in harness.driver().sweep(limit=3)],
            lambda: [harness.driver().cancel([claim.id])[0] for claim in running[::-1]],
        )

        assert set(cancelled) == {CANCELLED}
        assert len(set(swept)) == len(swept)
        assert harness.buckets() == {}

    @pytest.mark.parametrize("state", ["delayed", "running"])
    def test_a_cancel_in_an_open_transaction_is_waited_for_by_nobody_who_looks_for_work(
        self, harness: Harness, state: str
    ) -> None:
        if Capability.JOINS_TRANSACTION not in harness.driver().capabilities:
            pytest.skip("the driver does not declare JOINS_TRANSACTION")
        job = bring(harness, state)
        harness.advance(LEASE + MARGIN)
        with harness.transaction():
            harness.driver().cancel([job.id])
            moved = harness.meanwhile(lambda: (harness.due(), len(harness.driver().sweep(limit=10))))

        assert moved() == (0, 0)
        assert harness.buckets() == {}

    @every_settlement
    def test_a_settlement_that_meets_a_cancel_is_refused(self, harness: Harness, write: Write) -> None:
        if Capability.JOINS_TRANSACTION not in harness.driver().capabilities:
            pytest.skip("the driver does not declare JOINS_TRANSACTION")
        running = harness.running("k")
        with harness.transaction():
            harness.driver().cancel([running[0].id])
            answer = harness.meanwhile(lambda: write(harness, running))

        assert answer() == [False]
        assert harness.buckets() == {}

    def test_a_cancel_that_meets_a_settlement_is_refused_and_undoes_nothing(self, harness: Harness) -> None:
        if Capability.JOINS_TRANSACTION not in harness.driver().capabilities:
            pytest.skip("the driver does not declare JOINS_TRANSACTION")
        (claim,) = harness.running("k")
        cancel: Callable[[], list[CancelVerdict]] = lambda: harness.driver().cancel([claim.id])  # noqa: E731
        with harness.transaction():
            assert ack(harness, [claim]) == [True]
            verdicts = harness.meanwhile(cancel)

        assert verdicts() == [TOO_LATE]
        assert ack(harness, [claim]) == [True], "it is still known to have ended well"
