"""Every method takes a batch: none, many, some of them unknown, and in any order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import Claim, Nack, Renewal
from ultimat3_jobs.testing.conformance.fences import Write, ack, bury, every_write, hand_back
from ultimat3_jobs.testing.conformance.harness import HOUR, LEASE, MARGIN, Harness, claims, keys

MANY = 1_000


def asked(harness: Harness, names: list[str]) -> None:
    """Ask running jobs again."""
    assert all(receipt.asked_again for receipt in harness.enqueue(*names, while_running="again"))


class TestBatches:
    """Rules of all methods."""

    def test_an_empty_batch_is_answered_with_nothing(self, harness: Harness) -> None:
        driver = harness.driver()

        assert driver.enqueue([]) == []
        assert driver.ack([]) == []
        assert driver.nack([]) == []
        assert driver.heartbeat([], lease=timedelta(seconds=LEASE)) == []
        assert driver.progress([]) == []
        assert (driver.sweep(limit=10), driver.promote(limit=10), harness.claim()) == ([], 0, [])

    @every_write
    def test_a_large_batch_is_answered_in_its_own_order(self, harness: Harness, write: Write) -> None:
        receipts = harness.enqueue(*(f"{number}" for number in range(MANY)))
        assert [receipt.joined for receipt in receipts] == [False] * MANY
        jobs = harness.claim(MANY)
        assert sorted(job.claim.id for job in jobs) == sorted(receipt.id for receipt in receipts)

        batch = [job.claim if at % 3 else Claim(uuid7(), uuid7()) for at, job in enumerate(jobs)]
        assert write(harness, batch) == [at % 3 > 0 for at in range(MANY)]

    def test_a_large_batch_joins_in_its_own_order(self, harness: Harness) -> None:
        held = harness.enqueue(*(f"{number}" for number in range(0, MANY, 2)))
        receipts = harness.enqueue(*(f"{number}" for number in range(MANY)))

        assert [receipt.joined for receipt in receipts] == [at % 2 == 0 for at in range(MANY)]
        assert [receipt.id for receipt in receipts[::2]] == [receipt.id for receipt in held]

    def test_a_large_batch_is_promoted_and_swept(self, harness: Harness) -> None:
        harness.enqueue(*(f"{number}" for number in range(MANY)), delay=HOUR)
        harness.advance(HOUR + MARGIN)

        assert harness.due(limit=MANY) == MANY
        assert len(harness.claim(MANY)) == MANY
        harness.lapse()
        assert len(harness.driver().sweep(limit=MANY)) == MANY
        assert harness.buckets() == {"ready": MANY}

    def test_a_batch_that_names_a_claim_twice_settles_it_once(self, harness: Harness) -> None:
        (claim,) = harness.running("k")

        assert harness.driver().nack([Nack.hand_back(claim)] * 2) in ([True, True], [True, False])
        assert [job.attempt for job in harness.claim()] == [1]

    @pytest.mark.parametrize("write", [ack, bury, hand_back], ids=["ack", "bury", "hand_back"])
    def test_settlements_in_opposite_orders_do_not_block_one_another(self, harness: Harness, write: Write) -> None:
        running = harness.running(*(f"{number}" for number in range(200)))
        both = harness.together(lambda: write(harness, running), lambda: write(harness, running[::-1]))

        assert all(one or other for one, other in zip(both[0], both[1][::-1], strict=True))

    def test_heartbeats_in_opposite_orders_do_not_block_one_another(self, harness: Harness) -> None:
        running = harness.running(*(f"{number}" for number in range(200)))
        lease = timedelta(seconds=LEASE)
        beats: list[Callable[[], list[Renewal]]] = [
            lambda batch=batch: harness.driver().heartbeat(batch, lease=lease)  # type: ignore[misc]
            for batch in (running, running[::-1])
        ]

        for answers in harness.together(*beats):
            assert set(answers) <= {Renewal.RENEWED, Renewal.BUSY}

    def test_enqueues_in_opposite_orders_do_not_block_one_another(self, harness: Harness) -> None:
        names = [f"{number:03}" for number in range(300)]
        one, other = harness.together(lambda: harness.enqueue(*names), lambda: harness.enqueue(*names[::-1]))

        assert [receipt.id for receipt in one] == [receipt.id for receipt in other[::-1]]

    def test_requests_to_run_again_in_opposite_orders_do_not_block_one_another(self, harness: Harness) -> None:
        names = [f"{number:03}" for number in range(200)]
        running = harness.running(*names)
        harness.together(
            lambda: asked(harness, names), lambda: asked(harness, names[::-1]), lambda: asked(harness, names)
        )
        ack(harness, running)

        assert sorted(keys(harness.claim(MANY))) == names

    def test_expired_keys_in_opposite_orders_do_not_block_one_another(self, harness: Harness) -> None:
        names = [f"{number:03}" for number in range(200)]
        ack(harness, harness.running(*names, dedupe_for=HOUR))
        harness.advance(HOUR + MARGIN)
        one, other = harness.together(lambda: harness.enqueue(*names), lambda: harness.enqueue(*names[::-1]))

        assert [receipt.id for receipt in one] == [receipt.id for receipt in other[::-1]]
        assert len(claims(harness.claim(MANY))) == len(names)
