"""One live row for a key in its namespace, and what a second enqueue of that key gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.records import Ack, Nack, Receipt
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.harness import (
    FAILURE,
    HOUR,
    MARGIN,
    CapabilityRules,
    Harness,
    keys,
    request,
)

LIVE = ("ready", "delayed", "running", "suspended")
LOST_KEYS = ("dead", "failed", "worker-lost")


def bring(harness: Harness, state: str, key: str = "k", **options: object) -> Receipt:
    """Queue a job under `key` and bring it to `state`."""
    driver = harness.driver()
    receipt = harness.enqueue_one(key, max_attempts=1, **({"delay": HOUR} if state == "delayed" else {}), **options)
    if state in ("ready", "delayed"):
        return receipt
    (job,) = harness.claim(1)
    match state:
        case "suspended":
            driver.nack([Nack.park(job.claim, delay=timedelta(hours=1), reason="unknown name")])
        case "done":
            driver.ack([Ack(job.claim)])
        case "dead":
            driver.nack([Nack.bury(job.claim, stop=Stop.TERMINAL, failure=FAILURE)])
        case "failed":
            driver.nack([Nack.bury(job.claim, stop=Stop.EXHAUSTED, failure=FAILURE, dead_letter=False)])
        case "worker-lost":
            harness.lapse()
            driver.sweep(limit=10)
        case "cancelled":
            driver.cancel([receipt.id])
    return receipt


class TestKeys:
    """Rules of `enqueue`."""

    def test_a_free_key_queues_a_job_under_the_id_that_was_asked_for(self, harness: Harness) -> None:
        asked = request("k")

        assert harness.driver().enqueue([asked]) == [Receipt(asked.id, asked.id)]

    @pytest.mark.parametrize("state", LIVE)
    def test_a_live_job_holds_its_key(self, harness: Harness, state: str) -> None:
        first = bring(harness, state)

        assert harness.enqueue("k") == [Receipt(first.id, first.run_id, joined=True)]
        assert sum(harness.buckets().values()) == 1

    @pytest.mark.parametrize("state", ["done", *LOST_KEYS])
    def test_a_finished_job_lets_its_key_go(self, harness: Harness, state: str) -> None:
        first = bring(harness, state)
        second = harness.enqueue_one("k")

        assert not second.joined
        assert second.id != first.id
        assert [job.claim.id for job in harness.claim()] == [second.id]

    def test_a_key_is_of_its_job(self, harness: Harness) -> None:
        receipts = [harness.enqueue_one("k", name=name) for name in ("shop.ship", "shop.bill")]

        assert [receipt.joined for receipt in receipts] == [False, False]

    def test_a_key_is_of_its_tenant(self, harness: Harness) -> None:
        tenants = ["acme", "globex", None, "none", "None", "null", "-"]
        first = [harness.enqueue_one("k", tenant_id=tenant) for tenant in tenants]
        second = [harness.enqueue_one("k", tenant_id=tenant) for tenant in tenants]

        assert [receipt.joined for receipt in first] == [False] * len(tenants)
        assert [receipt.id for receipt in second] == [receipt.id for receipt in first]
        assert {job.claim.id: job.tenant_id for job in harness.claim()} == {
            receipt.id: tenant for receipt, tenant in zip(first, tenants, strict=True)
        }

    def test_jobs_without_a_tenant_share_one_namespace(self, harness: Harness) -> None:
        first = harness.enqueue_one("k", tenant_id=None)

        assert harness.enqueue("k", tenant_id=None) == [Receipt(first.id, first.run_id, joined=True)]

    @pytest.mark.parametrize("state", ["running", "done"])
    def test_another_input_under_a_held_key_is_refused(self, harness: Harness, state: str) -> None:
        first = bring(harness, state, dedupe_for=HOUR)
        other = harness.enqueue_one("k", input={"other": True}, while_running="again")

        assert other == Receipt(first.id, first.run_id, reused=True)
        assert other.refused
        harness.lapse()
        harness.driver().sweep(limit=10)
        assert sum(harness.buckets().values()) == (1 if state == "running" else 0), "and nothing follows"

    def test_another_input_joins_where_the_caller_only_wants_a_warning(self, harness: Harness) -> None:
        first = harness.enqueue_one("k")
        other = harness.enqueue_one("k", input={"key": "other"}, on_key_reuse="warn")

        assert other == Receipt(first.id, first.run_id, joined=True, reused=True)
        assert keys(harness.claim()) == ["k"]

    def test_a_done_job_holds_its_key_for_as_long_as_it_was_asked_to(self, harness: Harness) -> None:
        first = bring(harness, "done", dedupe_for=HOUR)

        harness.advance(HOUR - MARGIN)
        assert harness.enqueue("k") == [Receipt(first.id, first.run_id, joined=True)]
        harness.advance(2 * MARGIN)
        assert not harness.enqueue_one("k").joined
        assert harness.buckets() == {"ready": 1}

    def test_the_time_of_holding_counts_from_the_enqueue(self, harness: Harness) -> None:
        harness.enqueue("k", dedupe_for=HOUR)
        harness.advance(HOUR - 10 * MARGIN)
        (job,) = harness.claim()
        harness.driver().ack([Ack(job.claim)])

        assert harness.enqueue_one("k").joined
        harness.advance(11 * MARGIN)
        assert not harness.enqueue_one("k").joined

    def test_the_time_of_holding_counts_from_the_staging(self, harness: Harness) -> None:
        bring(harness, "done", dedupe_for=HOUR, requested_at=datetime(2020, 1, 1, tzinfo=UTC))

        assert not harness.enqueue_one("k").joined

    def test_a_live_job_holds_its_key_past_the_time_of_holding(self, harness: Harness) -> None:
        first = harness.enqueue_one("k", dedupe_for=HOUR)
        harness.advance(HOUR + MARGIN)

        assert harness.enqueue_one("k") == Receipt(first.id, first.run_id, joined=True)

    @pytest.mark.parametrize("state", LOST_KEYS)
    def test_only_a_done_job_goes_on_holding_its_key(self, harness: Harness, state: str) -> None:
        bring(harness, state, dedupe_for=10 * HOUR)

        assert not harness.enqueue_one("k").joined

    def test_a_batch_may_hold_a_key_twice(self, harness: Harness) -> None:
        first, second, other = harness.enqueue("k", "k", "other")

        assert [first.joined, second.joined] == [False, True], "the first of a batch gets it"
        assert first.id == second.id
        assert not other.joined
        assert harness.buckets() == {"ready": 2}

    def test_enqueues_of_one_key_at_once_queue_one_job(self, harness: Harness) -> None:
        names = [f"{number}" for number in range(20)]
        answers = harness.together(
            *(lambda shift=shift: harness.enqueue(*names[shift:], *names[:shift]) for shift in (0, 5, 10, 15))
        )
        by_key = {
            name: [answer[(at - shift) % 20] for answer, shift in zip(answers, (0, 5, 10, 15), strict=True)]
            for at, name in enumerate(names)
        }

        assert all(len({receipt.id for receipt in receipts}) == 1 for receipts in by_key.values())
        assert all(sum(not receipt.joined for receipt in receipts) == 1 for receipts in by_key.values())
        assert sorted(keys(harness.claim())) == sorted(names)

    def test_an_expired_key_taken_at_once_queues_one_job(self, harness: Harness) -> None:
        names = [f"{number}" for number in range(10)]
        running = harness.running(*names, dedupe_for=HOUR)
        harness.driver().ack([Ack(claim) for claim in running])
        harness.advance(HOUR + MARGIN)
        answers = harness.together(*[lambda: harness.enqueue(*names)] * 3)

        assert all(sum(not answer[at].joined for answer in answers) == 1 for at in range(10))
        assert sorted(keys(harness.claim())) == names


class TestHolders(CapabilityRules):
    """Rules of `find_holders`."""

    needs = Capability.INTROSPECT

    def test_a_free_key_has_no_holder(self, harness: Harness) -> None:
        assert harness.driver().find_holders([request("k")]) == [None]
        assert harness.enqueue_one("k").joined is False, "and the look takes nothing"

    @pytest.mark.parametrize("state", [*LIVE, "done", *LOST_KEYS])
    def test_a_look_up_says_what_joining_would_give(self, harness: Harness, state: str) -> None:
        bring(harness, state, dedupe_for=10 * HOUR)
        again = request("k", while_running="again")
        found = harness.driver().find_holders([again, request("k", input={"other": True}), request("free")])
        (receipt,) = harness.driver().enqueue([again])

        if state in LOST_KEYS:
            assert found == [None, None, None]
        else:
            assert found == [receipt, Receipt(receipt.id, receipt.run_id, reused=True), None]
            assert receipt.asked_again is (state == "running")

    def test_an_expired_key_has_no_holder(self, harness: Harness) -> None:
        bring(harness, "done", dedupe_for=HOUR)
        harness.advance(HOUR + MARGIN)

        assert harness.driver().find_holders([request("k")]) == [None]

    def test_a_look_up_never_finds_another_tenants_job(self, harness: Harness) -> None:
        mine = harness.enqueue_one("k", tenant_id="acme")
        tenants = ["acme", "globex", None, "none"]
        found = harness.driver().find_holders([request("k", tenant_id=tenant) for tenant in tenants])

        assert found == [Receipt(mine.id, mine.run_id, joined=True), None, None, None]
