"""Every write of a worker is fenced on the token of its claim: who lost the claim changes nothing and is told so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import Ack, Claim, Nack, Progress, Renewal
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.harness import FAILURE, LEASE, MARGIN, Harness, claims, forged

Write = Callable[[Harness, list[Claim]], list[bool]]


def ack(harness: Harness, batch: list[Claim]) -> list[bool]:
    """End runs as done."""
    return harness.driver().ack([Ack(claim) for claim in batch])


def retry(harness: Harness, batch: list[Claim]) -> list[bool]:
    """Settle failed attempts that another follows."""
    return harness.driver().nack([Nack.retry(claim, delay=timedelta(0), failure=FAILURE) for claim in batch])


def bury(harness: Harness, batch: list[Claim]) -> list[bool]:
    """Settle failed attempts that no other follows."""
    return harness.driver().nack([Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE) for claim in batch])


def park(harness: Harness, batch: list[Claim]) -> list[bool]:
    """Park runs."""
    return harness.driver().nack([Nack.park(claim, delay=timedelta(0), reason="unknown name") for claim in batch])


def hand_back(harness: Harness, batch: list[Claim]) -> list[bool]:
    """Give jobs back."""
    return harness.driver().nack([Nack.hand_back(claim) for claim in batch])


def heartbeat(harness: Harness, batch: list[Claim]) -> list[bool]:
    """Renew leases; whether each was renewed."""
    renewals = harness.driver().heartbeat(batch, lease=timedelta(seconds=LEASE))
    assert Renewal.BUSY not in renewals, "no row was locked"
    return [renewal is Renewal.RENEWED for renewal in renewals]


def progress(harness: Harness, batch: list[Claim]) -> list[bool]:
    """Tell how far runs are."""
    return harness.driver().progress([Progress(claim, '{"done":1,"total":2}') for claim in batch])


SETTLEMENTS = [ack, retry, bury, park, hand_back]
every_settlement = pytest.mark.parametrize("write", SETTLEMENTS)
every_hold = pytest.mark.parametrize("write", [*SETTLEMENTS, heartbeat])
every_write = pytest.mark.parametrize("write", [*SETTLEMENTS, heartbeat, progress])
AFTER: dict[Write, dict[str, int]] = {
    ack: {},
    retry: {"delayed": 1},
    bury: {"dead": 1},
    park: {"suspended": 1},
    hand_back: {"ready": 1},
    heartbeat: {"running": 1},
    progress: {"running": 1},
}


class TestFences:
    """Rules of `ack`, `nack`, `heartbeat` and `progress`."""

    @every_hold
    def test_a_late_write_lands_while_nobody_has_taken_the_job(self, harness: Harness, write: Write) -> None:
        running = harness.running("k")
        harness.lapse()

        assert write(harness, running) == [True]
        assert harness.buckets() == AFTER[write]
        assert harness.driver().sweep(limit=10) == []

    def test_progress_lands_past_the_lease_and_renews_nothing(self, harness: Harness) -> None:
        running = harness.running("k")
        harness.lapse()

        assert progress(harness, running) == [True]
        assert len(harness.driver().sweep(limit=10)) == 1

    @every_write
    def test_a_write_after_the_sweep_is_refused(self, harness: Harness, write: Write) -> None:
        lost = harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)

        assert write(harness, lost) == [False]
        assert harness.buckets() == {"ready": 1}

    @every_write
    def test_a_write_after_a_sweep_that_buried_the_job_is_refused(self, harness: Harness, write: Write) -> None:
        lost = harness.running("k", max_attempts=1)
        harness.lapse()
        harness.driver().sweep(limit=10)

        assert write(harness, lost) == [False]
        assert harness.buckets() == {"dead": 1}

    @pytest.mark.parametrize("way", ["sweep", "retry", "park", "hand-back"])
    @every_write
    def test_a_write_with_the_token_of_an_earlier_claim_is_refused(
        self, harness: Harness, write: Write, way: str
    ) -> None:
        earlier = harness.running("k")
        match way:
            case "sweep":
                harness.lapse()
                assert len(harness.driver().sweep(limit=10)) == 1
            case "retry":
                assert retry(harness, earlier) == [True]
            case "park":
                assert park(harness, earlier) == [True]
            case "hand-back":
                assert hand_back(harness, earlier) == [True]
        harness.due()
        now = claims(harness.claim())

        assert write(harness, earlier) == [False]
        assert harness.buckets() == {"running": 1}
        assert ack(harness, now) == [True], "and the claim that counts is not disturbed"

    @every_write
    def test_an_earlier_token_renews_nothing_of_the_later_claim(self, harness: Harness, write: Write) -> None:
        earlier = harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)
        harness.claim()
        harness.advance(LEASE - MARGIN)
        write(harness, earlier)
        harness.advance(2 * MARGIN)

        assert len(harness.driver().sweep(limit=10)) == 1

    @every_write
    def test_a_write_with_a_made_up_token_is_refused(self, harness: Harness, write: Write) -> None:
        (claim,) = harness.running("k")

        assert write(harness, [forged(claim)]) == [False]
        assert harness.buckets() == {"running": 1}

    @every_write
    def test_a_write_on_an_unknown_job_is_refused(self, harness: Harness, write: Write) -> None:
        assert write(harness, [Claim(uuid7(), uuid7())]) == [False]

    @pytest.mark.parametrize("ending", [ack, bury])
    @every_write
    def test_a_write_on_a_job_that_its_claim_has_ended_changes_nothing(
        self, harness: Harness, write: Write, ending: Write
    ) -> None:
        ended = harness.running("k")
        ending(harness, ended)
        write(harness, ended)
        harness.due()

        assert harness.buckets() == AFTER[ending]

    @pytest.mark.parametrize("ending", [ack, bury])
    def test_an_ending_said_twice_is_recognised_as_ours(self, harness: Harness, ending: Write) -> None:
        ended = harness.running("k")

        assert [ending(harness, ended) for _ in range(3)] == [[True]] * 3

    @pytest.mark.parametrize("ending", [ack, bury])
    def test_a_job_that_ended_is_not_renewed(self, harness: Harness, ending: Write) -> None:
        ended = harness.running("k")
        ending(harness, ended)

        assert heartbeat(harness, ended) == [False]

    @pytest.mark.parametrize("ending", [ack, bury])
    def test_an_ending_with_a_made_up_token_is_never_recognised(self, harness: Harness, ending: Write) -> None:
        (ended,) = harness.running("k")
        ending(harness, [ended])

        assert ending(harness, [forged(ended)]) == [False]

    @every_write
    def test_answers_come_row_by_row(self, harness: Harness, write: Write) -> None:
        one, two, three = harness.running(*"abc")

        assert write(harness, [forged(one), two, Claim(uuid7(), uuid7()), three]) == [False, True, False, True]

    @pytest.mark.parametrize("order", [1, -1], ids=["stale first", "stale last"])
    @every_write
    def test_two_claims_of_one_job_in_one_batch_are_told_apart(
        self, harness: Harness, write: Write, order: int
    ) -> None:
        (stale,) = harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)
        (ours,) = claims(harness.claim())

        assert write(harness, [stale, ours][::order]) == [False, True][::order]
        assert harness.buckets() == AFTER[write]
