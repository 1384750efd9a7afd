"""What any worker does for all: makes due jobs ready, and takes lapsed ones from workers that went silent."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Lapse, Swept
from ultimat3_jobs.worker.inflight import monotonic

BATCH = 500
MOST_SEEN = 10_000
LONG_WAIT = 0.5
"""Seconds from which a write has waited for the turn of others."""


class Housekeeping:
    """Promotes on each pass and sweeps every `sweep_every`.

    Where writers take turns, one long transaction keeps healthy workers from renewing their leases as well. There a
    sweep takes only what an earlier one saw lapsed already, and none follows such a wait at once: whoever lives has
    had its turn by then.

    Args:
        driver: the queue.
        sweep_every: seconds between two looks for lapsed leases; no worker renews less often.
        on_ready: called where jobs became ready.
    """

    def __init__(self, driver: Driver, *, sweep_every: float, on_ready: Callable[[], None]) -> None:
        self._driver = driver
        self._sweep_every = sweep_every
        self._on_ready = on_ready
        self._swept_at: float | None = None
        self._seen: list[Lapse] = []
        self._waited = False

    def tidy(self, *, last: bool = False) -> bool:
        """Do one pass; return whether there is more at once.

        Args:
            last: no pass may follow: sweep in this one, due or not, and also what was not seen before.
        """
        began_at = monotonic()
        ready = promoted = self._driver.promote(limit=BATCH)
        self._waited = self._waited or monotonic() - began_at > LONG_WAIT
        swept = 0
        if last or self._swept_at is None or monotonic() - self._swept_at >= self._sweep_every:
            swept = self._sweep(patient=self._driver.one_writer and not last)
            ready += swept
            if swept < BATCH:
                self._swept_at = monotonic()
        if ready:
            self._on_ready()
        return promoted >= BATCH or swept >= BATCH

    def _sweep(self, *, patient: bool) -> int:
        waited, self._waited = self._waited, False
        swept: list[Swept] = []
        if not patient:
            swept = self._driver.sweep(limit=BATCH)
        else:
            if self._seen and not waited:
                swept = self._driver.sweep(limit=BATCH, seen=self._seen)
            if len(swept) < BATCH:
                self._seen = self._driver.lapsed(limit=MOST_SEEN)
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
