"""Says that a worker is alive and which queues it serves: one row for each process, in the queue's database."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.logs import FailureLog
from ultimat3_jobs.loops import close_thread_connections
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.sql import run
from ultimat3_jobs.worker.inflight import monotonic

FORGOTTEN = 100
"""Workers that went silent whose rows one pass removes at most."""


class Presence:
    """Keeps the row of one worker. Nothing depends on it but what people are told: a write that fails is a warning.

    Args:
        worker: id of the worker.
        queues: that it serves.
        concurrency: jobs at once.
        burst: whether it ends where nothing is due.
        every: seconds between two renewals.
        waits: whether all writers wait for a body of this process: then this one can wait as well.
    """

    def __init__(
        self,
        worker: str,
        *,
        queues: QueueSelection,
        concurrency: int,
        burst: bool,
        every: float,
        waits: Callable[[], bool],
    ) -> None:
        settings = get_settings()
        self._every = every
        self._waits = waits
        self._written_at: float | None = None
        self._failures = FailureLog("jobs.worker.presence-failed", level=logging.WARNING)
        serves: dict[str, Any] = {
            "only": list(queues.only),
            "excluded": list(queues.excluded),
            "concurrency": concurrency,
            "burst": burst,
            "release": settings.release,
        }
        self._key = f"worker:{worker}"
        self._row = {
            "key": self._key,
            "worker": worker,
            "lease": settings.lease.total_seconds(),
            "data": json.dumps(serves),
        }

    def step(self) -> bool:
        """Write the row where that is due, and remove a few of workers that went silent. Never raises."""
        due = self._written_at is None or monotonic() - self._written_at >= self._every
        if due and not self._waits():
            self._written_at = monotonic()  # before it is tried: what fails is tried the next time that it is due
            self._write()
        return False

    def end(self) -> None:
        """Remove the row: the worker is on its way down. Never raises."""
        if self._written_at is not None:
            self._try(lambda: run(queue_alias(), "leave", {"key": self._key}))

    def _write(self) -> None:
        def write() -> None:
            run(queue_alias(), "be_present", self._row)
            for _ in range(FORGOTTEN):
                if not run(queue_alias(), "forget_worker", {}):
                    break

        self._try(write)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except Exception as error:
            self._failures.tell(error)
            close_thread_connections()
        else:
            self._failures.passed()
