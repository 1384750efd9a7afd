"""The hours in which a pass may sweep: what is read and refused, over midnight, and where clocks are changed."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.declaring import error_of
from ultimat3_jobs.backfills.windows import Window, opens_in, parse_window

NIGHT = Window(time(22), time(6))
READ: list[Any] = [
    *("22:00-06:00", " 22:00 - 06:00 ", ("22:00", "06:00"), ["22:00", "06:00"]),
    *((time(22), time(6)), ("22:00", time(6, fold=1)), NIGHT),
]
PAIR, CLOCK, WHOLE = "is no pair of a start and an end", "as an hour and a minute", "is no hour and minute"
REFUSED: list[tuple[Any, str]] = [
    *((one, PAIR) for one in ("", "22:00", "22-23-06", None, 22, ("22:00",), ("22:00", "23:00", "06:00"), {}, b"2-3")),
    *((one, CLOCK) for one in ("22-06", "22:00-24:00", "22:60-06:00", "9:00-17:00", "22:00:00-06:00", "٢٢:00-06:00")),
    *((one, CLOCK) for one in ("a-b", "-", (22, 6), ("22:00", None), (datetime(2026, 1, 1, 22), time(6)))),
    *(
        (one, WHOLE)
        for one in ((time(22, 0, 1), time(6)), (time(22), time(6, 0, 0, 1)), (time(22, tzinfo=UTC), time(6)))
    ),
    *((one, "never or always") for one in ("22:00-22:00", (time(0), time(0)))),
]
BERLIN, LORD_HOWE, APIA = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")
HOURS: list[tuple[str, str, str]] = [
    ("22:00-06:00", "21:59:59.999999", "0:00:00.000001"),
    ("22:00-06:00", "22:00", "0:00:00"),
    ("22:00-06:00", "23:59:59", "0:00:00"),
    ("22:00-06:00", "00:00", "0:00:00"),
    ("22:00-06:00", "05:59:59.999999", "0:00:00"),
    ("22:00-06:00", "06:00", "16:00:00"),
    ("09:00-17:00", "08:30", "0:30:00"),
    ("09:00-17:00", "09:00", "0:00:00"),
    ("09:00-17:00", "17:00", "16:00:00"),
    ("09:00-17:00", "23:00", "10:00:00"),
    ("18:00-00:00", "23:59", "0:00:00"),
    ("18:00-00:00", "00:00", "18:00:00"),
    ("00:00-00:01", "00:01", "23:59:00"),
]
# The moment in UTC, what the clock shows then, and how long it is until the window opens.
CHANGES: dict[str, list[tuple[ZoneInfo, str, str, str, str]]] = {
    # 2026-03-29: 02:00 is 03:00 at once.
    "jumps": [
        (BERLIN, "02:30-04:00", "2026-03-29T00:59:59", "01:59:59", "0:00:01"),  # opens with the jump
        (BERLIN, "02:30-04:00", "2026-03-29T00:59:59.500000", "01:59:59.500000", "0:00:00.500000"),
        (BERLIN, "02:30-04:00", "2026-03-29T01:00:00", "03:00:00", "0:00:00"),
        (BERLIN, "03:00-04:00", "2026-03-29T00:30:00", "01:30:00", "0:30:00"),
        (BERLIN, "02:10-02:50", "2026-03-29T00:30:00", "01:30:00", "23:40:00"),  # that night has no such hour
        (BERLIN, "01:00-02:30", "2026-03-29T00:30:00", "01:30:00", "0:00:00"),
        (BERLIN, "01:00-02:30", "2026-03-29T01:00:00", "03:00:00", "22:00:00"),
        (BERLIN, "22:00-06:00", "2026-03-28T20:00:00", "21:00:00", "1:00:00"),
        (BERLIN, "06:00-07:00", "2026-03-28T21:00:00", "22:00:00", "7:00:00"),  # a night of one hour less
    ],
    # 2026-10-25: 03:00 is 02:00 again.
    "repeats": [
        (BERLIN, "02:15-02:30", "2026-10-25T00:00:00", "02:00:00", "0:15:00"),
        (BERLIN, "02:15-02:30", "2026-10-25T00:20:00", "02:20:00", "0:00:00"),
        (BERLIN, "02:15-02:30", "2026-10-25T00:30:00", "02:30:00", "0:45:00"),  # it comes a second time
        (BERLIN, "02:15-02:30", "2026-10-25T01:20:00", "02:20:00", "0:00:00"),
        (BERLIN, "02:15-02:30", "2026-10-25T01:30:00", "02:30:00", "23:45:00"),
        (BERLIN, "01:30-02:15", "2026-10-25T00:15:00", "02:15:00", "0:45:00"),  # opens with the clock's way back
        (BERLIN, "01:30-02:15", "2026-10-25T01:14:59", "02:14:59", "0:00:00"),
        (BERLIN, "01:30-02:15", "2026-10-25T01:15:00", "02:15:00", "23:15:00"),
        (BERLIN, "06:00-07:00", "2026-10-24T20:00:00", "22:00:00", "9:00:00"),  # a night of one hour more
    ],
    "elsewhere": [
        (LORD_HOWE, "02:10-02:20", "2026-10-03T15:00:00", "01:30:00", "1 day, 0:10:00"),  # jumps half an hour
        (LORD_HOWE, "02:10-03:00", "2026-10-03T15:00:00", "01:30:00", "0:30:00"),
        (APIA, "23:00-23:30", "2011-12-30T09:45:00", "23:45:00", "23:15:00"),  # the 30th was left out
    ],
}


@pytest.mark.parametrize("value", READ, ids=repr)
def test_a_window_is_read(value: Any) -> None:
    window = parse_window(value)

    assert (window, str(window)) == (NIGHT, "22:00-06:00")
    assert (window.start.fold, window.end.fold) == (0, 0)
    assert parse_window(str(window)) == window


@pytest.mark.parametrize(("value", "cause"), REFUSED, ids=repr)
def test_what_is_no_window_is_refused_and_mended_by_typing_the_fix(value: Any, cause: str) -> None:
    error = error_of("X_JOB_DECLARATION_INVALID", lambda: parse_window(value))

    assert cause in error.cause
    mended: dict[str, Any] = eval(f"dict({error.fix}\n)")
    assert mended == {"window": None} or parse_window(mended["window"])


@pytest.mark.parametrize(("hours", "shown", "waits"), HOURS)
def test_it_opens_at_its_start_and_closes_before_its_end(hours: str, shown: str, waits: str) -> None:
    now = datetime.combine(datetime(2026, 7, 1), time.fromisoformat(shown), timezone(timedelta(hours=5, minutes=45)))

    assert str(opens_in(parse_window(hours), now)) == waits


@pytest.mark.parametrize(
    ("zone", "hours", "moment", "shown", "waits"), [case for cases in CHANGES.values() for case in cases]
)
def test_the_clock_on_the_wall_counts_where_clocks_are_changed(
    zone: ZoneInfo, hours: str, moment: str, shown: str, waits: str
) -> None:
    now = datetime.fromisoformat(moment).replace(tzinfo=UTC).astimezone(zone)
    assert now.time() == time.fromisoformat(shown)

    assert str(opens_in(parse_window(hours), now)) == waits


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-07-01"])
def test_what_it_says_is_what_looking_every_minute_finds(day: str) -> None:
    begin = datetime.fromisoformat(f"{day}T00:00+00:00") - timedelta(hours=6)
    minutes = [begin + timedelta(minutes=n) for n in range(3 * 24 * 60)]
    for hours in ("02:30-03:30", "01:45-02:15", "23:00-02:30", "02:00-03:00", "03:00-02:00"):
        window = parse_window(hours)
        opened = [moment for moment in minutes if window.shows(moment.astimezone(BERLIN).time())]
        for moment in minutes[: 36 * 60 : 15]:
            opening = opened[bisect_left(opened, moment)]
            assert opens_in(window, moment.astimezone(BERLIN)) == opening - moment, (hours, moment)


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        opens_in(NIGHT, datetime(2026, 7, 1))
