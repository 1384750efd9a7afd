"""When the next page of a pass may begin: what people, its window, its throttle, the database and its rate say.

A short wait is spent in the worker's thread, and ends at once where the run is to stop. A long one lets go of the
worker: the run is parked, and looks again.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ultimat3_jobs.backfills import ledger, signals, throttle
from ultimat3_jobs.backfills.pacing import Pacer
from ultimat3_jobs.backfills.throttle import Wait
from ultimat3_jobs.backfills.windows import opens_in
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Suspension

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.backfills.ledger import Controls
    from ultimat3_jobs.backfills.source import Rows
    from ultimat3_jobs.steps.steps import Steps
    from ultimat3_jobs.vitals import Vitals

LOOK_AT_CONTROLS = 1.0
"""Seconds after which a wait looks whether people have changed something."""
LONGEST_HOLD = 30.0
"""Seconds that a pass waits in its worker's thread; beyond that it is parked."""
ASK_SIGNALS = 5.0
"""Seconds between two looks at the signals."""
PAUSED = 15.0
"""Seconds until a paused pass looks again, should nothing wake it."""
THROTTLED = 60.0
"""Seconds until a pass that short waits have held for long looks again."""
SHUT = 900.0
"""Seconds until a pass whose window is shut looks again at most, should its hours be changed."""
MOST_REASON = 200


class Turns:
    """Holds a pass back until its next page may begin, or parks it.

    Args:
        backfill: what is swept.
        steps: what records the run.
        vitals: what the worker says of itself.
    """

    def __init__(self, backfill: BackfillDefinition, steps: Steps, vitals: Vitals) -> None:
        self._backfill = backfill
        self._steps = steps
        self._vitals = vitals
        self._pacer = Pacer(backfill.rate)
        self._stop = threading.Event()  # of either kind: the run is over, or its worker is to stop
        self._has_landed = False
        self._throttled = Wait(0.0, "")
        self._throttled_until = 0.0
        self._held_since: float | None = None
        self._signals_at: float | None = None
        self._unseen: set[str] = set()
        self._told = ""
        self._since_told: timedelta | None = None  # when the ledger was last looked at, since a page had been told of

    def stop_waiting(self) -> None:
        """End whatever is waited for. From any thread."""
        self._stop.set()

    def began(self) -> None:
        """Take note that a page begins."""
        self._pacer.began(time.monotonic())
        self._held_since, self._told = None, ""

    def resumed(self) -> None:
        """Take note that an earlier attempt landed the page before: the rate counts from there."""
        if self._since_told is not None:
            self._pacer.began(time.monotonic() - self._since_told.total_seconds())

    def landed(self) -> None:
        """Take note that a page has landed: the pass has got somewhere, and can let go of its worker."""
        self._has_landed = True

    def await_next(self, rows: Rows) -> None:
        """Return when the next page may begin.

        Args:
            rows: what is swept.

        Raises:
            Aborted: where the run is over.
            Suspended: where it lets go of its worker.
        """
        while True:
            self.look()
            if (wait := self._throttle(rows)) is not None:
                self._spend(wait, least=THROTTLED)
            elif left := self._rate_left():
                self._spend(Wait(left, f"its rate is {self._pacer.rate:g} pages a second"), least=left)
            else:
                return

    def look(self) -> None:
        """Do what the worker and people say. Asks for nothing that the pass itself could fail of.

        Raises:
            Aborted: where the run is over.
            Suspended: where it lets go of its worker.
        """
        self._steps.check()
        # One page at least: workers that end after each job would otherwise hand a pass round for ever.
        if self._has_landed and self._vitals.winding_down.is_set():
            self._park(self._rate_left(), "its worker was told to stop; the next one goes on")
        controls = ledger.read_controls(self._steps.job.run_id, self._backfill)
        self._since_told = _since(controls)
        self._obey(controls)

    def _obey(self, controls: Controls) -> None:
        if controls.paused:
            self._park(PAUSED, f"paused by {controls.paused_by}" if controls.paused_by else "paused")
        if controls.rate is not None:
            self._pacer.rate = controls.rate
        if controls.window is not None and self._vitals.may_wait:  # what a test comes to is no matter of the hour
            shut = opens_in(controls.window, controls.now.astimezone(timezone.get_default_timezone()))
            if shut:
                self._park(min(shut.total_seconds(), SHUT), f"its window is {controls.window}")

    def _rate_left(self) -> float:
        """Return the seconds until its rate allows the next page."""
        return self._pacer.wait(time.monotonic()) if self._vitals.may_wait else 0.0

    def _throttle(self, rows: Rows) -> Wait | None:
        """Return the wait that the throttle or the database asks for, if any; one that was given is served first."""
        now = time.monotonic()
        if now < self._throttled_until:
            return Wait(self._throttled_until - now, self._throttled.reason)
        wait = (
            None
            if self._backfill.throttle is None
            else throttle.ask(self._backfill.throttle, backfill=self._backfill.name)
        )
        wait = wait or self._signalled(rows, now)
        if wait is not None:
            self._throttled, self._throttled_until = wait, now + wait.seconds
            if wait.reason != self._told:
                self._told = wait.reason
                self._emit("jobs.backfill.waiting", why=wait.reason)
        return wait

    def _signalled(self, rows: Rows, now: float) -> Wait | None:
        recently = self._signals_at is not None and now < self._signals_at + ASK_SIGNALS
        if not self._backfill.signals or recently or not self._vitals.may_wait:
            return None
        heard = signals.ask(self._backfill.signals, rows.alias, rows.table)
        for one in heard.unseen:
            if one.signal not in self._unseen:
                self._unseen.add(one.signal)
                self._emit("jobs.backfill.unseen", signal=one.signal, why=one.reason)
        if heard.wait is None:
            self._signals_at = now
            return None
        return Wait(ASK_SIGNALS, heard.wait)

    def _spend(self, wait: Wait, *, least: float) -> None:
        """Spend a part of a wait, or let go of the worker for it.

        Args:
            wait: what is waited for.
            least: seconds to be parked for at least where short waits have followed one another for long.
        """
        now = time.monotonic()
        self._held_since = now if self._held_since is None else self._held_since
        if not self._vitals.may_wait or self._vitals.winding_down.is_set() or wait.seconds >= LONGEST_HOLD:
            self._park(wait.seconds, wait.reason)
        if now - self._held_since >= LONGEST_HOLD:
            self._park(max(wait.seconds, least), wait.reason)
        self._stop.wait(min(wait.seconds, LOOK_AT_CONTROLS))

    def _park(self, seconds: float, reason: str) -> None:
        self._emit("jobs.backfill.parked", level=logging.DEBUG, why=reason, seconds=round(seconds, 3))
        self._steps.suspend(Suspension(reason=reason[:MOST_REASON], delay=seconds))

    def _emit(self, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
        job = self._steps.job
        emit(event, level=level, job=job.claim.id, name=self._backfill.name, **fields)


def _since(controls: Controls) -> timedelta | None:
    """Return the time since a page was last told of, None where none was or the clock has gone back since.

    How long ago it was nobody knows then; to wait for the clock to come there again could take hours.
    """
    if controls.told_at is None or controls.told_at > controls.now:
        return None
    return controls.now - controls.told_at
