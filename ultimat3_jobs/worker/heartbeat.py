"""Renews every lease of the process in one statement; cancels a run whose lease is lost."""

from __future__ import annotations

import logging
from datetime import timedelta

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Renewal
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic


class Heartbeat:
    """One beat at a time, from the start of the worker until its last run has ended, the drain included."""

    def __init__(self, driver: Driver, inflight: Inflight, *, lease: timedelta) -> None:
        self._driver = driver
        self._inflight = inflight
        self._lease = lease

    def beat(self) -> bool:
        """Renew all leases once. A beat that fails is a warning; a lease without one for its whole length is lost."""
        active = [one for one in self._inflight.all() if not one.lost]
        if not active:
            return False
        asked_at = monotonic()
        try:
            renewals = self._driver.heartbeat([one.job.claim for one in active], lease=self._lease)
        except Exception:
            self._give_up_silent(active)
            raise
        for one, renewal in zip(active, renewals, strict=True):
            if renewal is Renewal.RENEWED:
                one.renewed_at = asked_at
            elif renewal is Renewal.LOST:
                self._lose(one, "another claim or a sweep owns the job")
        self._give_up_silent(active)
        return False

    def _give_up_silent(self, active: list[ActiveRun]) -> None:
        oldest = monotonic() - self._lease.total_seconds()
        for one in active:
            if not one.lost and one.renewed_at < oldest:
                self._lose(one, "no renewal landed for the length of the lease")

    def _lose(self, one: ActiveRun, why: str) -> None:
        # The answer may have been on the wire while the run ended: what is settled has lost nothing.
        if not self._inflight.still_runs(one):
            return
        one.lost = True
        one.run.cancelled.set()
        emit(
            "jobs.lease.lost",
            level=logging.ERROR,
            job=one.job.claim.id,
            name=one.job.name,
            at="heartbeat",
            why=why,
        )
