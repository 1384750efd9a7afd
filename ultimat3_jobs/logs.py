"""Structured logging: one name for each event, its fields beside it, and never an input."""

from __future__ import annotations

import contextlib
import logging

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
