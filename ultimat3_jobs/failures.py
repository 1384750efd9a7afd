"""An exception as bounded text that every database takes. Pure; never raises on a hostile exception."""

from __future__ import annotations

import hashlib
import traceback
from types import TracebackType

from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.records import Failure
from ultimat3_jobs.text import bounded, storable

MAX_TEXT = 16_000
MAX_LABEL = 255
_HEAD = 4_000


def describe_failure(error: BaseException, *, verdict: str, body: str = "") -> Failure:
    """Return an exception as stored with its job.

    Args:
        error: what was raised.
        verdict: what was decided; it ends the text.
        body: dotted name of the job's function. The place of the failure is the innermost frame of its package.
    """
    tb = _traceback(error)
    error_class = bounded(class_name(type(error)), MAX_LABEL)
    place = bounded(_place(tb, body.partition(".")[0]) or body, MAX_LABEL)
    ending = f"\nverdict: {bounded(verdict, MAX_TEXT // 2)}"
    text = _shortened(storable(_format(error, tb)), MAX_TEXT - len(ending)) + ending
    cause = hashlib.sha256(f"{error_class}\n{place}".encode()).hexdigest()
    return Failure(error_class=error_class, error_place=place, cause=cause, text=text)


def class_name(kind: type[BaseException]) -> str:
    """Return the dotted name of an exception's class; built-in ones go without their module."""
    # Not kind.__qualname__: a metaclass can make that raise, or lie.
    name, module = (_own(kind, attribute) for attribute in ("__qualname__", "__module__"))
    return name if module == "builtins" else f"{module}.{name}"


def _own(kind: type[BaseException], attribute: str) -> str:
    try:
        return _text_or_mark(type.__dict__[attribute].__get__(kind))
    except AttributeError:
        return "?"


def _traceback(error: BaseException) -> TracebackType | None:
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


def _format(error: BaseException, tb: TracebackType | None) -> str:
    try:
        if tb is None and issubclass(type(error), JobsError):
            return str(error)
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException:  # an exception whose text raises must not stop its own record
        return "".join(traceback.format_tb(tb)) + f"{class_name(type(error))}: <its text could not be read>"


def _place(tb: TracebackType | None, package: str) -> str:
    innermost = ours = ""
    while tb is not None:
        frame = tb.tb_frame
        module = _text_or_mark(frame.f_globals.get("__name__"))
        innermost = f"{module}.{frame.f_code.co_qualname}"
        if package and module.partition(".")[0] == package:
            ours = innermost
        tb = tb.tb_next
    return ours or innermost


def _text_or_mark(value: object) -> str:
    return value if type(value) is str else "?"


def _shortened(text: str, limit: int) -> str:
    """Keep the beginning and, for the innermost frames and the message, more of the end; mark what is left out."""
    if len(text) <= limit:
        return text
    mark = f"\n... [{len(text) - limit} and some characters left out] ...\n"
    return text[:_HEAD] + mark + text[len(text) - (limit - _HEAD - len(mark)) :]
