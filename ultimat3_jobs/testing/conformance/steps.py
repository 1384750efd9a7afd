"""Steps: recorded under the claim's fence, read back in their order, and the suspension of the run that asks for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.records import Ack, Claim, Nack, StepKind, StepRecord, StepState, Suspension
from ultimat3_jobs.testing.conformance.harness import HOUR, MARGIN, CapabilityRules, Harness, claims, forged

BUDGET = 1_000_000


def step(run_id: UUID, name: str = "first", seq: int = 1, **options: Any) -> StepRecord:
    """Return a step that is done."""
    values: dict[str, Any] = {"kind": StepKind.STEP, "state": StepState.DONE, "attempt": 1, "output": '{"n":1}'}
    return StepRecord(run_id=run_id, name=name, seq=seq, **(values | options))


def names(harness: Harness, run_id: UUID) -> list[str]:
    """Return the names of what a run has recorded, in the order in which it is read."""
    return [one.name for one in harness.driver().steps(run_id, budget=BUDGET)]


class TestSteps(CapabilityRules):
    """Rules of `steps`, `record_step`, `step_output` and `recorded`."""

    needs = Capability.STEPS

    def test_what_is_recorded_is_read_back_in_its_order(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        driver = harness.driver()
        for number, name in enumerate(("b", "a", "c"), start=1):
            stored = driver.record_step(claim, step(claim.id, name, number, output=f'"{name}"'))
            assert stored is not None
            assert (stored.name, stored.output) == (name, f'"{name}"')

        read = driver.steps(claim.id, budget=BUDGET)
        assert [(one.seq, one.name, one.kind, one.state, one.output) for one in read] == [
            (1, "b", "step", "done", '"b"'),
            (2, "a", "step", "done", '"a"'),
            (3, "c", "step", "done", '"c"'),
        ]

    def test_a_run_has_steps_of_its_own(self, harness: Harness) -> None:
        first, second = harness.running("k", "l")
        harness.driver().record_step(first, step(first.id, "mine"))
        harness.driver().record_step(second, step(second.id, "other"))

        assert names(harness, first.id) == ["mine"]
        assert harness.driver().step_output(second.id, "mine") is None

    def test_a_step_is_recorded_once(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        first = harness.driver().record_step(claim, step(claim.id))

        assert harness.driver().record_step(claim, step(claim.id, seq=9, output="2")) == first
        assert harness.driver().steps(claim.id, budget=BUDGET) == [first]

    def test_outputs_over_the_budget_are_read_one_by_one(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        text = '"' + "x" * 100 + '"'
        for number in (1, 2, 3):
            harness.driver().record_step(claim, step(claim.id, f"s{number}", number, output=text))
        harness.driver().record_step(claim, step(claim.id, "nothing", 4, output=None))

        read = harness.driver().steps(claim.id, budget=250)
        assert [(one.name, one.output, one.left_out) for one in read] == [
            ("s1", text, False),
            ("s2", text, False),
            ("s3", None, True),
            ("nothing", None, False),
        ]
        assert harness.driver().step_output(claim.id, "s3") == text

    def test_who_lost_the_claim_records_nothing(self, harness: Harness) -> None:
        (lost,) = harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)
        assert harness.driver().record_step(lost, step(lost.id)) is None
        (second,) = claims(harness.claim())

        assert harness.driver().record_step(lost, step(lost.id)) is None
        assert harness.driver().record_step(forged(second), step(lost.id)) is None
        assert names(harness, lost.id) == []
        assert harness.driver().record_step(second, step(lost.id)) is not None

    def test_a_checkpoint_is_written_anew_and_lets_the_attempts_count_anew(self, harness: Harness) -> None:
        harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)
        (second,) = harness.claim()

        assert second.attempt == 2
        for number in (1, 2):
            assert harness.driver().checkpoint(second.claim, step(second.run_id, "sweep", output=str(number)))
        assert harness.driver().step_output(second.run_id, "sweep") == "2"
        harness.lapse()
        harness.driver().sweep(limit=10)
        assert [one.attempt for one in harness.claim()] == [2]

    def test_who_lost_the_claim_writes_no_checkpoint(self, harness: Harness) -> None:
        (lost,) = harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)
        (second,) = harness.claim()

        assert not harness.driver().checkpoint(lost, step(lost.id, "sweep"))
        assert not harness.driver().checkpoint(forged(second.claim), step(lost.id, "sweep"))
        assert names(harness, lost.id) == []
        harness.driver().ack([Ack(second.claim)])
        assert not harness.driver().checkpoint(second.claim, step(lost.id, "sweep"))

    def test_a_late_record_lands_while_nobody_has_taken_the_job(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        harness.lapse()

        assert harness.driver().record_step(claim, step(claim.id)) is not None

    def test_a_run_that_has_ended_records_nothing(self, harness: Harness) -> None:
        done, stopped = harness.running("k", "l")
        harness.driver().ack([Ack(done)])
        harness.driver().cancel([stopped.id])

        assert harness.driver().record_step(done, step(done.id)) is None
        assert harness.driver().record_step(stopped, step(stopped.id)) is None

    def test_a_record_whose_answer_was_lost_is_recognised(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        assert not harness.driver().recorded(claim, "first")
        harness.driver().record_step(claim, step(claim.id))

        assert harness.driver().recorded(claim, "first")
        assert not harness.driver().recorded(claim, "other")
        assert not harness.driver().recorded(forged(claim), "first")

    def test_steps_outlive_attempts(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        harness.driver().record_step(claim, step(claim.id))
        harness.lapse()
        harness.driver().sweep(limit=10)

        assert [job.run_id for job in harness.claim()] == [claim.id]
        assert names(harness, claim.id) == ["first"]

    def test_a_sleep_is_over_when_its_time_has_come(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        sleep = step(claim.id, kind=StepKind.SLEEP, state=StepState.WAITING, output=None, delay=HOUR)
        stored = harness.driver().record_step(claim, sleep)
        assert stored is not None
        assert stored.until is not None
        assert not stored.is_over
        harness.advance(HOUR - MARGIN)
        assert [one.is_over for one in harness.driver().steps(claim.id, budget=BUDGET)] == [False]
        harness.advance(2 * MARGIN)

        assert [one.is_over for one in harness.driver().steps(claim.id, budget=BUDGET)] == [True]

    def test_a_sleep_of_no_length_is_over_at_once(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        stored = harness.driver().record_step(claim, step(claim.id, kind=StepKind.SLEEP, output=None, delay=0.0))

        assert stored is not None
        assert harness.driver().steps(claim.id, budget=BUDGET)[0].is_over


class TestSuspensions(CapabilityRules):
    """Rules of the nack that suspends."""

    needs = Capability.STEPS

    def suspend(self, harness: Harness, claim: Claim, **options: Any) -> bool:
        """Suspend a run; whether it landed."""
        return harness.driver().nack([Nack.suspend(claim, Suspension(reason="asleep", **options))])[0]

    def test_a_suspended_run_burns_no_attempt(self, harness: Harness) -> None:
        harness.enqueue_one("k", max_attempts=1)
        for _ in range(3):
            (job,) = harness.claim()
            assert job.attempt == 1
            assert self.suspend(harness, job.claim, delay=HOUR)
            assert harness.buckets() == {"suspended": 1}
            assert harness.claim() == []
            harness.advance(HOUR + MARGIN)
            assert harness.due() == 1

    def test_it_is_due_when_it_says(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        self.suspend(harness, claim, delay=HOUR)
        harness.advance(HOUR - MARGIN)
        assert harness.due() == 0
        harness.advance(2 * MARGIN)

        assert harness.due() == 1

    def test_a_moment_that_has_passed_is_due_at_once(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        assert self.suspend(harness, claim, until=datetime(2001, 1, 1, tzinfo=UTC))

        assert harness.due() == 1

    def test_a_moment_far_away_is_not_due(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        assert self.suspend(harness, claim, until=datetime(2099, 1, 1, tzinfo=UTC))

        assert harness.due() == 0

    def test_who_lost_the_claim_suspends_nothing(self, harness: Harness) -> None:
        (claim,) = harness.running("k")

        assert not self.suspend(harness, forged(claim), delay=HOUR)
        assert self.suspend(harness, claim, delay=HOUR)
        assert not self.suspend(harness, claim, delay=HOUR)

    def test_what_was_lapsed_is_no_suspect_once_it_suspended(self, harness: Harness) -> None:
        (first,) = harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)
        (job,) = harness.claim()
        assert (job.claim.id, job.lapses) == (first.id, 1)
        self.suspend(harness, job.claim, delay=0.0)
        harness.due()

        assert [one.lapses for one in harness.claim()] == [0]

    def test_a_suspended_run_holds_its_key(self, harness: Harness) -> None:
        (claim,) = harness.running("k")
        self.suspend(harness, claim, delay=HOUR)

        assert harness.enqueue_one("k").joined

    @pytest.mark.parametrize("recorded", [True, False])
    def test_one_that_has_recorded_something_has_begun(self, harness: Harness, recorded: bool) -> None:
        (claim,) = harness.running("k")
        if recorded:
            harness.driver().record_step(claim, step(claim.id))
        self.suspend(harness, claim, delay=HOUR)

        assert harness.enqueue_one("k", while_running="again").asked_again is recorded
