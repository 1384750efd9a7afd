"""The runs of this process: what the heartbeat renews, the drain waits for and the claim counts."""

from __future__ import annotations

import threading
import time

from ultimat3_jobs.context import Run
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.vitals import Vitals


class ActiveRun:
    """One claimed job until it is settled."""

    def __init__(self, job: ClaimedJob, *, confirmed_at: float) -> None:
        self.job = job
        self.vitals = Vitals()
        self.run = Run(job, vitals=self.vitals)
        self.confirmed_at = confirmed_at
        """`monotonic()` before the latest statement that found the claim to be ours."""
        self.lost = self.cancelled = False
        self.over = False
        """Whether its body has ended, or was given up by the drain or at a deadline: what follows is its
        settlement."""
        self.abandoned = False
        """Whether its body went on past a deadline: another thread settles it, and its own has no further use."""
        self.thread = 0
        """Id of the thread that runs its body."""
        self.progress_written: str | None = None


class Inflight:
    """Thread-safe set of active runs. It decides who ends a run, and that a run which has ended is not lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[object, ActiveRun] = {}

    def add(self, active: ActiveRun) -> None:
        """Count a claimed job in."""
        with self._lock:
            self._runs[active.job.claim] = active

    def end(self, active: ActiveRun) -> bool:
        """Ask for the right to settle a run. The first who asks gets it: its own thread, the drain, a deadline."""
        with self._lock:
            first, active.over = not active.over, True
            return first

    def abandon(self, active: ActiveRun) -> bool:
        """Ask for the right to settle a run whose body does not stop, and count its thread as lost where it is given.

        In one go: the body's thread must not find its run over and not know that it is to end.
        """
        with self._lock:
            if active.over:
                return False
            active.over = active.abandoned = True
            return True

    def cancel(self, active: ActiveRun) -> bool:
        """Mark a run as cancelled, once; of one that is over its settlement finds out."""
        with self._lock:
            if active.over or active.cancelled:
                return False
            active.cancelled = True
            return True

    def lose(self, active: ActiveRun) -> bool:
        """Mark a run as lost, once; not one that is over: an answer about it may have been on the wire."""
        with self._lock:
            if active.over or active.lost or active.cancelled:
                return False
            active.lost = True
            return True

    def remove(self, active: ActiveRun) -> None:
        """Count a settled job out."""
        with self._lock:
            self._runs.pop(active.job.claim, None)

    def any_lapsed(self) -> bool:
        """Whether one of the runs was taken from a worker that went silent."""
        with self._lock:
            return any(one.job.lapses for one in self._runs.values())

    def all(self) -> list[ActiveRun]:
        """Return the runs as they are now."""
        with self._lock:
            return list(self._runs.values())

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)


def monotonic() -> float:
    """Return the clock that measures spans in this process."""
    return time.monotonic()
