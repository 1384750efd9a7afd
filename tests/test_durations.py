"""Lengths of time: what is read, what is refused, and the way back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ultimat3_jobs.durations import LONGEST, format_duration, parse_duration

READ: list[tuple[Any, timedelta]] = [
    ("500ms", timedelta(milliseconds=500)),
    ("30s", timedelta(seconds=30)),
    ("1.5s", timedelta(seconds=1.5)),
    ("5m", timedelta(minutes=5)),
    ("1h30m", timedelta(hours=1, minutes=30)),
    ("1h 30m", timedelta(hours=1, minutes=30)),
    (" 3d ", timedelta(days=3)),
    ("2w", timedelta(weeks=2)),
    ("0s", timedelta(0)),
    (90, timedelta(seconds=90)),
    (0.25, timedelta(seconds=0.25)),
    (0, timedelta(0)),
    (-1, timedelta(seconds=-1)),
    (timedelta(hours=2), timedelta(hours=2)),
    (timedelta(seconds=-3), timedelta(seconds=-3)),
    ("36500d", LONGEST),
]
REFUSED: list[Any] = [
    *("", " ", "s", "30", "30 seconds", "-3d", "1h30", "3x", "3D", "1..5s", ".5s", "1e3s", "nan", "inf", "1 0s", "٣s"),
    *("36501d", "9" * 400 + "d", "6000w"),
    *(float("nan"), float("inf"), float("-inf"), 1e300, 10**400, -(10**400), 3_153_600_001, LONGEST * 2, -LONGEST * 2),
    *(timedelta.max, timedelta.min, True, False, None, b"3d", ["3d"], object()),
]


@pytest.mark.parametrize(("value", "length"), READ)
def test_a_length_of_time_is_read(value: Any, length: timedelta) -> None:
    assert parse_duration(value) == length


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: repr(value)[:20])
def test_what_is_no_length_of_time_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"length of time|hundred years"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=1), "1ms"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=8, hours=3, milliseconds=20), "8d3h20ms"),
        (timedelta(hours=24), "1d"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_a_length_of_time_is_written(length: timedelta, text: str) -> None:
    assert format_duration(length) == text


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1_000, 61_001, 3_600_000, 90_061_007, 36_500 * 86_400_000])
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    length = timedelta(milliseconds=milliseconds)

    assert parse_duration(format_duration(length)) == length
