"""What follows a failed attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests import raising
from ultimat3_jobs import Retry
from ultimat3_jobs.classify import Decision, decide
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.states import Stop

PLAIN = Retry(attempts=3, delay="10s", jitter=False)


def decided(error: BaseException, attempt: int = 1, *, retry: Retry = PLAIN, hopeless: str = "") -> Decision:
    """Decide for a job of three attempts."""
    return decide(error, attempt=attempt, max_attempts=3, retry=retry, hopeless=hopeless)


def test_attempts_follow_one_another_by_the_policy_until_the_last() -> None:
    assert [decided(ValueError(), attempt) for attempt in (1, 2, 3)] == [
        Decision("retry in 10s: attempt 1 of 3 failed", delay=timedelta(seconds=10)),
        Decision("retry in 20s: attempt 2 of 3 failed", delay=timedelta(seconds=20)),
        Decision("dead (attempts-exhausted): attempt 3 of 3 was the last", stop=Stop.EXHAUSTED),
    ]


def test_jitter_keeps_at_least_half_the_delay_and_adds_nothing() -> None:
    delays = {decided(ValueError(), 2, retry=Retry(delay="10s")).delay.total_seconds() for _ in range(300)}

    assert 10 <= min(delays) < 12
    assert 18 < max(delays) <= 20


def test_the_stored_number_of_attempts_counts_not_the_declared_one() -> None:
    stored = decide(ValueError(), attempt=2, max_attempts=2, retry=Retry(attempts=9))

    assert stored.stop is Stop.EXHAUSTED


def test_an_attempt_beyond_the_last_is_the_last() -> None:
    assert decided(ValueError(), 7).stop is Stop.EXHAUSTED


def test_a_terminal_class_ends_the_job_on_its_attempt_and_so_does_one_that_derives_from_it() -> None:
    policy = Retry(terminal=(KeyError, raising.DeclinedError))
    derived = type("DerivedError", (raising.DeclinedError,), {})

    for error in (raising.DeclinedError(), derived()):
        decision = decided(error, retry=policy)

        assert decision.stop is Stop.TERMINAL
        rule = "tests.raising.DeclinedError is terminal for this job"
        assert decision.verdict == f"dead (terminal): {rule}; attempt 1 of 3"


def test_a_hopeless_attempt_ends_the_job_with_its_reason() -> None:
    decision = decided(ValueError(), hopeless="the result cannot be stored")

    assert decision.stop is Stop.TERMINAL
    assert decision.verdict == "dead (terminal): the result cannot be stored; attempt 1 of 3"


def test_without_a_dead_letter_the_verdict_says_failed() -> None:
    policy = Retry(dead_letter=False, terminal=(KeyError,))

    assert decided(ValueError(), 3, retry=policy).verdict.startswith("failed (attempts-exhausted)")
    assert decided(KeyError(), 1, retry=policy).verdict.startswith("failed (terminal)")


def test_an_input_that_a_body_got_wrong_itself_follows_the_policy() -> None:
    assert decided(InputInvalid("of another job", fix="mend it")).stop is None


def test_an_exception_is_what_it_is_not_what_it_says() -> None:
    policy = Retry(terminal=(raising.DeclinedError, raising.NamelessError))

    assert decided(raising.LyingError(), retry=policy).stop is None
    assert decided(raising.NamelessError(), retry=policy).stop is Stop.TERMINAL


@pytest.mark.parametrize("kind", raising.KINDS)
def test_every_kind_of_exception_is_decided_alike(kind: str) -> None:
    error = raising.KINDS[kind]()
    assert decided(error).stop is None
    assert decided(error, 3).stop is Stop.EXHAUSTED
    assert decided(error, retry=Retry(terminal=(ZeroDivisionError,))).stop is None
