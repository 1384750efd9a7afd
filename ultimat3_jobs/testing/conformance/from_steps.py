"""Starting dead letters again from one of the steps that they recorded."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import pytest

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import ClaimedJob, RetryVerdict, StepKind, StepRecord, StepState
from ultimat3_jobs.testing.conformance.events import event, got, publish, wait
from ultimat3_jobs.testing.conformance.fences import ack, bury
from ultimat3_jobs.testing.conformance.harness import CapabilityRules, Harness

STEPS = ("reserve", "charge", "await the bank", "book")  # in no order of the alphabet
BUDGET = 1_000_000


class Letter(NamedTuple):
    """A dead letter."""

    id: UUID
    run_id: UUID


def record(harness: Harness, job: ClaimedJob, seq: int, name: str) -> None:
    """Record one step of a running job."""
    step = StepRecord(
        run_id=job.run_id,
        name=name,
        seq=seq,
        kind=StepKind.STEP,
        state=StepState.DONE,
        attempt=job.attempt,
        output=f'"{name}"',
    )
    assert harness.driver().record_step(job.claim, step) is not None


def begun(harness: Harness, key: str, *steps: str) -> ClaimedJob:
    """Queue a job and claim it; it has recorded these steps."""
    harness.enqueue(key)
    (job,) = harness.claim(1)
    for seq, name in enumerate(steps, 1):
        record(harness, job, seq, name)
    return job


def dead(harness: Harness, key: str = "k", *steps: str) -> Letter:
    """Queue a job and bury it; it has recorded these steps."""
    job = begun(harness, key, *steps)
    assert bury(harness, [job.claim]) == [True]
    return Letter(job.claim.id, job.run_id)


def recorded(harness: Harness, letter: Letter) -> list[tuple[str, str | None]]:
    """Return the names and outputs of what a run has recorded, in its order."""
    return [(one.name, one.output) for one in harness.driver().steps(letter.run_id, budget=BUDGET)]


def outputs(*names: str) -> list[tuple[str, str | None]]:
    """Return what `recorded` returns of these steps."""
    return [(name, f'"{name}"') for name in names]


class TestRetriesFromAStep(CapabilityRules):
    """Rules of `retry` with `from_step`."""

    needs = Capability.INTROSPECT | Capability.STEPS

    def test_a_retry_as_it_stands_keeps_what_was_recorded(self, harness: Harness) -> None:
        letter = dead(harness, "k", *STEPS)

        assert harness.driver().retry([letter.id]) == [RetryVerdict.RETRIED]
        assert recorded(harness, letter) == outputs(*STEPS)

    @pytest.mark.parametrize("at", range(len(STEPS)))
    def test_the_step_and_what_came_after_it_are_forgotten(self, harness: Harness, at: int) -> None:
        letter, other = (dead(harness, key, *STEPS) for key in ("k", "other"))

        assert harness.driver().retry([letter.id], from_step=STEPS[at]) == [RetryVerdict.RETRIED]
        assert recorded(harness, letter) == outputs(*STEPS[:at])
        assert recorded(harness, other) == outputs(*STEPS), "another run is another run"

    def test_what_was_forgotten_is_recorded_again(self, harness: Harness) -> None:
        letter = dead(harness, "k", *STEPS)
        harness.driver().retry([letter.id], from_step="charge")
        (job,) = harness.claim()
        record(harness, job, 2, "charge")

        assert (job.claim.id, job.run_id, job.attempt) == (letter.id, letter.run_id, 1)
        assert recorded(harness, letter) == outputs("reserve", "charge")

    def test_a_letter_without_the_step_is_refused_and_stays_as_it_is(self, harness: Harness) -> None:
        with_it, without, bare = dead(harness, "a", *STEPS), dead(harness, "b", "reserve"), dead(harness, "c")
        verdicts = harness.driver().retry([without.id, with_it.id, bare.id], from_step="charge")

        assert verdicts == [RetryVerdict.NO_STEP, RetryVerdict.RETRIED, RetryVerdict.NO_STEP]
        assert harness.buckets() == {"ready": 1, "dead": 2}
        assert recorded(harness, without) == outputs("reserve")

    @pytest.mark.parametrize("name", ["", "Charge", " charge", "x" * 1_000, "a\x00b", "\ud800"])
    def test_no_other_text_names_a_step(self, harness: Harness, name: str) -> None:
        letter = dead(harness, "k", *STEPS)

        assert harness.driver().retry([letter.id], from_step=name) == [RetryVerdict.NO_STEP]
        assert recorded(harness, letter) == outputs(*STEPS)

    @pytest.mark.parametrize("state", ["running", "done", "cancelled"])
    def test_what_cannot_be_retried_keeps_its_steps(self, harness: Harness, state: str) -> None:
        job = begun(harness, "k", *STEPS)
        if state == "done":
            ack(harness, [job.claim])
        elif state == "cancelled":
            harness.driver().cancel([job.claim.id])

        verdicts = harness.driver().retry([job.claim.id, uuid7()], from_step="charge")
        assert verdicts == [RetryVerdict.NOT_RETRYABLE, RetryVerdict.NOT_FOUND]
        assert recorded(harness, Letter(job.claim.id, job.run_id)) == outputs(*STEPS)

    def test_a_letter_whose_key_was_taken_keeps_its_steps(self, harness: Harness) -> None:
        older, newer = dead(harness, "k", *STEPS), dead(harness, "k", *STEPS)

        verdicts = harness.driver().retry([older.id, newer.id], from_step="charge")
        assert verdicts == [RetryVerdict.SUPERSEDED, RetryVerdict.RETRIED]
        assert harness.driver().retry([older.id], from_step="charge") == [RetryVerdict.KEY_HELD]
        assert recorded(harness, older) == outputs(*STEPS)

    def test_of_one_key_the_newest_that_has_the_step_starts(self, harness: Harness) -> None:
        older, newer = dead(harness, "k", *STEPS), dead(harness, "k", "reserve")

        verdicts = harness.driver().retry([older.id, newer.id], from_step="charge")
        assert verdicts == [RetryVerdict.RETRIED, RetryVerdict.NO_STEP]

    def test_a_letter_asked_for_twice_starts_once(self, harness: Harness) -> None:
        letter = dead(harness, "k", *STEPS)
        verdicts = harness.driver().retry([letter.id, letter.id], from_step="charge")

        assert verdicts == [RetryVerdict.RETRIED, RetryVerdict.NOT_RETRYABLE]


class TestRetriesFromAWait(CapabilityRules):
    """Rules of `retry` where steps took events."""

    needs = Capability.INTROSPECT | Capability.STEPS | Capability.EVENTS

    @pytest.mark.parametrize("from_step", ["first", None])
    def test_an_event_that_was_forgotten_is_given_again(self, harness: Harness, from_step: str | None) -> None:
        job = begun(harness, "k")
        publish(harness, event(1), event(2))
        assert got(wait(harness, job, "first")) == 1
        bury(harness, [job.claim])

        assert harness.driver().retry([job.claim.id], from_step=from_step) == [RetryVerdict.RETRIED]
        (again,) = harness.claim()
        names = ["anew", "second"] if from_step else ["first", "second"]
        assert [got(wait(harness, again, name)) for name in names] == [1, 2]
