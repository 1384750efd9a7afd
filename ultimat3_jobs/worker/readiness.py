"""What keeps a worker from beginning: a queue that does not answer, or has no tables yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.db import Error

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.errors import DriverUnavailable
from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import FIRST_BACKOFF, LONGEST_BACKOFF, LONGEST_DEAF, close_thread_connections
from ultimat3_jobs.schema import schema_fault, unapplied, unusable
from ultimat3_jobs.text import command_line


def require_queue() -> None:
    """Return where the queue can be worked on; say which of the package's migrations it has not got.

    Raises:
        DriverUnavailable: where it cannot be.
    """
    alias = queue_alias()
    try:
        if fault := schema_fault(alias):
            raise fault
        late = unapplied(alias)
    except Error as error:
        close_thread_connections()
        raise unusable(alias, error) from error
    if late:
        # Nothing needs what they add: an index that is being built, most often.
        fix = command_line("migrate", "ultimat3_jobs", "--database", alias)
        emit("jobs.worker.unmigrated", level=logging.WARNING, database=alias, migrations=",".join(late), fix=fix)


def await_queue(*, is_stopped: Callable[[], bool]) -> bool:
    """Wait until the queue can be worked on, and say every few seconds why it cannot.

    A deploy may start its workers before it has migrated, and both before the database is up.

    Args:
        is_stopped: whether the process was told to end; then False is returned.
    """
    pause = FIRST_BACKOFF
    while not is_stopped():
        try:
            require_queue()
        except DriverUnavailable as error:
            _tell(error, pause)
        else:
            return True
        _sleep(pause, is_stopped)
        pause = min(LONGEST_BACKOFF, pause * 2)
    return False


def _tell(error: DriverUnavailable, pause: float) -> None:
    emit(
        "jobs.worker.waiting",
        level=logging.ERROR,
        code=error.code,
        cause=error.cause,
        fix=error.fix,
        next_try_seconds=pause,
    )


def _sleep(seconds: float, is_stopped: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not is_stopped() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_DEAF))
