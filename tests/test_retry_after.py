"""How long an error says to wait: by itself, or by the HTTP response it carries."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest
from django.http import HttpResponse

from ultimat3_jobs.durations import LONGEST
from ultimat3_jobs.retry_after import read_retry_after

NOON, QUARTER_PAST = "Sat, 28 Feb 2026 12:00:00 GMT", "Sat, 28 Feb 2026 12:15:00 GMT"


def carrying(**attributes: Any) -> Exception:
    """Return an exception with these attributes."""
    error = Exception("busy")
    vars(error).update(attributes)
    return error


def responding(headers: Any) -> Exception:
    """Return an exception with a response that has these headers."""
    return carrying(response=SimpleNamespace(headers=headers))


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(30, 30), (0, 0), (1.5, 1.5), (Decimal("2.5"), 2.5), (timedelta(minutes=2), 120), ("30", 30), (" 1.5 ", 1.5)],
)
def test_an_attribute_in_seconds_or_as_a_length_of_time(said: object, seconds: float) -> None:
    assert read_retry_after(carrying(retry_after=said)) == timedelta(seconds=seconds)


@pytest.mark.parametrize("said", [1e300, 10**300, timedelta.max, "9" * 100])
def test_what_is_longer_than_a_hundred_years_is_a_hundred_years(said: object) -> None:
    assert read_retry_after(carrying(retry_after=said)) == LONGEST


@pytest.mark.parametrize(
    "said",
    [
        *(None, True, False, -1, -0.001, float("nan"), float("inf"), 10**400, Decimal("NaN"), timedelta(seconds=-1)),
        *("", "soon", "-1", "NaN", "inf", "1e3", "٣", "9" * 10_000_000, b"30", [30], object(), lambda: 30),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_used_says_nothing(said: object) -> None:
    assert read_retry_after(carrying(retry_after=said)) is None
    assert read_retry_after(responding({"Retry-After": said})) is None


def test_a_header_of_the_response_of_the_error_or_of_itself() -> None:
    message = Message()
    message["retry-AFTER"] = "7"

    assert read_retry_after(responding(HttpResponse(headers={"Retry-After": "7"}).headers)) == timedelta(seconds=7)
    assert read_retry_after(responding({"retry-after": "7"})) == timedelta(seconds=7)
    assert read_retry_after(HTTPError("", 429, "busy", message, None)) == timedelta(seconds=7)
    assert read_retry_after(responding({})) is None
    assert read_retry_after(Exception("plain")) is None


def test_the_error_itself_goes_before_what_it_carries_and_what_is_unusable_before_nothing() -> None:
    response = SimpleNamespace(headers={"Retry-After": "3"})

    assert read_retry_after(carrying(retry_after=1, headers={"Retry-After": "2"}, response=response)) == timedelta(
        seconds=1
    )
    assert read_retry_after(carrying(headers={"Retry-After": "2"}, response=response)) == timedelta(seconds=2)
    assert read_retry_after(carrying(retry_after=-1, headers=7, response=response)) == timedelta(seconds=3)


def test_a_date_counts_from_the_date_of_the_response_and_never_from_the_hosts() -> None:
    assert read_retry_after(responding({"Retry-After": QUARTER_PAST, "Date": NOON})) == timedelta(minutes=15)
    assert read_retry_after(
        responding({"Retry-After": "Sat, 28 Feb 2026 12:15:00 -0000", "Date": "Sat, 28 Feb 2026 13:00:00 +0100"})
    ) == timedelta(minutes=15)


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": QUARTER_PAST},
        {"Retry-After": QUARTER_PAST, "Date": "yesterday"},
        {"Retry-After": NOON, "Date": QUARTER_PAST},
        {"Retry-After": "Sat, 99 Feb 99999 12:00:00 GMT", "Date": NOON},
        {"Retry-After": "x" * 10_000_000, "Date": NOON},
    ],
    ids=["no date", "no such date", "gone by", "no such day", "long"],
)
def test_a_date_that_cannot_be_used_says_nothing(headers: dict[str, str]) -> None:
    assert read_retry_after(responding(headers)) is None


class RaisingError(Exception):
    """Raises where it is asked how long to wait."""

    @property
    def retry_after(self) -> int:
        raise SystemExit("never")

    @property
    def response(self) -> Any:
        raise KeyboardInterrupt

    @property
    def headers(self) -> Any:
        return HostileHeaders()


class HostileHeaders:
    """Raises where it is read."""

    def get(self, name: str) -> Any:
        raise GeneratorExit


class Hostile(float):
    """A number that raises where it is read."""

    def __float__(self) -> float:
        raise MemoryError


def test_attributes_that_raise_say_nothing() -> None:
    assert read_retry_after(RaisingError()) is None
    assert read_retry_after(carrying(retry_after=Hostile(3))) is None
