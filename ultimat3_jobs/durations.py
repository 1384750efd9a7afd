"""One way to write a length of time: "3d", "1h30m", a timedelta, or seconds."""

from __future__ import annotations

import re
from datetime import timedelta

Duration = str | int | float | timedelta
"""What every option that takes a length of time accepts; numbers are seconds."""

LONGEST = timedelta(days=36_500)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(r"\s*(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w)\s*)+", re.ASCII)


def parse_duration(value: Duration) -> timedelta:
    """Return `value` as a timedelta.

    Args:
        value: a timedelta; seconds as int or float; or text made of numbers with units ms, s, m, h, d, w ("1h30m").

    Raises:
        ValueError: where it is not a finite length of time of at most a hundred years. It may be zero or negative; what
            that means is for the caller to say.
    """
    if isinstance(value, timedelta):
        length = value
    elif isinstance(value, bool):
        raise ValueError(f"{value!r} is not a length of time")  # noqa: TRY004 - the documented refusal
    elif isinstance(value, (int, float)):
        if not abs(value) <= LONGEST.total_seconds():  # NaN is not either
            raise ValueError(f"{value!r} is not a length of time within a hundred years")
        length = timedelta(seconds=value)
    elif isinstance(value, str) and _WHOLE.fullmatch(value):
        parts = _PART.findall(value)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if seconds > LONGEST.total_seconds():
            raise ValueError(f"{value!r} is longer than a hundred years")
        length = timedelta(seconds=seconds)
    else:
        raise ValueError(f'{value!r} is not a length of time such as "30s", "1h30m", 90 or a timedelta')
    if abs(length) > LONGEST:
        raise ValueError(f"{value!r} is longer than a hundred years")
    return length


def format_duration(length: timedelta) -> str:
    """Return `length` in the notation that `parse_duration` reads, such as "1h30m" or "500ms"."""
    left = round(length.total_seconds() * 1000)
    sign, left = ("-", -left) if left < 0 else ("", left)
    parts: list[str] = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts) if parts else "0s"
