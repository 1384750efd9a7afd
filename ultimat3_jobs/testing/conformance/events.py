"""Events: stored once, given in order to every run that may have them, and looked for by those that wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ultimat3_jobs.drivers import Capability
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import (
    Claim,
    ClaimedJob,
    Event,
    Nack,
    StepKind,
    StepRecord,
    StepState,
    Suspension,
    Wait,
    WaitAnswer,
)
from ultimat3_jobs.testing.conformance.fences import ack
from ultimat3_jobs.testing.conformance.harness import HOUR, MARGIN, CapabilityRules, Harness, forged

DAY = 24 * HOUR
ONE, TWO = '{"order":1}', '{"order":2}'
DONE, WAITING, TIMED_OUT = StepState.DONE, StepState.WAITING, StepState.TIMED_OUT


def event(payload: object = None, *, name: str = "paid", match: str = "", ttl: float = DAY) -> Event:
    """Return an event whose payload is a JSON value."""
    return Event(staged_id=uuid7(), name=name, match=match, payload=msgspec.json.encode(payload).decode(), ttl=ttl)


def publish(harness: Harness, *events: Event) -> int:
    """Store events and wake who waits for them; return how many that were."""
    harness.driver().publish(events)
    return harness.driver().wake(events, limit=100)


def begun(harness: Harness, key: str = "k") -> ClaimedJob:
    """Queue one job and claim it."""
    harness.enqueue_one(key)
    (job,) = harness.claim(1)
    return job


def wait(
    harness: Harness,
    job: ClaimedJob,
    step: str = "wait",
    *,
    name: str = "paid",
    match: str = "",
    timeout: float | None = None,
    claim: Claim | None = None,
) -> WaitAnswer | None:
    """Wait for an event, as the body of a claimed job does."""
    record = StepRecord(
        run_id=job.run_id, name=step, seq=1, kind=StepKind.WAIT, state=WAITING, attempt=job.attempt, delay=timeout
    )
    return harness.driver().wait(claim or job.claim, Wait(record=record, event=name, match=match))


def park(
    harness: Harness, job: ClaimedJob, *, name: str = "paid", match: str = "", timeout: float | None = None
) -> None:
    """Wait in vain and suspend, as the body of a claimed job and its settlement do."""
    answer = wait(harness, job, name=name, match=match, timeout=timeout)
    assert answer is not None
    assert answer.state is WAITING
    suspend(harness, job, answer, name=name, match=match)


def suspend(harness: Harness, job: ClaimedJob, answer: WaitAnswer, *, name: str = "paid", match: str = "") -> None:
    """Suspend a run that waits."""
    suspension = Suspension(reason="waits", until=answer.until, event=name, match=match, poll=HOUR)
    assert harness.driver().nack([Nack.suspend(job.claim, suspension)]) == [True]


def got(answer: WaitAnswer | None) -> Any:
    """Return the payload of the event that a wait has got; None where it got none."""
    assert answer is not None
    if answer.state is not DONE:
        return None
    assert answer.output is not None
    return msgspec.json.decode(answer.output)["payload"]


class TestEvents(CapabilityRules):
    """Rules of EVENTS."""

    needs = Capability.EVENTS

    def test_a_wait_gets_the_event_with_its_payload_and_its_time(self, harness: Harness) -> None:
        job = begun(harness)
        publish(harness, event({"by": "ann", "grade": 1.5, "notes": None}))
        answer = wait(harness, job)

        assert answer is not None
        assert answer.state is DONE
        output = msgspec.json.decode(answer.output or "")
        assert output["payload"] == {"by": "ann", "grade": 1.5, "notes": None}
        assert output["published_at"]
        assert wait(harness, job) == answer, "what a wait has got stays"

    def test_an_event_without_a_payload_is_got_too(self, harness: Harness) -> None:
        job = begun(harness)
        publish(harness, msgspec.structs.replace(event(), payload=None))
        answer = wait(harness, job)

        assert answer is not None
        assert (answer.state, msgspec.json.decode(answer.output or "")["payload"]) == (DONE, None)

    def test_a_run_gets_events_in_the_order_of_publication_and_each_once(self, harness: Harness) -> None:
        job = begun(harness)
        publish(harness, event(1), event(2))
        publish(harness, event(3))

        assert [got(wait(harness, job, step)) for step in "abcd"] == [1, 2, 3, None]

    def test_every_run_that_may_have_it_gets_it(self, harness: Harness) -> None:
        jobs = [begun(harness, key) for key in "abc"]
        publish(harness, event("all"))

        assert [got(wait(harness, job)) for job in jobs] == ["all"] * 3

    def test_an_event_that_is_published_again_changes_nothing(self, harness: Harness) -> None:
        job = begun(harness)
        first = event("once")
        publish(harness, first)
        publish(harness, event("other"), first)

        assert [got(wait(harness, job, step)) for step in "abc"] == ["once", "other", None]

    @pytest.mark.parametrize(
        ("asked", "fits"), [("", [1, 2, 3]), (ONE, [1, 3]), (TWO, [2]), ('{"order":3}', []), ('{"order": 1}', [])]
    )
    def test_a_match_is_equal_as_a_whole_and_none_takes_all(
        self, harness: Harness, asked: str, fits: list[int]
    ) -> None:
        job = begun(harness)
        publish(harness, event(1, match=ONE), event(2, match=TWO), event(3, match=ONE), event(4, name="refunded"))

        assert [got(wait(harness, job, step, match=asked)) for step in "abcd"] == [*fits, *[None] * (4 - len(fits))]

    def test_an_event_without_a_match_is_not_for_a_wait_with_one(self, harness: Harness) -> None:
        job = begun(harness)
        publish(harness, event("any"))

        assert got(wait(harness, job, match=ONE)) is None

    def test_only_what_was_published_since_the_enqueue_counts(self, harness: Harness) -> None:
        publish(harness, event("before"))
        harness.advance(1)
        job = begun(harness)
        publish(harness, event("since"))
        park_again = [got(wait(harness, job, step)) for step in "ab"]

        assert park_again == ["since", None]

    def test_what_was_published_before_the_claim_counts(self, harness: Harness) -> None:
        harness.enqueue_one("k")
        publish(harness, event("early"))
        (job,) = harness.claim(1)

        assert got(wait(harness, job)) == "early"

    def test_an_expired_event_does_not_count_pruned_or_not(self, harness: Harness) -> None:
        job = begun(harness)
        publish(harness, event("gone", ttl=HOUR), event("kept", ttl=3 * HOUR))
        harness.advance(2 * HOUR)

        assert got(wait(harness, job, "a")) == "kept"
        assert harness.driver().prune_events(limit=10) == 1
        assert [got(wait(harness, job, step)) for step in "ab"] == ["kept", None]

    def test_no_more_are_pruned_than_asked_for(self, harness: Harness) -> None:
        publish(harness, *(event(number, ttl=HOUR) for number in range(5)))
        assert harness.driver().prune_events(limit=3) == 0
        harness.advance(2 * HOUR)

        assert [harness.driver().prune_events(limit=3) for _ in range(3)] == [3, 2, 0]

    def test_a_wait_is_fenced_on_its_claim(self, harness: Harness) -> None:
        job = begun(harness)
        publish(harness, event("mine"))

        assert wait(harness, job, claim=forged(job.claim)) is None
        assert got(wait(harness, job)) == "mine"
        assert ack(harness, [job.claim]) == [True]
        assert wait(harness, job, "late") is None

    def test_a_wait_times_out_by_the_time_that_was_first_said(self, harness: Harness) -> None:
        job = begun(harness)
        first = wait(harness, job, timeout=2 * HOUR)
        harness.advance(HOUR)
        again = wait(harness, job, timeout=2 * HOUR)
        harness.advance(HOUR + MARGIN)
        last = wait(harness, job, timeout=2 * HOUR)

        assert [one and one.state for one in (first, again, last)] == [WAITING, WAITING, TIMED_OUT]
        publish(harness, event("late"))
        late = wait(harness, job, timeout=2 * HOUR)
        assert late is not None
        assert (late.state, late.output) == (TIMED_OUT, None), "what is over stays so"
        assert got(wait(harness, job, "another")) == "late"

    def test_an_event_that_came_in_time_wins_over_a_late_look(self, harness: Harness) -> None:
        job = begun(harness)
        wait(harness, job, timeout=HOUR)
        publish(harness, event("in time"))
        harness.advance(2 * HOUR)

        assert got(wait(harness, job)) == "in time"

    def test_a_wait_without_time_is_over_at_once(self, harness: Harness) -> None:
        answer = wait(harness, begun(harness), timeout=0.0)

        assert answer is not None
        assert answer.state is TIMED_OUT

    def test_a_wait_without_a_timeout_waits_for_ever(self, harness: Harness) -> None:
        answer = wait(harness, begun(harness))

        assert answer is not None
        assert (answer.state, answer.until) == (WAITING, None)

    def test_a_publication_wakes_the_runs_that_wait_for_it_at_once(self, harness: Harness) -> None:
        ready = {}
        for key, name, match in (
            ("any", "paid", ""), ("one", "paid", ONE), ("two", "paid", TWO), ("other", "refunded", ""),
        ):  # fmt: skip
            ready[key] = begun(harness, key)
            park(harness, ready[key], name=name, match=match)
        assert harness.buckets() == {"suspended": 4}

        assert publish(harness, event("now", match=ONE), event("twice", match=ONE)) == 2
        woken = harness.claim()
        assert {job.claim.id for job in woken} == {ready["any"].claim.id, ready["one"].claim.id}
        assert [
            got(wait(harness, job, match="" if job.claim.id == ready["any"].claim.id else ONE)) for job in woken
        ] == ["now"] * 2
        assert [job.attempt for job in woken] == [1, 1], "to suspend burns no attempt"

    def test_what_a_run_has_had_does_not_wake_it_again(self, harness: Harness) -> None:
        job = begun(harness)
        had = event("had")
        publish(harness, had)
        assert got(wait(harness, job, "first")) == "had"
        park(harness, job)

        assert publish(harness, had) == 0
        assert harness.driver().look_again([job.claim.id]) == 0
        assert publish(harness, event("new")) == 1

    def test_what_is_too_old_for_a_run_does_not_wake_it(self, harness: Harness) -> None:
        old = event("old")
        publish(harness, old)
        harness.advance(1)
        job = begun(harness)
        park(harness, job)

        assert harness.driver().wake([old], limit=10) == 0
        assert harness.driver().look_again([job.claim.id]) == 0

    def test_what_has_expired_wakes_nobody(self, harness: Harness) -> None:
        job = begun(harness)
        park(harness, job)
        gone = event("gone", ttl=HOUR)
        harness.driver().publish([gone])
        harness.advance(2 * HOUR)

        assert harness.driver().wake([gone], limit=10) == 0
        assert harness.driver().look_again([job.claim.id]) == 0

    def test_no_more_are_woken_than_asked_for(self, harness: Harness) -> None:
        for number in range(5):
            park(harness, begun(harness, f"{number}"), match=(ONE, "")[number % 2])
        published = event("all", match=ONE)
        harness.driver().publish([published])

        assert [harness.driver().wake([published], limit=2) for _ in range(4)] == [2, 2, 1, 0]
        assert harness.buckets() == {"ready": 5}

    def test_only_a_run_that_waits_is_woken(self, harness: Harness) -> None:
        running = begun(harness, "running")
        asleep = begun(harness, "asleep")
        suspension = Suspension(reason="sleeps", delay=HOUR)
        assert harness.driver().nack([Nack.suspend(asleep.claim, suspension)]) == [True]
        harness.enqueue_one("delayed", delay=HOUR)

        assert publish(harness, event("now")) == 0
        assert harness.driver().look_again([running.claim.id, asleep.claim.id, uuid7()]) == 0
        assert harness.buckets() == {"delayed": 1, "suspended": 1, "running": 1}

    def test_a_run_that_suspends_looks_once_more(self, harness: Harness) -> None:
        """Its event was stored, and nobody seen to wait for it, between its wait and its suspension."""
        jobs = [begun(harness, key) for key in "ab"]
        waits = [(job, match, wait(harness, job, match=match)) for job, match in zip(jobs, (ONE, TWO), strict=True)]
        assert publish(harness, event("between", match=ONE)) == 0
        for job, match, answer in waits:
            assert answer is not None
            suspend(harness, job, answer, match=match)

        assert harness.driver().look_again([job.claim.id for job in jobs]) == 1
        (woken,) = harness.claim()
        assert woken.claim.id == jobs[0].claim.id
        assert got(wait(harness, woken, match=ONE)) == "between"

    def test_a_run_whose_event_is_not_there_does_not_run(self, harness: Harness) -> None:
        park(harness, begun(harness))
        harness.advance(HOUR + MARGIN)

        assert (harness.due(), harness.claim()) == (0, [])
        assert harness.buckets() == {"suspended": 1}

    def test_a_run_that_nobody_woke_finds_its_event_by_itself(self, harness: Harness) -> None:
        jobs = [begun(harness, key) for key in "ab"]
        for job, match in zip(jobs, (ONE, ""), strict=True):
            park(harness, job, match=match)
        harness.driver().publish([event("missed", match=ONE)])
        assert harness.due() == 0, "the next look is not due"
        harness.advance(HOUR + MARGIN)

        assert harness.due() == 2

    def test_a_run_whose_wait_is_over_runs_again(self, harness: Harness) -> None:
        park(harness, begun(harness), timeout=1.5 * HOUR)
        harness.advance(HOUR + MARGIN)
        assert harness.due() == 0
        harness.advance(HOUR / 2)

        assert harness.due() == 1
        (job,) = harness.claim()
        answer = wait(harness, job)
        assert answer is not None
        assert answer.state is TIMED_OUT

    def test_those_that_wait_in_vain_hold_up_nothing_behind_them(self, harness: Harness) -> None:
        for number in range(6):
            park(harness, begun(harness, f"{number}"))
        harness.enqueue_one("k", delay=HOUR + MARGIN / 2)
        harness.advance(HOUR + MARGIN)

        assert harness.due(limit=2) == 1
        assert harness.buckets() == {"ready": 1, "suspended": 6}

    def test_a_run_that_was_cancelled_while_it_waited_is_not_woken(self, harness: Harness) -> None:
        if Capability.INTROSPECT not in harness.driver().capabilities:
            pytest.skip("the driver does not declare INTROSPECT")
        job = begun(harness)
        park(harness, job)
        harness.driver().cancel([job.claim.id])

        assert publish(harness, event("now")) == 0
        assert harness.driver().look_again([job.claim.id]) == 0

    def test_two_who_wake_at_once_wake_every_run_once(self, harness: Harness) -> None:
        for number in range(40):
            park(harness, begun(harness, f"{number}"))
        published = event("now")
        harness.driver().publish([published])

        def wake() -> int:
            return sum(harness.driver().wake([published], limit=7) for _ in range(8))

        woken = harness.together(wake, wake)
        assert sum(woken) + harness.driver().wake([published], limit=100) == 40
        assert harness.buckets() == {"ready": 40}

    def test_the_lease_of_a_run_that_waits_is_renewed_as_before(self, harness: Harness) -> None:
        job = begun(harness)
        wait(harness, job)

        assert [one.name for one in harness.driver().heartbeat([job.claim], lease=timedelta(hours=1))] == ["RENEWED"]
