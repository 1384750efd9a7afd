"""What a body may ask for, checked before anything is done: names, functions, lengths of time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ultimat3_jobs.durations import Duration, parse_duration
from ultimat3_jobs.errors import StepInvalid
from ultimat3_jobs.text import MAX_NAME, is_label


def check_name(name: object) -> str:
    """Return what names a step as plain text, checked.

    Raises:
        StepInvalid: where it is no printable text of 1 to 200 characters without space around it.
    """
    if not is_label(name, MAX_NAME):
        shown = repr(name) if len(repr(name)) <= MAX_NAME else f"{repr(name)[:MAX_NAME]}…"
        raise StepInvalid(
            f"{shown} cannot name a step: a name is 1 to {MAX_NAME} printable characters, without space around them",
            fix='run.step("charge", charge, order_id)',
        )
    return str.__str__(name)


def check_function(name: str, fn: object) -> None:
    """Refuse what cannot be called.

    Raises:
        StepInvalid: where it is not callable.
    """
    if not callable(fn):
        raise StepInvalid(
            f"step {name!r} was given {type(fn).__name__}, which cannot be called",
            fix=f"run.step({name!r}, fn, *args)  # the function itself, not what it returns",
        )


def check_length(what: str, value: Duration, *, fix: str) -> timedelta:
    """Return a length of time; of zero or less it is over at once.

    Args:
        what: is so long, for the message.
        value: what was given.
        fix: what would work.

    Raises:
        StepInvalid: where it is none: not a number, infinite, longer than a hundred years.
    """
    try:
        return parse_duration(value)
    except ValueError as error:
        raise StepInvalid(f"{what}: {error}", fix=fix) from None


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
