"""Writes how far runs are: all of a process in one statement, beside their bodies and never on their connections."""

from __future__ import annotations

import logging

from ultimat3_jobs.drivers import Driver
from ultimat3_jobs.logs import FailureLog
from ultimat3_jobs.loops import close_thread_connections
from ultimat3_jobs.records import Progress
from ultimat3_jobs.worker.inflight import Inflight

EVERY = 1.0
"""Seconds between two writes."""


class ProgressWriter:
    """Writes what has changed since it was last written. The last one of a run travels with its settlement."""

    def __init__(self, driver: Driver, inflight: Inflight) -> None:
        self._driver = driver
        self._inflight = inflight
        self._failures = FailureLog("jobs.progress.failed", level=logging.WARNING)

    def step(self) -> bool:
        """Write once. What does not land, since its row is locked, is written the next time. Never raises."""
        active = [one for one in self._inflight.all() if not (one.over or one.lost or one.cancelled)]
        told = [(one, one.vitals.progress) for one in active]
        changed = [(one, text) for one, text in told if text is not None and text != one.progress_written]
        if not changed or self.waits_for_a_body():
            return False
        try:
            landed = self._driver.progress([Progress(one.job.claim, text) for one, text in changed])
        except Exception as error:
            self._failures.tell(error)
            close_thread_connections()
            return False
        self._failures.passed()
        for (one, text), written in zip(changed, landed, strict=True):
            if written:
                one.progress_written = text
        return False

    def waits_for_a_body(self) -> bool:
        """Whether a body, step or page of this process keeps all writers waiting: then progress can wait as well."""
        return self._driver.one_writer and any(one.vitals.in_transaction for one in self._inflight.all())
