"""When a failed attempt is tried again: pure arithmetic over a declared policy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from ultimat3_jobs.durations import Duration, format_duration, parse_duration
from ultimat3_jobs.errors import DeclarationInvalid

Backoff = Literal["exponential", "linear", "fixed"]
MAX_ATTEMPTS = 1_000


@dataclass(frozen=True)
class Retry:
    """How often a job is attempted and how long it waits in between.

    Args:
        attempts: starts at most, the first included (1 to 1,000).
        backoff: how the delay grows: doubled each time, added each time, or the same.
        delay: the delay after the first failure (a length of time).
        max_delay: what no delay exceeds (a length of time).
        jitter: draw each delay from its upper half, so that jobs which failed together do not return together.
        dead_letter: keep exhausted work as a dead letter; otherwise it ends as failed.
        terminal: exception classes that no further attempt can mend.

    Raises:
        DeclarationInvalid: where a value cannot work.
    """

    attempts: int = 3
    backoff: Backoff = "exponential"
    delay: Duration = "1s"
    max_delay: Duration = "1h"
    jitter: bool = True
    dead_letter: bool = True
    terminal: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if (
            isinstance(self.attempts, bool)
            or not isinstance(self.attempts, int)
            or not 1 <= self.attempts <= MAX_ATTEMPTS
        ):
            raise _refuse("attempts", self.attempts, f"a whole number from 1 to {MAX_ATTEMPTS}", "attempts=3")
        if self.backoff not in ("exponential", "linear", "fixed"):
            raise _refuse("backoff", self.backoff, '"exponential", "linear" or "fixed"', 'backoff="exponential"')
        for name in ("delay", "max_delay"):
            value = getattr(self, name)
            try:
                length = parse_duration(value)
            except ValueError as error:
                raise _refuse(name, value, f"a length of time ({error})", f'{name}="1s"') from None
            if length < timedelta(0):
                raise _refuse(name, value, "a length of time of zero or more", f'{name}="1s"')
            object.__setattr__(self, name, length)
        if not isinstance(self.terminal, tuple) or not all(
            isinstance(one, type) and issubclass(one, BaseException) for one in self.terminal
        ):
            raise _refuse("terminal", self.terminal, "a tuple of exception classes", "terminal=(ValueError,)")

    def delay_after(self, attempt: int, draw: Callable[[], float] = random.random) -> timedelta:
        """Return how long to wait after attempt number `attempt` (1 is the first) failed.

        Args:
            attempt: the number of the attempt that failed.
            draw: gives a number from 0 up to 1; the jitter.
        """
        whole = self._whole_delay(attempt)
        return whole * (0.5 + draw() / 2) if self.jitter else whole

    def schedule(self) -> list[timedelta]:
        """Return the delays between the attempts, without jitter: one fewer than there are attempts."""
        return [self._whole_delay(attempt) for attempt in range(1, self.attempts)]

    def describe(self) -> dict[str, object]:
        """Return the policy as plain JSON values."""
        return {
            "attempts": self.attempts,
            "backoff": self.backoff,
            "delay": format_duration(parse_duration(self.delay)),
            "max_delay": format_duration(parse_duration(self.max_delay)),
            "jitter": self.jitter,
            "dead_letter": self.dead_letter,
            "terminal": sorted(f"{one.__module__}.{one.__qualname__}" for one in self.terminal),
        }

    def _whole_delay(self, attempt: int) -> timedelta:
        first, longest = parse_duration(self.delay), parse_duration(self.max_delay)
        if self.backoff == "fixed" or not first:
            return min(first, longest)
        # Capped before it is multiplied: a factor of 2 ** 999 overflows every length of time.
        steps = attempt if self.backoff == "linear" else 2.0 ** min(attempt - 1, 64)
        return longest if steps >= longest / first else first * steps


def _refuse(name: str, value: object, wanted: str, fix: str) -> DeclarationInvalid:
    return DeclarationInvalid(f"Retry({name}={value!r}) is not {wanted}", fix=f"Retry({fix})")
