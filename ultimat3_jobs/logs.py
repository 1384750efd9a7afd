"""Structured logging: one name for each event, its fields beside it, and never an input."""

from __future__ import annotations

import contextlib
import logging

from ultimat3_jobs.errors import JobsError, MigrationMissing
from ultimat3_jobs.text import bounded
from ultimat3_jobs.traces import first_line

MAX_WHY = 300

logger = logging.getLogger("ultimat3_jobs")


def emit(event: str, *, level: int = logging.INFO, exc_info: bool = False, **fields: object) -> None:
    """Log one event. Never raises: a handler that fails must not end the thread that had something to say.

    Args:
        event: its name, such as "jobs.lease.lost"; searchable and stable.
        level: a level of the logging module.
        exc_info: add the traceback of the exception being handled.
        fields: what happened to what; they are on the record as `record.fields` too.
    """
    with contextlib.suppress(Exception):
        if logger.isEnabledFor(level):
            text = " ".join(f"{name}={value}" for name, value in fields.items())
            logger.log(level, "%s %s", event, text, exc_info=exc_info, extra={"event": event, "fields": fields})


class FailureLog:
    """Logs what fails again and again: with its traceback where it is new, in one line for as long as it is the same.

    Args:
        event: the name of the event.
        level: a level of the logging module.
    """

    def __init__(self, event: str, *, level: int = logging.ERROR) -> None:
        self._event = event
        self._level = level
        self._told: tuple[type[Exception], str] | None = None

    def tell(self, error: Exception, **fields: object) -> None:
        """Log a failure; call it where the exception is being handled. Never raises.

        Args:
            error: what was raised.
            fields: beside the error's class and what it says: `why`, or `cause` and `fix` of an error of this package.
        """
        if isinstance(error, JobsError):
            why, said = error.cause, {"cause": error.cause, "fix": error.fix}
        else:
            why = bounded(first_line(error), MAX_WHY)
            said = {"why": why}
        # What has not been migrated says all in two lines: a traceback has nothing to add.
        is_new = self._told != (type(error), why) and not isinstance(error, MigrationMissing)
        self._told = (type(error), why)
        emit(self._event, level=self._level, exc_info=is_new, error=type(error).__name__, **said, **fields)

    def passed(self) -> None:
        """Take note that it went well: what fails next is new."""
        self._told = None
