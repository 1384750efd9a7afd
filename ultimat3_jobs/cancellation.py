"""The event that tells a run to stop, or its worker."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Cancellation(threading.Event):
    """An event that, beside waking who waits for it, calls who cannot wait."""

    def __init__(self) -> None:
        super().__init__()
        self._calls_lock = threading.Lock()
        self._calls: list[Callable[[], object]] = []

    def call(self, told: Callable[[], object]) -> None:
        """Call `told` once when the event is set; at once where it is set already. From whatever thread sets it."""
        with self._calls_lock:
            self._calls.append(told)
        if self.is_set():
            self._tell()

    def set(self) -> None:
        """Set the event, wake who waits, and call who asked to be called."""
        super().set()
        self._tell()

    def _tell(self) -> None:
        with self._calls_lock:
            calls, self._calls = self._calls, []
        for told in calls:
            told()
