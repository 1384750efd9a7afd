"""Calling what a project has declared for people who look: whatever it raises is a refusal that names the backfill."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TypeVar

from ultimat3_jobs.control import Aborted, Suspended
from ultimat3_jobs.errors import DeclarationInvalid, JobsError
from ultimat3_jobs.traces import class_name, message_of, traceback_of

T = TypeVar("T")

# A person's Ctrl-C, and what steers a run that asks for itself.
_RAISED_ON = (JobsError, KeyboardInterrupt, Aborted, Suspended)


def ask(call: Callable[[], T], *, refuse: Callable[[BaseException], JobsError]) -> T:
    """Call a project's code and return what it answers.

    SystemExit and the like are refused too: they would end the command or the request, and nobody would know of whom.

    Args:
        call: calls it.
        refuse: makes the refusal from what it raised.

    Raises:
        JobsError: where it raises; what it raised, where that is one.
        KeyboardInterrupt: of a person.
    """
    try:
        return call()
    except _RAISED_ON:
        raise
    except BaseException as error:
        raise refuse(error) from error


def ask_for_one(name: str, call: Callable[[], T]) -> T:
    """Do what a command was asked for of one backfill: an exception is shown with its traceback, which says where.

    What is no exception would end the command with a status of its own, and no word.

    Args:
        name: of the backfill.
        call: does it.

    Raises:
        DeclarationInvalid: where SystemExit or the like is raised.
    """
    try:
        return call()
    except (Exception, *_RAISED_ON):
        raise
    except BaseException as error:
        *_, frame = traceback.extract_tb(traceback_of(error))
        raise DeclarationInvalid(
            f"what backfill {name!r} is declared with raised {told(error)} ({frame.filename}:{frame.lineno})",
            fix="raise LookupError  # there: an exception, instead of what ends a process",
        ) from error


def told(error: BaseException) -> str:
    """Return the class and the text of what a project's code raised."""
    name, message = class_name(type(error)), message_of(error).strip()
    return f"{name}: {message}" if message else name
