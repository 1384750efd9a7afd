"""Starting dead letters again."""

from __future__ import annotations

from typing import Any

import pytest

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import Ack, Receipt, RetryVerdict
from ultimat3_jobs.testing.conformance.fences import Write, ack, bury, every_write
from ultimat3_jobs.testing.conformance.harness import HOUR, MARGIN, CapabilityRules, Harness, claims
from ultimat3_jobs.testing.conformance.keys import LIVE, LOST_KEYS, bring

MANY = 1_000


def dead(harness: Harness, *names: str, **options: Any) -> list[Receipt]:
    """Queue one job for each name and bury them all."""
    receipts = harness.enqueue(*names, **options)
    bury(harness, claims(harness.claim(len(names))))
    return receipts


class TestRetries(CapabilityRules):
    """Rules of `retry`."""

    needs = Capability.INTROSPECT

    @pytest.mark.parametrize("state", LOST_KEYS)
    def test_a_dead_letter_starts_again_with_its_attempts_anew(self, harness: Harness, state: str) -> None:
        letter = bring(harness, state)

        assert harness.driver().retry([letter.id], by="ann", reason="mended") == [RetryVerdict.RETRIED]
        (job,) = harness.claim()
        assert (job.claim.id, job.run_id, job.attempt, job.parks) == (letter.id, letter.run_id, 1, 0)
        assert ack(harness, [job.claim]) == [True]

    def test_a_dead_letter_that_fails_again_is_dead_again(self, harness: Harness) -> None:
        letter = bring(harness, "worker-lost")
        harness.driver().retry([letter.id])
        harness.claim()
        harness.lapse()

        assert [swept.state for swept in harness.driver().sweep(limit=10)] == ["dead"]
        assert harness.driver().retry([letter.id]) == [RetryVerdict.RETRIED]

    @pytest.mark.parametrize("state", [*LIVE, "done", "cancelled"])
    def test_a_job_that_is_live_or_done_is_not_started_again(self, harness: Harness, state: str) -> None:
        job = bring(harness, state)
        before = harness.buckets()

        assert harness.driver().retry([job.id, job.id]) == [RetryVerdict.NOT_RETRYABLE] * 2
        assert harness.buckets() == before

    def test_an_unknown_job_is_not_found(self, harness: Harness) -> None:
        assert harness.driver().retry([uuid7()]) == [RetryVerdict.NOT_FOUND]

    def test_a_dead_letter_asked_for_twice_starts_once(self, harness: Harness) -> None:
        letter = bring(harness, "dead")

        assert harness.driver().retry([letter.id, letter.id]) == [RetryVerdict.RETRIED, RetryVerdict.NOT_RETRYABLE]
        assert harness.buckets() == {"ready": 1}

    def test_a_retried_job_holds_its_key(self, harness: Harness) -> None:
        letter = bring(harness, "dead")
        harness.driver().retry([letter.id])

        assert harness.enqueue("k") == [Receipt(letter.id, letter.run_id, joined=True)]

    def test_a_dead_letter_whose_key_was_taken_waits_until_it_is_free(self, harness: Harness) -> None:
        letter = bring(harness, "dead")
        taker = harness.enqueue_one("k")

        assert harness.driver().retry([letter.id]) == [RetryVerdict.KEY_HELD]
        (job,) = harness.claim()
        assert job.claim.id == taker.id
        ack(harness, [job.claim])
        assert harness.driver().retry([letter.id]) == [RetryVerdict.RETRIED]

    def test_a_key_of_another_tenant_holds_nothing_up(self, harness: Harness) -> None:
        letter = bring(harness, "dead", tenant_id="acme")
        for tenant in ("globex", None):
            harness.enqueue("k", tenant_id=tenant)

        assert harness.driver().retry([letter.id]) == [RetryVerdict.RETRIED]

    def test_a_key_held_by_a_done_job_is_held_until_it_expires(self, harness: Harness) -> None:
        letter = bring(harness, "dead")
        bring(harness, "done", dedupe_for=HOUR)

        harness.advance(HOUR - MARGIN)
        assert harness.driver().retry([letter.id]) == [RetryVerdict.KEY_HELD]
        harness.advance(2 * MARGIN)
        assert harness.driver().retry([letter.id]) == [RetryVerdict.RETRIED]

    def test_one_key_that_was_taken_does_not_spoil_a_batch(self, harness: Harness) -> None:
        names = [f"{number}" for number in range(21)]
        letters = dead(harness, *names)
        harness.enqueue("10")
        verdicts = harness.driver().retry([letter.id for letter in letters])

        assert verdicts.pop(10) is RetryVerdict.KEY_HELD
        assert verdicts == [RetryVerdict.RETRIED] * 20
        assert harness.buckets() == {"ready": 21, "dead": 1}

    @pytest.mark.parametrize("order", [1, -1])
    def test_of_several_dead_letters_of_one_key_the_newest_starts(self, harness: Harness, order: int) -> None:
        letters = [dead(harness, "k")[0].id for _ in range(3)]
        others = [dead(harness, "k", tenant_id=tenant)[0].id for tenant in ("globex", None)]
        verdicts = harness.driver().retry([*letters[::order], *others])

        assert verdicts[:3][::order] == [RetryVerdict.SUPERSEDED, RetryVerdict.SUPERSEDED, RetryVerdict.RETRIED]
        assert verdicts[3:] == [RetryVerdict.RETRIED] * 2, "another tenant's key is another key"
        assert sorted(job.claim.id for job in harness.claim()) == sorted([letters[-1], *others])

    def test_an_older_dead_letter_can_be_asked_for_by_itself(self, harness: Harness) -> None:
        older, newer = (dead(harness, "k")[0].id for _ in range(2))

        assert harness.driver().retry([older]) == [RetryVerdict.RETRIED]
        assert harness.driver().retry([older, newer]) == [RetryVerdict.NOT_RETRYABLE, RetryVerdict.KEY_HELD]

    def test_no_dead_letter_of_a_key_that_is_held_starts(self, harness: Harness) -> None:
        letters = [dead(harness, "k")[0].id for _ in range(2)]
        harness.enqueue("k")

        assert harness.driver().retry(letters) == [RetryVerdict.KEY_HELD] * 2

    def test_a_large_batch_is_answered_in_its_own_order(self, harness: Harness) -> None:
        names = [f"{number}" for number in range(MANY)]
        letters = dead(harness, *names)
        harness.enqueue(*names[::4])
        asked = [uuid7() if at % 4 == 1 else letter.id for at, letter in enumerate(letters)]

        assert harness.driver().retry(asked) == [
            (RetryVerdict.KEY_HELD, RetryVerdict.NOT_FOUND, RetryVerdict.RETRIED, RetryVerdict.RETRIED)[at % 4]
            for at in range(MANY)
        ]

    def test_retries_in_opposite_orders_start_every_job_once(self, harness: Harness) -> None:
        letters = [letter.id for letter in dead(harness, *(f"{number}" for number in range(200)))]
        one, other = harness.together(
            lambda: harness.driver().retry(letters), lambda: harness.driver().retry(letters[::-1])
        )

        assert {*one, *other} <= {RetryVerdict.RETRIED, RetryVerdict.NOT_RETRYABLE}
        for mine, theirs in zip(one, other[::-1], strict=True):
            assert [mine, theirs].count(RetryVerdict.RETRIED) == 1

    def test_retries_and_enqueues_of_one_key_at_once_start_one_job(self, harness: Harness) -> None:
        names = [f"{number}" for number in range(15)]
        older, newer = dead(harness, *names), dead(harness, *names)

        def retry(letters: list[Receipt]) -> list[RetryVerdict]:
            return [harness.driver().retry([letter.id])[0] for letter in letters]

        def enqueue() -> list[Receipt]:
            return [harness.enqueue_one(name) for name in names]

        *verdicts, receipts = harness.together(
            lambda: retry(older), lambda: retry(older), lambda: retry(newer), enqueue
        )
        for at in range(len(names)):
            starts = [answer[at] is RetryVerdict.RETRIED for answer in verdicts] + [not receipts[at].joined]
            assert sum(starts) == 1, names[at]
        assert harness.depth().ready == len(names)

    @every_write
    def test_a_token_of_its_earlier_life_is_refused(self, harness: Harness, write: Write) -> None:
        earlier = harness.running("k")
        bury(harness, earlier)
        harness.driver().retry([earlier[0].id])

        assert write(harness, earlier) == [False]
        assert harness.buckets() == {"ready": 1}
        (job,) = harness.claim()
        assert write(harness, earlier) == [False]
        assert harness.driver().ack([Ack(job.claim)]) == [True]
        assert write(harness, earlier) == [False]
