"""What is due, and whether anybody is there for it: the clock and the workers, asked once for all that is told."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

from ultimat3_jobs.inspection.clock import clock
from ultimat3_jobs.inspection.workers import AliveWorker, alive_at, worker_command


class Look:
    """One look at the queue: its clock and its workers, each asked for once and only where a text needs it.

    Args:
        now: the time of the queue's database, where it is known already.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._now = now

    @cached_property
    def now(self) -> datetime:
        """The time of the queue's database."""
        return clock() if self._now is None else self._now

    @cached_property
    def _workers(self) -> list[AliveWorker]:
        return alive_at(self.now)

    def is_due(self, moment: datetime) -> bool:
        """Whether a moment has come."""
        return moment <= self.now

    def is_served(self, queue: str) -> bool:
        """Whether a worker that serves a queue is alive."""
        return any(one.serves(queue) for one in self._workers)

    def worker_for(self, queue: str) -> str:
        """Return what work waits for that is due: a worker and, where none is alive, the command that starts one."""
        if self.is_served(queue):
            return f"a worker that serves the queue {queue!r}"
        return f"a worker, and none that serves the queue {queue!r} is alive ({worker_command(queue)} starts one)"
