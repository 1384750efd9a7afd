"""The worker's loop: capacity, wake-up, idle waits. One instance is one process's worker."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from ultimat3_jobs import registry
from ultimat3_jobs.aliases import outbox_aliases
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import JobTimeout
from ultimat3_jobs.logs import FailureLog, emit
from ultimat3_jobs.loops import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    LONGEST_DEAF,
    BackgroundLoop,
    close_thread_connections,
    with_second_try,
)
from ultimat3_jobs.outbox.prune import Pruner
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.worker.async_bodies import AsyncBodies
from ultimat3_jobs.worker.atomic import AtomicEnding
from ultimat3_jobs.worker.bodies import BodyThreads
from ultimat3_jobs.worker.claim import claim
from ultimat3_jobs.worker.deadlines import Deadlines
from ultimat3_jobs.worker.drain import Ending, drain, wind_down
from ultimat3_jobs.worker.execute import execute, fail
from ultimat3_jobs.worker.heartbeat import Heartbeat
from ultimat3_jobs.worker.housekeeping import Housekeeping
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic
from ultimat3_jobs.worker.outcome import GivenUp, Outcome
from ultimat3_jobs.worker.presence import Presence
from ultimat3_jobs.worker.progress import EVERY, ProgressWriter
from ultimat3_jobs.worker.recording import open_steps
from ultimat3_jobs.worker.settle import settle

LONGEST_GATHERING = 0.02
LAST_PASS = 5.0
"""Seconds for the passes of the background loops that are under way when the runs have ended."""
LAST_WORD = 1.0
"""Seconds to take its own row away for a worker that leaves runs behind: it would be taken for alive for a lease."""


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
    max_jobs: int | None = None
    """Claim at most so many jobs, let them end, then end; None: no limit."""


class Worker:
    """Claims due jobs, runs them in threads, settles them; relays and keeps house beside."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._settings = get_settings()
        self._driver = get_driver()
        self.id = uuid4().hex  # never host name and pid: those come back
        self._concurrency = options.concurrency or self._settings.concurrency
        self._inflight = Inflight()
        self._async_bodies = AsyncBodies()
        self._bodies = BodyThreads(
            self._concurrency, attempt=self._attempt, async_bodies=self._async_bodies, on_free=self._wake
        )
        self._deadlines = Deadlines(self._inflight, grace=self._settings.cancel_grace, abandon=self._abandon)
        # Rung when something happened. A signal handler may do so: put() cannot deadlock with the get() it interrupts.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopping = self._at_once = False
        self._left = options.max_jobs
        self._finishing = False
        self._stops = itertools.count()
        self._claim_seconds = 0.0
        self._failures = FailureLog("jobs.worker.claim-failed")
        self._heartbeat = Heartbeat(
            self._driver, self._inflight, lease=self._settings.lease, renewal=self._settings.renewal
        )
        self._housekeeping = Housekeeping(self._driver, sweep_every=self._heartbeat.interval, on_ready=self._wake)
        self._pruner = Pruner()
        # A burst ends where nothing is due: not while one of its loops is about to wake what a pass has met.
        self._turn: AbstractContextManager[object] = threading.Lock() if options.burst else contextlib.nullcontext()

    def stop(self) -> None:
        """Ask the worker to drain; asked a second time, to end at once. Safe in a signal handler."""
        if next(self._stops):
            self._at_once = True
        self._stopping = True
        self._wake()

    def finish(self) -> None:
        """Claim nothing more, and end once all that runs has ended, however long that takes.

        A sweep, which can go on elsewhere, lets go at the end of its page.
        """
        self._finishing = True
        wind_down(self._inflight)  # at once: a claim may wait for the very page
        self._wake()

    def run(self) -> Ending:
        """Work until told to stop, or in burst mode until nothing is due; return how it ended."""
        emit(
            "jobs.worker.started",
            worker=self.id,
            concurrency=self._concurrency,
            queues=",".join(self._options.queues.only) or "all",
            excluded=",".join(self._options.queues.excluded) or "none",
        )
        beat = self._heartbeat.interval
        telling = self._telling(beat)
        leases = [
            BackgroundLoop("heartbeat", interval=beat, step=self._heartbeat.beat),
            BackgroundLoop("lease-watch", interval=beat, step=self._heartbeat.watch),
            # A thread and a connection of its own: no renewal waits for it.
            telling,
        ]
        chores = self._chores()
        for loop in (*leases, *chores):
            loop.start()
        self._deadlines.start()
        self._bodies.start()
        self._claim_until_stopped()
        # Renewals go on until the last run has ended; everything else stops first.
        for loop in chores:
            loop.stop(0)
        ending = drain(
            self._driver,
            self._inflight,
            bell=self._bell,
            at_once=lambda: self._at_once,
            timeout=self._settings.drain_timeout,
        )
        for loop in (*leases, *chores):
            loop.stop(LAST_PASS if ending is Ending.DRAINED else 0)
        if ending is Ending.HANDED_BACK:
            telling.stop(LAST_WORD)
        self._deadlines.stop(LAST_PASS if ending is Ending.DRAINED else 0)
        self._bodies.close(wait=ending is Ending.DRAINED)
        self._async_bodies.close(wait=ending is Ending.DRAINED and not self._bodies.abandoned)
        close_thread_connections()
        emit("jobs.worker.stopped", worker=self.id, ending=ending.name.lower().replace("_", "-"))
        return ending

    def _telling(self, every: float) -> BackgroundLoop:
        """Return the loop that says how far the runs are, and that the worker is alive."""
        progress = ProgressWriter(self._driver, self._inflight)
        presence = Presence(
            self.id,
            queues=self._options.queues,
            concurrency=self._concurrency,
            burst=self._options.burst,
            every=every,
            waits=progress.waits_for_a_body,
        )
        return BackgroundLoop(
            "progress",
            interval=min(EVERY, every),
            step=lambda: presence.step() | progress.step(),
            last=presence.end,
        )

    def _chores(self) -> list[BackgroundLoop]:
        poll = self._settings.poll.total_seconds()
        loops = [BackgroundLoop("housekeeping", interval=poll, step=self._keep_house)]
        if self._options.relay:
            # One for each outbox: one that is down holds up no other.
            loops += [
                BackgroundLoop(f"relay-{alias}", interval=poll, step=partial(self._relay, alias))
                for alias in outbox_aliases()
            ]
        return loops

    def _claim_until_stopped(self) -> None:
        backoff = 0.0
        while True:
            self._gather()
            if self._stopping:
                return
            idle = not len(self._inflight)
            free = self._free()
            if self._claims_no_more() and idle:
                return
            if idle and self._options.burst and not self._bodies.slots:
                return  # bodies that were abandoned have every thread there may be
            claimed = 0
            try:
                if free:
                    claimed = self._claim(free)
                if self._options.burst and idle and free and not claimed:
                    claimed = self._claim_after_chores(free)
                    if not claimed:
                        return
                backoff = 0.0
                self._failures.passed()
            except Exception as error:
                backoff = min(LONGEST_BACKOFF, backoff * 2 or FIRST_BACKOFF)
                self._failures.tell(error, next_try_seconds=backoff)
                close_thread_connections()
            if claimed < free or not free:
                self._wait(backoff or self._settings.poll.total_seconds())

    def _claims_no_more(self) -> bool:
        """Return whether it ends once all that runs has ended; then a sweep is told to let go."""
        if not self._finishing and self._left != 0:
            return False
        if self._finishing or not self._options.burst:  # a burst runs what it has claimed to the end
            wind_down(self._inflight)
        return True

    def _free(self) -> int:
        """Return how many jobs may be claimed now."""
        if self._finishing:
            return 0
        # Fewer threads than runs for a moment, where an abandoned one cost its slot and is not settled yet.
        slots = max(0, self._bodies.slots - len(self._inflight))
        return slots if self._left is None else min(slots, self._left)

    def _claim(self, free: int) -> int:
        asked_at = monotonic()
        claimed = claim(
            self._driver,
            worker=self.id,
            free=free,
            lease=self._settings.lease,
            queues=self._options.queues,
            # One at a time: whatever ended a worker must not take along, again and again, what ran beside it.
            lapsed=0 if self._inflight.any_lapsed() else 1,
        )
        self._claim_seconds = monotonic() - asked_at
        if self._left is not None:
            self._left -= len(claimed)
        for active in claimed:
            self._inflight.add(active)
            self._bodies.put(active)
        return len(claimed)

    def _claim_after_chores(self, free: int) -> int:
        """Burst mode: do all that can make work due, and only then look whether any is."""
        with self._turn:
            if self._options.relay:
                relay_all()
            while self._housekeeping.tidy(last=True):
                pass
        return self._claim(free)

    def _gather(self) -> None:
        """Let more slots fall free, for as long as a claim takes: one of several costs little more than one of one."""
        until = monotonic() + min(self._claim_seconds, LONGEST_GATHERING)
        while not self._stopping and self._free() < self._concurrency / 2 and (left := until - monotonic()) > 0:
            self._wait(left)

    def _wait(self, seconds: float) -> None:
        """Sleep until something happens, or for `seconds`."""
        until = monotonic() + seconds
        while not self._stopping and (left := until - monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._bell.get(timeout=min(left, LONGEST_DEAF))
                break
        with contextlib.suppress(queue.Empty):
            while not self._stopping:
                self._bell.get_nowait()

    def _wake(self) -> None:
        self._bell.put(None)

    def _keep_house(self) -> bool:
        # In one thread, which is one connection: pruning never raises.
        with self._turn:
            return self._housekeeping.tidy() | self._pruner.step()

    def _relay(self, alias: str) -> bool:
        with self._turn:
            moved = relay_once(alias)
        if moved:
            self._wake()
        return moved >= self._settings.outbox.batch

    def _begin(self, active: ActiveRun) -> bool:
        """Mark a last attempt as begun, so that its lapse is known from that of one that never ran."""
        return with_second_try(lambda: self._driver.begin([active.job.claim]))[0]

    def _attempt(self, active: ActiveRun) -> None:
        try:
            if active.lost or active.cancelled:
                return  # before its body began: another worker has the job, or soon will, or nobody
            if active.job.attempt >= active.job.max_attempts and not self._begin(active):
                return  # another worker has the job; or this one lapses, and is given back as it is
            ending = AtomicEnding(self._driver, self._inflight, active, lease=self._settings.lease)
            definition = registry.find(active.job.name)
            with self._deadlines.watch(active, definition) as watched:
                outcome = execute(
                    active.job,
                    active.run,
                    transaction=ending.transaction,
                    open_steps=partial(open_steps, self._driver),
                    overdue=watched.overdue,
                )
            if ending.taken or self._inflight.end(active):
                self._settle(active, outcome)
        except BaseException:
            # Nothing may end this thread, or its slot is gone. The job is swept when its lease lapses.
            emit("jobs.worker.attempt-failed", level=logging.CRITICAL, exc_info=True, job=active.job.claim.id)
        finally:
            if not active.abandoned:
                self._count_out(active)

    def _settle(self, active: ActiveRun, outcome: Outcome) -> None:
        if active.cancelled:
            outcome = GivenUp("the job was cancelled")
        lease = self._settings.lease
        settle(self._driver, active.job, outcome, patience=lease, progress=active.vitals.progress)

    def _count_out(self, active: ActiveRun) -> None:
        self._inflight.remove(active)
        self._wake()

    def _abandon(self, active: ActiveRun, error: JobTimeout) -> None:
        """Give a body up that goes on past its deadline: its slot gets another thread, its job is settled."""
        try:
            self._bodies.replace(active)
            # By neither of the two: the one is stuck, and the other may be the last that there can be.
            name = f"ultimat3_jobs.settle-{active.job.claim.id.hex}"
            threading.Thread(target=self._settle_abandoned, args=(active, error), name=name, daemon=True).start()
        except BaseException:
            self._count_out(active)  # it is swept when its lease lapses
            raise

    def _settle_abandoned(self, active: ActiveRun, error: JobTimeout) -> None:
        try:
            self._settle(active, fail(active.job, active.run, error))
        except BaseException:
            emit("jobs.worker.attempt-failed", level=logging.CRITICAL, exc_info=True, job=active.job.claim.id)
        finally:
            self._count_out(active)
            close_thread_connections()
