"""The runs of this process: what the heartbeat renews, the drain waits for and the claim counts."""

from __future__ import annotations

import threading
import time

from ultimat3_jobs.context import Run
from ultimat3_jobs.records import ClaimedJob


class ActiveRun:
    """One claimed job until it is settled."""

    def __init__(self, job: ClaimedJob, *, renewed_at: float) -> None:
        self.job = job
        self.run = Run(job)
        self.renewed_at = renewed_at
        """`time.monotonic()` before the statement that last gave or renewed the lease."""
        self.lost = False


class Inflight:
    """Thread-safe set of active runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[object, ActiveRun] = {}

    def add(self, active: ActiveRun) -> None:
        """Count a claimed job in."""
        with self._lock:
            self._runs[active.job.claim] = active

    def remove(self, active: ActiveRun) -> None:
        """Count a settled job out."""
        with self._lock:
            self._runs.pop(active.job.claim, None)

    def all(self) -> list[ActiveRun]:
        """Return the runs as they are now."""
        with self._lock:
            return list(self._runs.values())

    def still_runs(self, active: ActiveRun) -> bool:
        """Whether a run has not been settled by now."""
        with self._lock:
            return active.job.claim in self._runs

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)


def monotonic() -> float:
    """Return the clock that measures spans in this process."""
    return time.monotonic()
