"""An exception as bounded text that every database takes. Pure; never raises on a hostile exception."""

from __future__ import annotations

import hashlib
import traceback
from types import TracebackType

from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.records import Failure

MAX_TEXT = 16_000
MAX_LABEL = 255
_HEAD = 4_000


def describe_failure(error: BaseException, *, verdict: str, package: str = "") -> Failure:
    """Return an exception as stored with its job.

    Args:
        error: what was raised.
        verdict: what was decided; it ends the text.
        package: top-level package of the body; the innermost frame inside it is the place of the failure.
    """
    error_class = _bounded(_class_name(type(error)), MAX_LABEL)
    place = _bounded(_place(error.__traceback__, package), MAX_LABEL)
    ending = f"\nverdict: {verdict}"
    text = _shortened(_clean(_format(error)), MAX_TEXT - len(ending)) + ending
    cause = hashlib.sha256(f"{error_class}\n{place}".encode()).hexdigest()
    return Failure(error_class=error_class, error_place=place, cause=cause, text=text)


def _format(error: BaseException) -> str:
    if isinstance(error, JobsError) and error.__traceback__ is None:
        return str(error)
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException:  # an exception whose text raises must not stop its own record
        return f"{_class_name(type(error))}: <its text could not be read>"


def _class_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _place(tb: TracebackType | None, package: str) -> str:
    innermost = ours = ""
    while tb is not None:
        frame = tb.tb_frame
        module = str(frame.f_globals.get("__name__", "?"))
        innermost = f"{module}.{frame.f_code.co_qualname}"
        if package and module.partition(".")[0] == package:
            ours = innermost
        tb = tb.tb_next
    return ours or innermost


def _clean(text: str) -> str:
    """Escape what a database refuses: NUL characters and lone surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _bounded(label: str, limit: int) -> str:
    label = _clean(label)
    return label if len(label) <= limit else label[: limit - 1] + "…"


def _shortened(text: str, limit: int) -> str:
    """Keep the beginning and, for the innermost frames and the message, more of the end; mark what is left out."""
    if len(text) <= limit:
        return text
    mark = f"\n... [{len(text) - limit} and some characters left out] ...\n"
    return text[:_HEAD] + mark + text[len(text) - (limit - _HEAD - len(mark)) :]
