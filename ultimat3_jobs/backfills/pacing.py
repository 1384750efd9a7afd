"""When the next page of a pass may begin, and how many rows it may have: pure decisions from the seconds they took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ultimat3_jobs.errors import DeclarationInvalid

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import Batch

LOWEST_RATE, HIGHEST_RATE = 0.0001, 1_000.0  # pages a second: from one in three hours to one a millisecond
MOST_ROWS = 100_000
"""Rows that a page may be declared to have: they are in memory at once."""

AUTO = "auto"
AUTO_START, AUTO_MOST = 100, 10_000  # rows
AUTO_TARGET = 0.5
"""Seconds that a page of a tuned size should take: short for those who wait for its rows, long for its overhead."""
MOST_CHANGE = 2.0
"""How far one page may change the next one's size, either way: one that met a busy moment says little."""

GOOD_PAGES = 8
"""Pages that land before a halved size is doubled again."""
MOST_GOOD_PAGES = 512


def check_rate(value: object) -> float:
    """Return pages a second, checked.

    Raises:
        DeclarationInvalid: where it is no number from 0.0001 to 1,000.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and LOWEST_RATE <= value <= HIGHEST_RATE:
        return float(value)
    raise DeclarationInvalid(
        f"rate={value!r} is no number of pages a second from {LOWEST_RATE:g} to {HIGHEST_RATE:,.0f}", fix="rate=5"
    )


def check_batch(value: object) -> Batch:
    """Return rows a page at most, checked, or "auto".

    Raises:
        DeclarationInvalid: where it is neither "auto" nor a whole number from 1 to 100,000.
    """
    if isinstance(value, str) and value == AUTO:
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_ROWS:
        return int(value)
    raise DeclarationInvalid(
        f'batch={value!r} is neither a whole number of rows from 1 to {MOST_ROWS:,} nor "auto"', fix="batch=1_000"
    )


class Pacer:
    """Says when the next page may begin, so that no more than `rate` of them do in a second.

    Time that a slow page took is not made up for by quicker ones, or a pass would rush after each stop.

    Args:
        rate: pages a second.

    Raises:
        DeclarationInvalid: where it is no number from 0.0001 to 1,000; also where it is changed to one.
    """

    def __init__(self, rate: float) -> None:
        self._rate = check_rate(rate)
        self._began: float | None = None

    @property
    def rate(self) -> float:
        """Pages a second; a new one holds for the wait that goes on, too."""
        return self._rate

    @rate.setter
    def rate(self, value: float) -> None:
        self._rate = check_rate(value)

    def wait(self, now: float) -> float:
        """Return the seconds until the next page may begin; 0 where it may now.

        Args:
            now: seconds of a clock that never goes back.
        """
        return 0.0 if self._began is None else max(0.0, self._began + 1 / self._rate - now)

    def began(self, now: float) -> None:
        """Take note that a page begins."""
        self._began = now


class Sizes:
    """How many rows the next page may have.

    A fixed size stays what is declared, a tuned one follows the time that pages take. A page that ran into the
    database's time limit halves either, and the size grows again, doubled after some good pages; where that fails
    again, it takes twice as many.

    Args:
        batch: rows a page as declared, or "auto".
        size: where an earlier run of the pass left off; None for a new one.
    """

    def __init__(self, batch: Batch, size: int | None = None) -> None:
        self._auto = batch == AUTO
        self._most = AUTO_MOST if batch == "auto" else batch
        at = (AUTO_START if batch == "auto" else batch) if size is None else min(max(1, size), self._most)
        self._wanted = at if self._auto else self._most
        self._bound = self._most if self._auto else at
        self._good = 0
        self._needed = GOOD_PAGES
        self._grew = False

    @property
    def size(self) -> int:
        """Rows of the next page at most, 1 or more; what a later run of the pass goes on from."""
        return min(self._wanted, self._bound)

    def landed(self, rows: int, seconds: float) -> None:
        """Learn from a page that has committed.

        Args:
            rows: how many it had. One with fewer than it might have had says nothing where it was quick: a page
                costs something whatever is in it.
            seconds: that it took.
        """
        if self._auto and (rows >= self.size or seconds > AUTO_TARGET):
            self._wanted = self._tuned(rows, seconds)
        self._good += 1
        if self._bound < self._most and self._good >= self._needed:
            self._bound *= 2
            self._good, self._grew = 0, True

    def timed_out(self) -> bool:
        """Halve the size after a page that ran into the database's time limit; return whether that could be done."""
        if self.size == 1:
            return False
        self._needed = min(2 * self._needed, MOST_GOOD_PAGES) if self._grew else self._needed
        self._good, self._grew = 0, False
        self._bound = self.size // 2
        return True

    def _tuned(self, rows: int, seconds: float) -> int:
        fitting = rows * AUTO_TARGET / seconds if seconds > 0 else AUTO_MOST
        nearby = min(max(fitting, self.size / MOST_CHANGE), self.size * MOST_CHANGE)
        return min(max(1, round(nearby)), AUTO_MOST)
