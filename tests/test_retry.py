"""Retry policies: pure arithmetic from an attempt's number to a delay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ultimat3_jobs import Retry
from ultimat3_jobs.errors import DeclarationInvalid


def seconds(policy: Retry, *attempts: int, draw: float = 1.0) -> list[float]:
    """Return the delays after these attempts; with `draw` at its end there is no jitter."""
    return [policy.delay_after(attempt, draw=lambda: draw).total_seconds() for attempt in attempts]


def test_an_exponential_delay_doubles() -> None:
    assert seconds(Retry(attempts=6, delay="2s", jitter=False), 1, 2, 3, 4, 5) == [2, 4, 8, 16, 32]


def test_a_linear_delay_grows_by_itself() -> None:
    assert seconds(Retry(attempts=6, backoff="linear", delay="2s", jitter=False), 1, 2, 3, 4) == [2, 4, 6, 8]


def test_a_fixed_delay_stays() -> None:
    assert seconds(Retry(attempts=6, backoff="fixed", delay="2s", jitter=False), 1, 2, 300) == [2, 2, 2]


@pytest.mark.parametrize("backoff", ["exponential", "linear", "fixed"])
def test_no_delay_exceeds_the_longest_however_late_the_attempt(backoff: Any) -> None:
    policy = Retry(attempts=1_000, backoff=backoff, delay="90s", max_delay="2m", jitter=False)

    assert all(delay <= timedelta(minutes=2) for delay in policy.schedule())
    assert seconds(policy, 1_000, 10**9) == ([90, 90] if backoff == "fixed" else [120, 120])
    assert seconds(Retry(backoff=backoff, delay="1h", max_delay="1m", jitter=False), 1) == [60]


@pytest.mark.parametrize("backoff", ["exponential", "linear", "fixed"])
def test_a_delay_of_zero_stays_zero(backoff: Any) -> None:
    assert seconds(Retry(backoff=backoff, delay=0), 1, 2, 999) == [0, 0, 0]
    assert seconds(Retry(backoff=backoff, max_delay=0), 1, 2, 999) == [0, 0, 0]


def test_jitter_keeps_half_of_the_delay() -> None:
    policy = Retry(attempts=9, delay="8s")

    assert seconds(policy, 1, draw=0.0) == [4]
    assert seconds(policy, 1, draw=0.5) == [6]
    assert seconds(policy, 3, draw=0.0) == [16]
    drawn = [policy.delay_after(1) for _ in range(500)]
    assert all(timedelta(seconds=4) <= delay < timedelta(seconds=8) for delay in drawn)
    assert len(set(drawn)) > 400


def test_without_jitter_nothing_is_drawn() -> None:
    assert seconds(Retry(delay="8s", jitter=False), 1, draw=0.0) == [8]


def test_the_schedule_lists_the_delays_between_the_attempts() -> None:
    assert Retry(attempts=1).schedule() == []
    assert Retry(attempts=4, delay="1s", max_delay="3s").schedule() == [
        timedelta(seconds=1),
        timedelta(seconds=2),
        timedelta(seconds=3),
    ]
    assert len(Retry(attempts=1_000).schedule()) == 999


def test_a_policy_is_described_in_plain_values() -> None:
    policy = Retry(attempts=4, delay=90, max_delay=timedelta(hours=2), terminal=(ValueError, KeyError))

    assert policy.describe() == {
        "attempts": 4,
        "backoff": "exponential",
        "delay": "1m30s",
        "max_delay": "2h",
        "jitter": True,
        "dead_letter": True,
        "terminal": ["builtins.KeyError", "builtins.ValueError"],
    }


@pytest.mark.parametrize(
    "wrong",
    [
        *({"attempts": value} for value in (0, -1, 1_001, 1.0, "3", None, True)),
        *({"backoff": value} for value in ("quadratic", "", None, 2, ["linear"])),
        *({"delay": value} for value in (-1, "soon", float("nan"), float("inf"), 10**400, None, True)),
        *({"max_delay": value} for value in ("-1s", timedelta(seconds=-1), float("nan"), [])),
        *({"terminal": value} for value in (ValueError, [ValueError], ("ValueError",), (ValueError(),), (int,), None)),
    ],
    ids=str,
)
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationInvalid) as caught:
        Retry(**wrong)

    (name,) = wrong
    assert f"Retry({name}=" in caught.value.cause
    assert isinstance(eval(caught.value.fix, {"Retry": Retry}), Retry), "the fix can be typed as it stands"


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Retry().attempts = 5  # type: ignore[misc]
