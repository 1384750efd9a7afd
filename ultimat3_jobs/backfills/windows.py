"""The hours in which a pass may sweep, as a clock on the wall shows them in the project's time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from ultimat3_jobs.errors import DeclarationInvalid

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Window:
    """From `start` until just before `end`, over midnight where `end` is the earlier of the two.

    Args:
        start: hour and minute at which it opens.
        end: hour and minute at which it closes.

    Raises:
        DeclarationInvalid: where one of them is no whole minute without a time zone, or both are the same.
    """

    start: time
    end: time

    def __post_init__(self) -> None:
        for one in (self.start, self.end):
            if not isinstance(one, time) or one.tzinfo is not None or one.second or one.microsecond:
                raise _refusal(f"{one!r} is no hour and minute in the project's time zone")
        if self.start == self.end:
            raise DeclarationInvalid(
                f"a window that opens and closes at {self.start:%H:%M} leaves open whether that is never or always",
                fix="window=None  # always",
            )

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"

    def shows(self, wall: time) -> bool:
        """Whether it is open when the clock on the wall shows this."""
        if self.start < self.end:
            return self.start <= wall < self.end
        return wall >= self.start or wall < self.end


def parse_window(value: object) -> Window:
    """Return the window that `value` says.

    Args:
        value: "22:00-06:00", ("22:00", "06:00"), two times of day, or a window.

    Raises:
        DeclarationInvalid: where it is none of these.
    """
    if isinstance(value, Window):
        return value
    given: object = value.split("-") if isinstance(value, str) else value
    if not isinstance(given, (tuple, list)) or len(given) != 2:  # noqa: PLR2004 - a start and an end
        raise _refusal(f"window={value!r} is no pair of a start and an end")
    start, end = (_clock(one, value) for one in given)
    return Window(start, end)


def opens_in(window: Window, now: datetime) -> timedelta:
    """Return how long it is until the window opens: zero where it is open.

    It is open whenever a clock on the wall shows a time of it. So where an hour comes twice, it is open in both of
    them, and where the clock jumps over its start, it opens with the jump.

    Args:
        window: the hours.
        now: the moment, in the time zone whose hours they are.

    Raises:
        ValueError: where `now` has no time zone.
    """
    zone = now.tzinfo
    if zone is None or now.utcoffset() is None:
        raise ValueError(f"{now!r} has no time zone")
    at = began = now.astimezone(UTC)
    while not window.shows(_wall(at, zone)):
        # Until the offset from UTC changes, the clock on the wall goes as fast as time does.
        opening = at + _until(_wall(at, zone), window.start)
        at = _change(at, opening, zone) or opening
    return at - began


def _until(wall: time, start: time) -> timedelta:
    return (_since_midnight(start) - _since_midnight(wall)) % _DAY


def _since_midnight(wall: time) -> timedelta:
    return timedelta(hours=wall.hour, minutes=wall.minute, seconds=wall.second, microseconds=wall.microsecond)


def _wall(at: datetime, zone: tzinfo) -> time:
    return at.astimezone(zone).time()


def _change(after: datetime, until: datetime, zone: tzinfo) -> datetime | None:
    """Return when the offset from UTC changes, after one moment and until another; None where it stays.

    Clocks are changed at whole seconds. A change that is taken back before `until` is not seen.
    """
    offset = after.astimezone(zone).utcoffset()
    if until.astimezone(zone).utcoffset() == offset:
        return None
    start = after.replace(microsecond=0)
    low, high = 0, (until - start) // _SECOND + 1
    while high - low > 1:
        middle = (low + high) // 2
        if (start + middle * _SECOND).astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return start + high * _SECOND


def _clock(value: object, whole: object) -> time:
    if isinstance(value, time):
        return value.replace(fold=0)
    found = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise _refusal(f"window={whole!r} does not say {value!r} as an hour and a minute, 00:00 to 23:59")
    return time(int(found[1]), int(found[2]))


def _refusal(cause: str) -> DeclarationInvalid:
    return DeclarationInvalid(cause, fix='window="22:00-06:00"')
