"""The worker's loop: capacity, wake-up, idle waits. One instance is one process's worker."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from dataclasses import dataclass, field
from uuid import uuid4

from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import FIRST_BACKOFF, LONGEST_BACKOFF, BackgroundLoop, close_thread_connections
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.worker.claim import claim
from ultimat3_jobs.worker.drain import Ending, drain
from ultimat3_jobs.worker.execute import execute
from ultimat3_jobs.worker.heartbeat import Heartbeat
from ultimat3_jobs.worker.housekeeping import Housekeeping
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight
from ultimat3_jobs.worker.settle import settle


@dataclass(frozen=True)
class WorkerOptions:
    """What one worker serves and how."""

    queues: QueueSelection = field(default_factory=QueueSelection)
    concurrency: int | None = None
    """Jobs at once; None: as the settings say."""
    relay: bool = True
    """Whether it moves committed outbox rows too."""
    burst: bool = False
    """Run what is due, then end."""


class Worker:
    """Claims due jobs, runs them in threads, settles them; relays and keeps house beside."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._settings = get_settings()
        self._driver = get_driver()
        self.id = uuid4().hex  # never host name and pid: those come back
        self._concurrency = options.concurrency or self._settings.concurrency
        self._inflight = Inflight()
        self._bodies: queue.SimpleQueue[ActiveRun | None] = queue.SimpleQueue()
        # Its put() may be called from a signal handler: it cannot deadlock with the get() it interrupts.
        self._mailbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = False
        self._housekeeping = Housekeeping(self._driver, sweep_every=self._settings.renewal, on_ready=self._wake)
        self._loops = self._background_loops()

    def stop(self) -> None:
        """Ask the worker to drain; asked a second time, to end at once. Safe in a signal handler."""
        self._mailbox.put("kill" if self._stopping else "stop")
        self._stopping = True

    def run(self) -> Ending:
        """Work until told to stop, or in burst mode until nothing is due; return how it ended."""
        emit(
            "jobs.worker.started",
            worker=self.id,
            concurrency=self._concurrency,
            queues=",".join(self._options.queues.only) or "all",
            excluded=",".join(self._options.queues.excluded) or "none",
        )
        heartbeat = Heartbeat(self._driver, self._inflight, lease=self._settings.lease)
        beats = BackgroundLoop("heartbeat", interval=self._settings.renewal.total_seconds(), step=heartbeat.beat)
        threads = [
            threading.Thread(target=self._work, name=f"ultimat3_jobs.body-{number}", daemon=True)
            for number in range(self._concurrency)
        ]
        for starter in (beats, *self._loops, *threads):
            starter.start()
        self._claim_until_stopped()
        # Renewals go on until the last run has ended; everything else stops first.
        for loop in self._loops:
            loop.stop(self._settings.drain_timeout.total_seconds())
        ending = drain(self._driver, self._inflight, self._mailbox, timeout=self._settings.drain_timeout)
        beats.stop(1.0)
        if ending is Ending.DRAINED:
            for _ in threads:
                self._bodies.put(None)
            for thread in threads:
                thread.join()
        close_thread_connections()
        emit("jobs.worker.stopped", worker=self.id, ending=ending.name.lower().replace("_", "-"))
        return ending

    def _background_loops(self) -> list[BackgroundLoop]:
        poll = self._settings.poll.total_seconds()
        loops = [BackgroundLoop("housekeeping", interval=poll, step=self._housekeeping.tidy)]
        if self._options.relay:
            loops.append(BackgroundLoop("relay", interval=poll, step=self._relay))
        return loops

    def _claim_until_stopped(self) -> None:
        backoff = 0.0
        while not self._stopping:
            free = self._concurrency - len(self._inflight)
            claimed = 0
            if free:
                try:
                    claimed = self._claim(free)
                    backoff = 0.0
                except Exception as error:
                    backoff = min(LONGEST_BACKOFF, backoff * 2 or FIRST_BACKOFF)
                    emit(
                        "jobs.worker.claim-failed",
                        level=logging.ERROR,
                        exc_info=True,
                        error=type(error).__name__,
                    )
                    close_thread_connections()
                if self._options.burst and not claimed and not backoff and self._nothing_is_due():
                    return
            if claimed < free or not free:
                self._wait(backoff or self._settings.poll.total_seconds())

    def _claim(self, free: int) -> int:
        claimed = claim(
            self._driver,
            worker=self.id,
            free=free,
            lease=self._settings.lease,
            queues=self._options.queues,
        )
        for active in claimed:
            self._inflight.add(active)
            self._bodies.put(active)
        return len(claimed)

    def _nothing_is_due(self) -> bool:
        """Burst mode: whether no run is left and neither outbox nor waiting jobs have more that is due."""
        if len(self._inflight):
            return False
        moved = relay_all() if self._options.relay else 0
        more = self._driver.promote(limit=1) + self._housekeeping.sweep()
        if moved or more:
            self._wake()
            return False
        return True

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._mailbox.get(timeout=seconds)
            while not self._stopping:
                self._mailbox.get_nowait()

    def _wake(self) -> None:
        self._mailbox.put("look")

    def _relay(self) -> bool:
        moved = relay_once()
        if moved:
            self._wake()
        return moved >= self._settings.outbox.batch

    def _work(self) -> None:
        """A body thread: runs and settles one job after another."""
        while (active := self._bodies.get()) is not None:
            try:
                settle(self._driver, active.job, execute(active.job, active.run))
            finally:
                self._inflight.remove(active)
                self._wake()
        close_thread_connections()
