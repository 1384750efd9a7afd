"""An exception as what is stored of it: bounded text that every database takes. Never raises on a hostile exception."""

from __future__ import annotations

import hashlib
from types import TracebackType

from ultimat3_jobs.errors import JobsError, JobTimeout
from ultimat3_jobs.records import Failure
from ultimat3_jobs.text import bounded, shortened, storable
from ultimat3_jobs.traces import class_name, format_error, message_of, traceback_of

__all__ = ["MAX_LABEL", "MAX_TEXT", "class_name", "describe_failure"]

MAX_TEXT = 16_000
MAX_LABEL = 255


def describe_failure(error: BaseException, *, verdict: str, body: str = "", rule: str = "") -> Failure:
    """Return an exception as stored with its job and in its history.

    Args:
        error: what was raised.
        verdict: what was decided; it ends the text.
        body: dotted name of the job's function. The place of the failure is the innermost frame of its package.
        rule: what classified the error.
    """
    tb = traceback_of(error)
    error_class = bounded(class_name(type(error)), MAX_LABEL)
    place = bounded(_place(tb, body.partition(".")[0]) or body, MAX_LABEL)
    message = message_of(error)
    # A timeout is never raised: what it interrupted, or where its thread was, is told with it.
    timed_out = issubclass(type(error), JobTimeout)
    # Any other error of the package that was never raised says all there is to say.
    alone = tb is None and issubclass(type(error), JobsError) and not timed_out
    trace = message if alone else format_error(error)
    ending = f"\nverdict: {bounded(verdict, MAX_TEXT // 2)}"
    return Failure(
        error_class=error_class,
        error_place=place,
        cause=hashlib.sha256(f"{error_class}\n{place}".encode()).hexdigest(),
        text=shortened(trace, MAX_TEXT - len(ending)) + ending,
        message=message,
        traceback=shortened(trace, MAX_TEXT) if tb or timed_out else "",
        rule=bounded(rule, MAX_LABEL),
    )


def _place(tb: TracebackType | None, package: str) -> str:
    innermost = ours = ""
    while tb is not None:
        frame = tb.tb_frame
        name = frame.f_globals.get("__name__")
        module = name if type(name) is str else "?"
        innermost = f"{module}.{frame.f_code.co_qualname}"
        if package and module.partition(".")[0] == package:
            ours = innermost
        tb = tb.tb_next
    return storable(ours or innermost)
