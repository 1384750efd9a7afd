"""Renews every lease of the process in one statement; tells runs to stop that were cancelled or lost their lease."""

from __future__ import annotations

import logging
from datetime import timedelta

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.logs import FailureLog, emit
from ultimat3_jobs.loops import close_thread_connections
from ultimat3_jobs.records import Renewal
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic

BEATS_A_LEASE = 3


class Heartbeat:
    """Beats from the start of the worker until its last run is settled, the drain included.

    Args:
        driver: the queue.
        inflight: the runs.
        lease: how long a renewal holds.
        renewal: how often to renew; never less often than three times a lease.
    """

    def __init__(self, driver: Driver, inflight: Inflight, *, lease: timedelta, renewal: timedelta) -> None:
        self._driver = driver
        self._inflight = inflight
        self._lease = lease
        self._waits_its_turn = False
        self._failures = FailureLog("jobs.heartbeat.failed", level=logging.WARNING)
        self.interval = min(renewal, lease / BEATS_A_LEASE).total_seconds()

    def beat(self) -> bool:
        """Renew all leases once, those of runs that are being settled too. A beat that fails is a warning."""
        active = self._inflight.all()
        if active:
            self._waits_its_turn = self._driver.one_writer
            try:
                self._renew(active)
            except Exception as error:
                # One that gave up waiting still waits: whoever would take the jobs waits for the same lock.
                self._waits_its_turn = self._waits_its_turn and "locked" in str(error)
                self._failures.tell(error)
                close_thread_connections()
            else:
                self._waits_its_turn = False
                self._failures.passed()
        return False

    def _renew(self, active: list[ActiveRun]) -> None:
        asked_at = monotonic()
        renewals = self._driver.heartbeat([one.job.claim for one in active], lease=self._lease)
        # Of what may have happened while the question was on its way, the worst: except where it waited for its turn,
        # and nobody else could write meanwhile.
        confirmed_at = monotonic() if self._driver.one_writer else asked_at
        for one, renewal in zip(active, renewals, strict=True):
            if renewal is Renewal.LOST:
                self._lose(one, "another claim or a sweep owns the job")
            elif renewal is Renewal.CANCELLED:
                self._cancel(one)
            else:
                # A row that is locked was read, and is still ours.
                one.confirmed_at = confirmed_at

    def watch(self) -> bool:
        """Cancel the runs for which no beat has landed for the length of the lease. Asks nobody: a beat may hang."""
        if self._waits_its_turn:
            return False  # whoever would take the jobs waits for the same turn
        oldest = monotonic() - self._lease.total_seconds()
        for one in self._inflight.all():
            if one.confirmed_at < oldest:
                self._lose(one, "no renewal landed for the length of the lease")
        return False

    def _cancel(self, one: ActiveRun) -> None:
        if not self._inflight.cancel(one):
            return
        one.run.cancelled.set()
        emit("jobs.job.cancelled", job=one.job.claim.id, name=one.job.name, at="heartbeat")

    def _lose(self, one: ActiveRun, why: str) -> None:
        if not self._inflight.lose(one):
            return
        one.run.cancelled.set()
        emit("jobs.lease.lost", level=logging.ERROR, job=one.job.claim.id, name=one.job.name, at="heartbeat", why=why)
