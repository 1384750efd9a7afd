"""How long an error says to wait: its `retry_after`, or the `Retry-After` of the HTTP response it carries."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any

from ultimat3_jobs.durations import LONGEST

_SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_LONGEST_HEADER = 100  # characters; digits beyond say nothing, and take long to read


def read_retry_after(error: BaseException) -> timedelta | None:
    """Return how long the error says to wait, at most a hundred years, or None where it says nothing usable.

    Looked at in this order: `error.retry_after` (seconds, or a timedelta), `error.headers`, `error.response.headers`.
    A header holds seconds or an HTTP date. A date counts from the `Date` of the same response, never from this host's
    clock; without one it says nothing. Negative, infinite and unreadable values say nothing. Never raises.
    """
    for source in (_attribute, _headers, _headers_of_response):
        try:
            seconds = source(error)
            if seconds is not None and math.isfinite(seconds) and seconds >= 0:
                return timedelta(seconds=min(seconds, LONGEST.total_seconds()))
        except BaseException:  # noqa: S112 - whatever an attribute of an exception raises must not stop its own record
            continue
    return None


def _attribute(error: BaseException) -> float | None:
    return _seconds(getattr(error, "retry_after", None))


def _headers(error: BaseException) -> float | None:
    return _header(getattr(error, "headers", None))


def _headers_of_response(error: BaseException) -> float | None:
    return _header(getattr(getattr(error, "response", None), "headers", None))


def _header(headers: Any) -> float | None:
    if headers is None:
        return None
    value = _get(headers, "Retry-After")
    seconds = _seconds(value)
    if seconds is not None or not isinstance(value, str):
        return seconds
    return (_instant(value) - _instant(_get(headers, "Date"))).total_seconds()


def _get(headers: Any, name: str) -> Any:
    """Read a header, also from a plain dict in the two ways that its name is mostly written."""
    value = headers.get(name)
    return headers.get(name.lower()) if value is None else value


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float, Decimal)):
        return float(value)
    if isinstance(value, str) and len(value) <= _LONGEST_HEADER and _SECONDS.fullmatch(value.strip()):
        return float(value)
    return None


def _instant(text: str) -> datetime:
    found = parsedate_to_datetime(text[:_LONGEST_HEADER])
    return found if found.tzinfo else found.replace(tzinfo=UTC)
