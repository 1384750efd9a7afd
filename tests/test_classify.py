"""What follows a failed attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests import raising
from ultimat3_jobs import Retry, error_registry, register_error_retry
from ultimat3_jobs.classify import Decision, decide
from ultimat3_jobs.errors import DeclarationInvalid, InputInvalid, JobTimeout, MigrationMissing
from ultimat3_jobs.states import Stop


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    """Forget what a test registers."""
    with error_registry.isolated():
        yield


class UpstreamError(Exception):
    """What a service says."""


class OverloadedError(UpstreamError):
    """It will answer later."""


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


def test_a_timeout_follows_the_attempt_count_and_the_last_says_so() -> None:
    late = JobTimeout("an attempt of t took longer than its timeout=1s", fix='timeout="2s"')
    first, last = decided(late), decided(late, 3)

    assert first.verdict == "retry in 10s: attempt 1 of 3 failed"
    assert (last.stop, last.verdict) == (
        Stop.TIMEOUT,
        "dead (timeout): attempt 3 of 3 was the last, and ran out of time",
    )
    terminal = decided(late, retry=Retry(attempts=3, terminal=(JobTimeout,)))
    assert terminal.stop is Stop.TERMINAL
    assert terminal.rule == "ultimat3_jobs.errors.JobTimeout is terminal for this job"


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


def test_the_packages_own_errors_come_with_an_answer() -> None:
    wrong, away = InputInvalid("of another job", fix="mend it"), MigrationMissing("no table", fix="migrate")

    assert (decided(wrong).stop, decided(wrong).rule) == (
        Stop.TERMINAL,
        "ultimat3_jobs.errors.InputInvalid is terminal",
    )
    assert (decided(away).stop, decided(away).rule) == (
        None,
        "ultimat3_jobs.errors.DriverUnavailable is retryable",
    )


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


def test_the_nearest_registered_class_decides() -> None:
    register_error_retry({Exception: "retryable", UpstreamError: "terminal", OverloadedError: "retryable"})
    rules = {type(error): (decided(error).stop, decided(error).rule) for error in (UpstreamError(), OverloadedError())}

    assert rules == {
        UpstreamError: (Stop.TERMINAL, f"{__name__}.UpstreamError is terminal"),
        OverloadedError: (None, f"{__name__}.OverloadedError is retryable"),
    }
    assert decided(type("Derived", (OverloadedError,), {})()).stop is None
    assert decided(ValueError()).rule == "Exception is retryable"
    assert decided(SystemExit()).rule == "", "it is no Exception"


def test_a_retryable_error_stops_at_the_last_attempt() -> None:
    register_error_retry({UpstreamError: "retryable"})

    assert decided(UpstreamError(), 2).delay == timedelta(seconds=20)
    assert decided(UpstreamError(), 3).stop is Stop.EXHAUSTED


def test_the_jobs_own_terminal_classes_go_first_then_the_class_then_the_code() -> None:
    error = OverloadedError()
    error.code = "X_OVERLOADED"  # type: ignore[attr-defined]
    register_error_retry({"X_OVERLOADED": "terminal"})
    assert decided(error).rule == "code X_OVERLOADED is terminal"
    register_error_retry({UpstreamError: "retryable"})
    assert decided(error).rule == f"{__name__}.UpstreamError is retryable"
    own = decided(error, retry=Retry(terminal=(UpstreamError,)))
    assert own.rule == f"{__name__}.UpstreamError is terminal for this job"


def test_the_last_registration_counts_the_packages_own_included() -> None:
    register_error_retry({InputInvalid: "retryable"})

    assert decided(InputInvalid("x", fix="y")).stop is None


def test_what_was_registered_in_an_isolated_block_is_forgotten() -> None:
    with error_registry.isolated():
        register_error_retry({UpstreamError: "terminal", "X_FULL": "terminal"})

    error = UpstreamError()
    error.code = "X_FULL"  # type: ignore[attr-defined]
    assert decided(error).rule == ""


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [UpstreamError],
        {UpstreamError: "fatal"},
        {UpstreamError: None},
        {UpstreamError: ["terminal"]},
        {UpstreamError(): "terminal"},
        {int: "terminal"},
        {3: "terminal"},
        {"ValueError": "terminal"},
        {"X_": "terminal"},
        {"x_full": "terminal"},
        {"X_FULL\n": "terminal"},
    ],
    ids=repr,
)
def test_rubbish_is_refused_and_registers_nothing(wrong: Any) -> None:
    with pytest.raises(DeclarationInvalid) as caught:
        register_error_retry({OverloadedError: "terminal", **wrong} if isinstance(wrong, dict) else wrong)

    assert caught.value.fix == 'register_error_retry({ConnectionError: "retryable"})'
    assert decided(OverloadedError()).rule == ""


def after(seconds: object) -> UpstreamError:
    """Return an error that says how long to wait."""
    error = UpstreamError("busy")
    error.retry_after = seconds  # type: ignore[attr-defined]
    return error


def test_an_error_that_says_how_long_is_waited_for_as_long_within_the_policys_bound() -> None:
    register_error_retry({UpstreamError: "retry-after"})

    assert decided(after(45)) == Decision(
        "retry in 45s, as the error says: attempt 1 of 3 failed",
        delay=timedelta(seconds=45),
        rule=f"{__name__}.UpstreamError is retry-after",
    )
    assert decided(after(0)).delay == timedelta(0)
    assert decided(after(1e300)).delay == timedelta(hours=1)
    assert decided(after(90), retry=Retry(max_delay="1m")).delay == timedelta(minutes=1)
    assert decided(after(45), retry=Retry(delay="1s", jitter=True)).delay == timedelta(seconds=45)
    assert decided(after(45), 3).stop is Stop.EXHAUSTED, "it counts as an attempt"


@pytest.mark.parametrize("said", [None, -1, float("nan"), float("inf"), "soon", True, object(), 10**400])
def test_an_error_that_does_not_say_follows_the_policy(said: object) -> None:
    register_error_retry({UpstreamError: "retry-after"})

    assert decided(after(said)).delay == timedelta(seconds=10)
    assert decided(after(said)).verdict == "retry in 10s: attempt 1 of 3 failed"


def test_what_an_error_says_counts_only_where_it_is_registered() -> None:
    assert decided(after(45)).delay == timedelta(seconds=10)


@pytest.mark.parametrize("kind", raising.KINDS)
@pytest.mark.parametrize("answer", ["terminal", "retryable", "retry-after"])
def test_every_kind_of_exception_can_be_registered_and_decided(kind: str, answer: Any) -> None:
    error = raising.KINDS[kind]()
    register_error_retry({type(error): answer, "X_NO": "terminal"})

    decision = decided(error)
    assert decision.rule.endswith(f" is {answer}")
    assert decision.stop is (Stop.TERMINAL if answer == "terminal" else None)


class HostileError(Exception):
    """Raises whatever it is asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)


def test_an_error_that_raises_where_it_is_asked_is_decided_all_the_same() -> None:
    register_error_retry({"X_NO": "terminal"})
    assert decided(HostileError()).rule == ""
    register_error_retry({HostileError: "retry-after"})
    assert decided(HostileError()).delay == timedelta(seconds=10)
