"""Deadlines: one thread for the process watches how long attempts and steps take.

A deadline tells the run to stop first, as a lost lease does. A body that ends within the grace ends its attempt itself:
one that returns has finished. Of one that does not end, the right to settle is taken away and its thread abandoned.

Python cannot end a thread. An abandoned body can go on doing whatever it does outside the package: write to tables and
commit, call services, send mail, enqueue work. Refused is what it does through the package for its job: its result, its
steps, its progress, and the commit of an atomic body or step. The next attempt may overlap with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.durations import format_duration
from ultimat3_jobs.errors import JobTimeout
from ultimat3_jobs.logs import emit
from ultimat3_jobs.worker import stacks
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight, monotonic

LONGEST_WAIT = 3_600.0
"""Seconds that the thread sleeps at a stretch."""


@dataclass(frozen=True)
class Limit:
    """What an attempt, or one part of it, may take."""

    length: timedelta
    option: str = "timeout"
    """Of the declaration that sets it."""
    decorator: str = "@job"
    part: str = ""
    """What took too long, as a message has it; empty for the attempt as a whole."""
    instead: str = "do less in one attempt"
    """What to do where more time is no answer."""

    def error(self, job: str) -> JobTimeout:
        """Return what an attempt fails with that passed this limit."""
        took = f"{self.part} of {job} took longer than" if self.part else f"an attempt of {job} took longer than its"
        longer = format_duration(self.length * 2)
        return JobTimeout(
            f"{took} {self.option}={format_duration(self.length)}",
            fix=f'{self.option}="{longer}"  # in its {self.decorator}; or {self.instead}',
        )


def attempt_limit(definition: JobDefinition) -> Limit | None:
    """Return what an attempt of a job may take; None where that is not bounded."""
    if definition.timeout is None:
        return None
    if definition.backfill is not None:
        return Limit(
            definition.timeout, decorator="@backfill", instead="leave it out: page_timeout bounds what one page takes"
        )
    return Limit(definition.timeout)


def part_limit(definition: JobDefinition | None, name: str) -> Limit | None:
    """Return what a part of an attempt may take; None where that is not bounded.

    Args:
        definition: of the job.
        name: of the step; of a backfill the page as a message has it.
    """
    if definition is None or definition.step_timeout is None:
        return None
    if definition.backfill is not None:
        return Limit(definition.step_timeout, "page_timeout", "@backfill", name, "make pages smaller: batch=")
    part = f"the step {name!r}" if name else "a step"
    return Limit(definition.step_timeout, "step_timeout", part=part, instead="make steps smaller")


class Deadlines:
    """Watches the time of runs from the start of the worker until its last run is settled.

    Args:
        inflight: the runs; it decides who settles one.
        grace: how long a body may take to end once it was told to.
        abandon: called with a run that did not, from the watching thread, and with what its attempt fails with. It has
            the right to settle the run, and must not wait.
    """

    def __init__(
        self, inflight: Inflight, *, grace: timedelta, abandon: Callable[[ActiveRun, JobTimeout], None]
    ) -> None:
        self._inflight = inflight
        self._grace = grace.total_seconds()
        self._abandon = abandon
        self._changed = threading.Condition()
        self._watched: set[Watched] = set()
        self._wakes_at = 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ultimat3_jobs.deadlines", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """End the watch, and wait for its thread at most `timeout` seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @contextmanager
    def watch(self, active: ActiveRun, definition: JobDefinition | None) -> Iterator[Watched]:
        """Watch a run for the length of the block, which is its attempt. Entered by the thread of its body."""
        watched = Watched(self, active, definition)
        active.vitals.step_limit = watched.step
        if definition is not None and (whole := attempt_limit(definition)) is not None:
            self.arm(watched, watched, whole)
        try:
            yield watched
        finally:
            with self._changed:
                self._watched.discard(watched)
                watched.ended = True

    def arm(self, watched: Watched, mark: object, limit: Limit) -> None:
        """Let a limit count from now."""
        until = monotonic() + limit.length.total_seconds()
        with self._changed:
            watched.limits[mark] = (until, limit)
            if not watched.ended:
                self._watched.add(watched)
            if until < self._wakes_at:
                self._changed.notify()

    def disarm(self, watched: Watched, mark: object) -> None:
        """Let a limit count no longer."""
        with self._changed:
            watched.limits.pop(mark, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                now = monotonic()
                late = [one for one in self._watched if one.wakes_at <= now]
                if not late:
                    self._wakes_at = min((one.wakes_at for one in self._watched), default=now + LONGEST_WAIT)
                    self._changed.wait(min(self._wakes_at - now, LONGEST_WAIT))
                    continue
                stubborn = [one for one in late if one.passed is not None]
                self._watched.difference_update(stubborn)
                for one in stubborn:
                    one.ended = True
                overdue = [one for one in late if one.passed is None]
                for one in overdue:
                    one.passed = min(one.limits.values(), key=lambda armed: armed[0])[1]
                    one.until = now + self._grace
            # Not under the lock: bodies arm their steps meanwhile.
            for one in overdue:
                self._carry_out(self._tell, one)
            for one in stubborn:
                self._carry_out(self._give_up, one)

    def _carry_out(self, what: Callable[[Watched], None], one: Watched) -> None:
        try:
            what(one)
        except BaseException as error:  # the thread watches all other runs too
            emit("jobs.timeout.failed", level=logging.CRITICAL, exc_info=True, error=type(error).__name__)

    def _tell(self, one: Watched) -> None:
        job, error = one.active.job, one.overdue()
        emit("jobs.timeout.passed", level=logging.WARNING, job=job.claim.id, name=job.name, why=error and error.cause)
        one.active.run.cancelled.set()

    def _give_up(self, one: Watched) -> None:
        error, job = one.overdue(), one.active.job
        stack = stacks.of_thread(one.active.thread)
        if error is None or not self._inflight.abandon(one.active):
            return  # its body has just ended, or the drain was first
        emit(
            "jobs.timeout.abandoned",
            level=logging.ERROR,
            job=job.claim.id,
            name=job.name,
            attempt=job.attempt,
            why=error.cause,
            stack="\n" + stack,
        )
        error.add_note(f"Its body did not stop when it was told to. Its thread goes on, and was here:\n{stack}")
        self._abandon(one.active, error)


class Watched:
    """The limits of one run. Its fields are the watching thread's and are guarded by its lock."""

    def __init__(self, deadlines: Deadlines, active: ActiveRun, definition: JobDefinition | None) -> None:
        self._deadlines = deadlines
        self._definition = definition
        self.active = active
        self.limits: dict[object, tuple[float, Limit]] = {}
        """Those that count now, each with the moment at which it is passed; steps may run side by side."""
        self.passed: Limit | None = None
        self.until = 0.0
        """Until when the body may end by itself, once a limit was passed."""
        self.ended = False
        """Whether nothing more is to be done about it."""

    @property
    def wakes_at(self) -> float:
        """When the next thing is to be done about the run."""
        if self.passed is not None:
            return self.until
        return min((until for until, _ in self.limits.values()), default=float("inf"))

    def overdue(self) -> JobTimeout | None:
        """Return what the attempt fails with because of the limit that it passed; None where it passed none."""
        return None if self.passed is None else self.passed.error(self.active.job.name)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Bound one call of a step, or one page."""
        limit = part_limit(self._definition, name)
        if limit is None:
            yield
            return
        mark = object()
        self._deadlines.arm(self, mark, limit)
        try:
            yield
        finally:
            self._deadlines.disarm(self, mark)
