"""What a backfill's own `throttle=` says before a page: go on, or wait."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ultimat3_jobs.durations import parse_duration
from ultimat3_jobs.errors import DeclarationInvalid
from ultimat3_jobs.traces import message_of, repr_of

USUAL_WAIT = 5.0
"""Seconds to wait where a throttle answers True."""
REASON = "its throttle says so"


@dataclass(frozen=True)
class Wait:
    """A page that has to wait, and why."""

    seconds: float
    reason: str


def check_throttle(value: object) -> Callable[[], Any] | None:
    """Return a throttle, checked: None, or a plain callable that can be called without arguments.

    Raises:
        DeclarationInvalid: where it is neither.
    """
    if value is None:
        return None
    fix = 'throttle=lambda: None  # or True, seconds, a timedelta or "5s" to wait'
    if not callable(value):
        raise DeclarationInvalid(f"throttle={value!r} cannot be called", fix=fix)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004
        raise DeclarationInvalid("the throttle callable is async", fix=fix)
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError) as error:
        raise DeclarationInvalid(f"throttle={value!r} cannot be called without arguments: {error}", fix=fix) from None
    return value


def ask(throttle: Callable[[], object], *, backfill: str) -> Wait | None:
    """Return how long to wait, or None to go on.

    What the throttle raises is raised, with a note that says where it comes from: it may ask a service that is down,
    and another attempt may then help.

    Args:
        throttle: answers None, False or 0 to go on; True to wait for 5 seconds; or a length of time.
        backfill: the name of the backfill whose throttle it is.

    Raises:
        DeclarationInvalid: where it answers anything else, or a negative length of time.
    """
    try:
        answer = throttle()
    except Exception as error:
        error.add_note(f"raised by the throttle of the backfill {backfill}")
        raise
    if answer is None or answer is False:
        return None
    if answer is True:
        return Wait(USUAL_WAIT, REASON)
    if inspect.iscoroutine(answer):
        answer.close()  # or Python warns that nobody has awaited it
        raise _refusal(backfill, "answers a coroutine")
    try:
        seconds = parse_duration(answer).total_seconds()  # type: ignore[arg-type]  # what is none is refused there
    except ValueError as error:
        raise _refusal(backfill, f"answers what is no wait: {message_of(error)}") from None
    except Exception:  # whatever it makes of being looked at
        raise _refusal(backfill, f"answers {repr_of(answer)}, which is no wait") from None
    if seconds < 0:
        raise _refusal(backfill, f"answers {repr_of(answer)}, which is less than no wait")
    return Wait(seconds, REASON) if seconds else None


def _refusal(backfill: str, fault: str) -> DeclarationInvalid:
    return DeclarationInvalid(
        f"the throttle of the backfill {backfill} {fault}",
        fix='throttle=lambda: "5s"  # or None, True, seconds or a timedelta, from a plain function',
    )
