"""When the next page of a pass may begin: what people, its window, its throttle, the database and its rate say.

A short wait is spent in the worker's thread, and ends at once where the run is to stop. A long one lets go of the
worker: the run is parked, and looks again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ultimat3_jobs.backfills import ledger
from ultimat3_jobs.backfills.pacing import Pacer
from ultimat3_jobs.records import Suspension

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.backfills.ledger import Controls
    from ultimat3_jobs.steps.steps import Steps
    from ultimat3_jobs.vitals import Vitals

LOOK_AT_CONTROLS = 1.0
"""Seconds after which a wait looks whether people have changed something."""
LONGEST_HOLD = 30.0
"""Seconds that a pass waits in its worker's thread; beyond that it is parked."""
PAUSED = 15.0
"""Seconds until a paused pass looks again, should nothing wake it."""
SHUT = 900.0
"""Seconds until a pass whose window is shut looks again at most."""


class Turns:
    """Holds a pass back until its next page may begin, or parks it.

    Args:
        backfill: what is swept.
        steps: what records the run.
        vitals: what the worker says of itself.
        cancelled: rings where the run is to stop.
    """

    def __init__(self, backfill: BackfillDefinition, steps: Steps, vitals: Vitals) -> None:
        self._backfill = backfill
        self._steps = steps
        self._vitals = vitals
        self._pacer = Pacer(backfill.rate)
        self._stop = threading.Event()  # of either kind: the run is over, or its worker is to stop
        self._told = ""

    def stop_waiting(self) -> None:
        """End whatever is waited for. From any thread."""
        self._stop.set()

    def began(self) -> None:
        """Take note that a page begins."""
        self._told = ""
        self._pacer.began(time.monotonic())

    def await_next(self) -> None:
        """Return when the next page may begin.

        Raises:
            Aborted: where the run is over.
            Suspended: where it lets go of its worker.
        """
        while True:
            self._steps.check()
            if self._vitals.winding_down.is_set():
                self._park(0.0, "its worker is stopping; the next one goes on")
            controls = ledger.read_controls(self._steps.job.run_id)
            if controls is not None:
                self._obey(controls)
            left = self._pacer.wait(time.monotonic()) if self._vitals.may_wait else 0.0
            if not left:
                return
            if left >= LONGEST_HOLD:
                self._park(left, f"its rate of {self._pacer.rate:g} pages a second")
            self._hold(left)

    def _obey(self, controls: Controls) -> None:
        if controls.paused:
            self._park(PAUSED, f"paused by {controls.paused_by}" if controls.paused_by else "paused")
        if controls.rate is not None:
            self._pacer.rate = controls.rate

    def _hold(self, seconds: float) -> None:
        self._stop.wait(min(seconds, LOOK_AT_CONTROLS))

    def _park(self, seconds: float, reason: str) -> None:
        self._steps.suspend(Suspension(reason=reason[:200], delay=seconds))
