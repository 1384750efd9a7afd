"""What any worker does for all: makes due jobs ready, and takes lapsed ones from workers that went silent."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.worker.inflight import monotonic

BATCH = 500


class Housekeeping:
    """Promotes on each pass and sweeps every `sweep_every`.

    Args:
        driver: the queue.
        sweep_every: seconds between two looks for lapsed leases.
        on_ready: called where jobs became ready.
    """

    def __init__(self, driver: Driver, *, sweep_every: float, on_ready: Callable[[], None]) -> None:
        self._driver = driver
        self._sweep_every = sweep_every
        self._on_ready = on_ready
        self._swept_at: float | None = None

    def tidy(self, *, sweep: bool = False) -> bool:
        """Do one pass; return whether there is more at once.

        Args:
            sweep: sweep in this pass, due or not.
        """
        ready = promoted = self._driver.promote(limit=BATCH)
        swept = 0
        if sweep or self._swept_at is None or monotonic() - self._swept_at >= self._sweep_every:
            swept = self._sweep()
            ready += swept
            if swept < BATCH:
                self._swept_at = monotonic()
        if ready:
            self._on_ready()
        return promoted >= BATCH or swept >= BATCH

    def _sweep(self) -> int:
        swept = self._driver.sweep(limit=BATCH)
        for job in swept:
            emit(
                "jobs.lease.swept",
                level=logging.WARNING,
                job=job.id,
                name=job.name,
                worker=job.worker,
                state=job.state,
            )
        return len(swept)
