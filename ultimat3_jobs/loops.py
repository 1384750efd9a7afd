"""Background loops: one start and stop protocol, one place that logs a failing pass and backs off."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import connections

from ultimat3_jobs.logs import FailureLog, emit

T = TypeVar("T")

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 10.0
LONGEST_DEAF = 1.0
"""Seconds that a main thread waits at a stretch: a signal that comes just as it begins to wait does not end the wait,
and is heard after it."""


class BackgroundLoop:
    """Calls `step` in a thread of its own, again at once while it says that there is more.

    Args:
        name: of the loop, in logs.
        interval: seconds between passes that found nothing more to do.
        step: one pass; returns whether another should follow at once.
        last: called in the thread when the loop ends, behind the last pass. Never raises.
    """

    def __init__(
        self, name: str, *, interval: float, step: Callable[[], bool], last: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self._interval = interval
        self._step = step
        self._last = last
        self._wake = threading.Event()
        self._stopping = False
        self._failures = FailureLog("jobs.loop.failed")
        self._thread = threading.Thread(target=self._run, name=f"ultimat3_jobs.{name}", daemon=True)

    def start(self) -> None:
        """Begin the passes."""
        self._thread.start()

    def wake(self) -> None:
        """Start the next pass now."""
        self._wake.set()

    def stop(self, timeout: float | None = None) -> None:
        """End the loop and wait for the pass in flight, at most `timeout` seconds."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def stop_and_listen(self) -> None:
        """End the loop from the main thread, and wait for the pass in flight however long it takes."""
        self.stop(0)
        while self._thread.is_alive():
            self._thread.join(LONGEST_DEAF)

    def _run(self) -> None:
        backoff = 0.0
        while not self._stopping:
            more = False
            try:
                more = self._step()
                backoff = 0.0
                self._failures.passed()
            except Exception as error:
                backoff = min(LONGEST_BACKOFF, backoff * 2 or FIRST_BACKOFF)
                self._failures.tell(error, loop=self.name, next_try_seconds=backoff)
                close_thread_connections()
            if not more:
                self._wake.wait(backoff or self._interval)
                self._wake.clear()
        if self._last is not None:
            self._last()
        close_thread_connections()


def close_thread_connections() -> None:
    """Close what the calling thread has open; the next statement opens it anew."""
    for connection in connections.all(initialized_only=True):
        try:
            connection.close()
        except Exception as error:
            # What cannot be closed is dropped: the thread gets a fresh connection either way.
            emit("jobs.connection.close-failed", level=logging.WARNING, error=type(error).__name__)
            connection.connection = None


def with_second_try(write: Callable[[], T]) -> T:
    """Call `write`, and once more where it raises: its connection may have died since it was last used."""
    try:
        return write()
    except Exception:
        close_thread_connections()
        return write()
