"""What an error says about trying again: registered by exception class or by code, for all jobs of the project."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Literal

from ultimat3_jobs import errors
from ultimat3_jobs.errors import DeclarationInvalid

Answer = Literal["terminal", "retryable", "retry-after"]
"""terminal: no further attempt mends it; retryable: it follows the attempt count; retry-after: it says how long to
wait."""
_CODE = re.compile(r"X_[A-Z0-9]+(_[A-Z0-9]+)*", re.ASCII)


class ErrorRetry(StrEnum):
    """A registered answer."""

    TERMINAL = "terminal"
    RETRYABLE = "retryable"
    RETRY_AFTER = "retry-after"


_lock = threading.Lock()
# By identity, with the class beside it so that its id stays its own: a class can lie about, or raise in, its equality.
_by_class: dict[int, tuple[type[BaseException], ErrorRetry]] = {}
_by_code: dict[str, ErrorRetry] = {}


def register_error_retry(answers: Mapping[type[BaseException] | str, Answer]) -> None:
    """Say for all jobs what follows an attempt that raised one of these errors.

    A job's own `Retry(terminal=...)` goes first, then the nearest class in the error's method resolution order, then
    its `code`. A later registration of the same class or code replaces the earlier one, the package's own included.

    Args:
        answers: by exception class, which its subclasses inherit, or by the text of the error's `code` attribute
            ("X_DRIVER_UNAVAILABLE"): "terminal" ends the job on that attempt; "retryable" follows the attempt count,
            also under a broader class that is terminal; "retry-after" waits as long as the error says.

    Raises:
        DeclarationInvalid: where a key or an answer is none of these. Nothing is registered then.
    """
    if not isinstance(answers, Mapping):
        raise _refuse(f"register_error_retry() takes a dict, not {answers!r}")
    classes: dict[int, tuple[type[BaseException], ErrorRetry]] = {}
    codes: dict[str, ErrorRetry] = {}
    for key, answer in answers.items():
        if not isinstance(answer, str) or answer not in list(ErrorRetry):
            raise _refuse(f"register_error_retry() has no answer {answer!r}; it has {', '.join(ErrorRetry)}")
        if isinstance(key, type) and issubclass(key, BaseException):
            classes[id(key)] = (key, ErrorRetry(answer))
        elif isinstance(key, str) and _CODE.fullmatch(key):
            codes[key] = ErrorRetry(answer)
        else:
            raise _refuse(f"{key!r} is neither an exception class nor a code such as X_DRIVER_UNAVAILABLE")
    with _lock:
        _by_class.update(classes)
        _by_code.update(codes)


def find_by_class(kind: type[BaseException]) -> tuple[type[BaseException], ErrorRetry] | None:
    """Return the nearest registered class of an exception's class with its answer, or None."""
    # Not kind.__mro__, and not isinstance: an exception can lie about its class, or raise where it is asked.
    return next((found for one in type.mro(kind) if (found := _by_class.get(id(one)))), None)


def find_by_code(error: BaseException) -> tuple[str, ErrorRetry] | None:
    """Return the error's code with its answer where it has a registered one, or None. Never raises."""
    if not _by_code:
        return None
    try:
        code = getattr(error, "code", None)
    except BaseException:  # whatever a property of an exception raises must not stop its own record
        return None
    # A plain text alone: one that derives from it can raise where it is looked up.
    if type(code) is str and (answer := _by_code.get(code)):
        return code, answer
    return None


@contextmanager
def isolated() -> Iterator[None]:
    """Forget, at the end of the block, whatever was registered in it. For tests."""
    with _lock:
        classes, codes = dict(_by_class), dict(_by_code)
    try:
        yield
    finally:
        with _lock:
            _by_class.clear()
            _by_class.update(classes)
            _by_code.clear()
            _by_code.update(codes)


def _refuse(cause: str) -> DeclarationInvalid:
    return DeclarationInvalid(cause, fix='register_error_retry({ConnectionError: "retryable"})')


# The package's own. What is not here needs a change first, which a deploy between two attempts may bring: it follows
# the attempt count.
register_error_retry(
    {
        errors.InputInvalid: "terminal",
        errors.EventInvalid: "terminal",
        errors.ResultInvalid: "terminal",
        errors.IdempotencyRequired: "terminal",
        errors.TenantRequired: "terminal",
        errors.NotCallable: "terminal",
        errors.OutboxNeedsTransaction: "terminal",
        errors.StepInvalid: "terminal",
        errors.StepDuplicate: "terminal",
        errors.StepNotAtomic: "terminal",
        errors.StepInTransaction: "terminal",
        errors.SignalSwallowed: "terminal",
        errors.EventTimeout: "terminal",
        errors.BackfillUnknown: "terminal",
        errors.BackfillEnvironment: "terminal",
        errors.BackfillMigrationPending: "terminal",
        errors.BackfillStalled: "terminal",
        errors.BackfillCountInvalid: "terminal",
        errors.BackfillSourceInvalid: "terminal",
        errors.BackfillSourceChanged: "terminal",
        errors.BackfillKeysMoved: "retryable",
        errors.DuplicateJob: "retryable",
        errors.KeyReused: "retryable",
        errors.RowStatusUnknown: "retryable",
        errors.DriverUnavailable: "retryable",
        errors.JobTimeout: "retryable",
    }
)
