"""`crash_at_each_step()`: a job's process dies at every point in turn, and the job is started again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F

from ultimat3_jobs.aliases import outbox_aliases, queue_alias
from ultimat3_jobs.drivers import Driver, get_driver
from ultimat3_jobs.enqueue import EnqueueResult
from ultimat3_jobs.errors import DrainEndless, DrainFailed
from ultimat3_jobs.event_checks import MatchValue
from ultimat3_jobs.events import publish_event
from ultimat3_jobs.job import Job
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.steps.steps import Steps
from ultimat3_jobs.testing.borrowed import BorrowedConnections
from ultimat3_jobs.testing.deaths import CrashPoint, Life, MortalConnections, MortalSteps
from ultimat3_jobs.testing.drain import LEASE, relay_staged
from ultimat3_jobs.testing.outcomes import is_of, named, text_of
from ultimat3_jobs.testing.passing import BATCH, pass_time, time_to_the_next
from ultimat3_jobs.worker.atomic import AtomicEnding
from ultimat3_jobs.worker.attempt import connections_of_a_run
from ultimat3_jobs.worker.claim import claim
from ultimat3_jobs.worker.execute import execute
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight
from ultimat3_jobs.worker.outcome import Outcome, Succeeded, Suspending
from ultimat3_jobs.worker.recording import open_steps
from ultimat3_jobs.worker.settle import settle_once

MOST_POINTS = 1_000
MOST_STARTS = 1_000
"""How often one job is started at most: one that snoozes for ever never ends."""
LOOKED_AT = 10_000
CENTURY = timedelta(days=36_525)


@dataclass(frozen=True)
class Event:
    """An event that is published for the job of a `crash_at_each_step`; the arguments are those of `publish_event`."""

    name: str
    payload: Any = None
    match: Mapping[str, MatchValue] | None = None


def crash_at_each_step(job: Job[..., Any], /, *events: Event, **values: Any) -> Iterator[CrashPoint]:
    """Run a job once for every point at which its process can die, and give each point when the job has ended.

        for point in crash_at_each_step(onboard_org, org_id=7):
            assert Welcome.objects.count() == 1, point

    The first run has no crash, and tells the points: before each step, inside it (what it calls is done, its record is
    not), after its record; of a sleep or a wait before it, between its record and the park, and when it is over; and
    after the body, before its ack; for an atomic job before its body as well. Each further run dies at one of them.
    What was committed by then stays, what was open is rolled back, and nothing that the body does on its way out
    reaches a database; the lease lapses, the attempt counts, and the job is started again. Time goes forward for
    sleeps and time-outs. A point that a run does not come to is left out.

    Each run, and the block of the loop that looks at what came of it, is in a world of its own: transactions on the
    databases of the queue and of the outboxes, and savepoints in those that are open already. They are rolled back
    when the loop goes on, when it is left, and when its assertion fails. Other work in the queue does not run, and
    what is not in these databases stays (`mail.outbox`, files). Works wherever `drain` does.

    Args:
        job: the job, or a handle of it with `using(...)`. It gets one attempt more than it declares, or the crash
            would be the end of one that has a single one.
        *events: what is published after the enqueue, for the waits of the job. One without its event waits for its
            time-out.
        **values: what it is enqueued with.

    Yields:
        The point at which the process died, or that it did not: say it in the assertion's message.

    Raises:
        BaseException: what the body raised by itself, with the point as a note. No attempt of its own follows.
        DrainFailed: where the job could not be queued, or ended otherwise than well.
        DrainEndless: where it has more than 1,000 points, or was started 1,000 times and goes on.
    """
    points = [CrashPoint("nowhere")]
    for point in points:  # which grows, as runs come to further ones
        life = Life(point)
        with _world():
            _Subject(get_driver(), life, point).run(job, values, events)
            points += [one for one in life.reached if one not in points]
            if len(points) > MOST_POINTS:
                raise DrainEndless(
                    f"{job.name} has more than {MOST_POINTS:,} points at which its process can die",
                    fix="for point in crash_at_each_step(job, ...):  # with an input that makes fewer steps",
                )
            if life.crashed or point.where == "nowhere":
                yield point


class _Subject:
    """One job in its world, from its enqueue to its end."""

    def __init__(self, driver: Driver, life: Life, point: CrashPoint) -> None:
        self._driver = driver
        self._life = life
        self._point = point
        # Its queue for as long as it runs: nothing else is claimed.
        self._queue = f"crashes-{uuid4().hex}"
        self._served = QueueSelection(only=(self._queue,))

    def run(self, job: Job[..., Any], values: dict[str, Any], events: Sequence[Event]) -> None:
        """Enqueue it, and start it until it has ended."""
        from ultimat3_jobs.models import Job as JobRow  # noqa: PLC0415 - needs loaded apps

        queued = job.enqueue(**values)
        relay_staged()  # the job first: an event counts that is published after it
        for event in events:
            publish_event(event.name, event.payload, match=event.match)
        relay_staged()
        rows = JobRow.objects.using(queue_alias()).filter(pk=queued.id)
        queue = rows.values_list("queue", flat=True).first()
        if queue is None or queued.deduped:
            raise self._failed(job.name, "was not queued: another job holds its key, or it was set aside")
        rows.update(queue=self._queue, max_attempts=F("max_attempts") + 1)
        self._start_until_it_ends(job.name, queued)
        rows.update(queue=queue, max_attempts=F("max_attempts") - 1)

    def _start_until_it_ends(self, name: str, queued: EnqueueResult) -> None:
        for _ in range(MOST_STARTS):
            active = self._claim(name, queued)
            outcome = self._attempt(active)
            if outcome is None:
                self._lapse(active)
            elif not isinstance(outcome, Suspending):
                return
        raise DrainEndless(
            f"{name} was started {MOST_STARTS:,} times and goes on ({self._point})",
            fix="run.snooze(...)  # under a condition that comes to an end by itself",
        )

    def _claim(self, name: str, queued: EnqueueResult) -> ActiveRun:
        """Take the job, once the time has come."""
        from ultimat3_jobs.models import Job as JobRow  # noqa: PLC0415 - needs loaded apps

        for _ in range(MOST_STARTS):
            while self._driver.promote(limit=BATCH) >= BATCH:
                pass
            claimed = claim(self._driver, worker="crashes", free=1, lease=LEASE, queues=self._served, lapsed=1)
            if claimed:
                return claimed[0]
            row = JobRow.objects.using(queue_alias()).get(pk=queued.id)
            if row.wait_event and row.wait_until is None:
                raise DrainFailed(
                    f"{name} {row.park_reason}, for ever: it has no timeout, and no event that was given has this name "
                    f"and match ({self._point})",
                    fix=f"crash_at_each_step(job, Event({row.wait_event!r}, match={row.wait_match or None}), ...)",
                )
            pass_time(time_to_the_next(self._served, CENTURY))
        raise self._failed(name, f"is {row.state} and does not become ready")

    def _attempt(self, active: ActiveRun) -> Outcome | None:
        """Run the body and settle it; None where its process died."""
        job, borrowed = active.job, BorrowedConnections()
        ending = AtomicEnding(self._driver, Inflight(), active, lease=LEASE)
        lent = connections_of_a_run.set(lambda: MortalConnections(borrowed, self._life))
        try:
            outcome = execute(
                job,
                active.run,
                transaction=lambda: self._life.transaction(ending.transaction()),
                open_steps=partial(open_steps, self._driver, kind=self._steps),
            )
        finally:
            connections_of_a_run.reset(lent)
        if self._life.dead or (isinstance(outcome, Succeeded) and self._life.ends_before_its_ack()):
            return None
        if is_of(borrowed.error, outcome) and borrowed.error is not None:
            with contextlib.suppress(Exception):  # an exception can refuse even this
                borrowed.error.add_note(f"raised in {job.name}, attempt {job.attempt}: {self._point}")
            raise borrowed.error
        landed = settle_once(self._driver, job, outcome, progress=active.vitals.progress)
        if not landed or named(outcome) not in {"done", "suspended"}:
            raise self._failed(job.name, f"ended {named(outcome)!r}: {text_of(outcome) or 'its claim is gone'}")
        return outcome

    def _steps(self, *arguments: Any, **options: Any) -> Steps:
        steps = MortalSteps(*arguments, **options)
        steps.life = self._life
        return steps

    def _lapse(self, active: ActiveRun) -> None:
        """Do what comes after a death: the lease ends, and the sweep takes the job."""
        from ultimat3_jobs.models import Job as JobRow  # noqa: PLC0415 - needs loaded apps

        rows = JobRow.objects.using(queue_alias()).filter(pk=active.job.claim.id)
        ends_at = rows.values_list("visible_at", flat=True).get()
        rows.update(visible_at=ends_at and ends_at - 2 * LEASE)
        seen = [one for one in self._driver.lapsed(limit=LOOKED_AT) if one.id == active.job.claim.id]
        self._driver.sweep(limit=1, seen=seen)
        self._life.dead = False

    def _failed(self, name: str, what: str) -> DrainFailed:
        return DrainFailed(
            f"{name} {what} ({self._point})",
            fix="drain(raise_errors=False)  # runs it without a crash, and reports how each attempt ended",
        )


@contextmanager
def _world() -> Iterator[None]:
    """Undo, at the end of the block, whatever was written in it."""
    opened = {one.alias for one in connections.all(initialized_only=True) if _is_open(one)}
    with ExitStack() as undone:
        for alias in sorted({queue_alias(), *outbox_aliases()} | opened):
            undone.enter_context(_savepoint(connections[alias]) if alias in opened else _transaction(alias))
        yield


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    # Not an atomic block: a loop that is left may end it after the test's own block has ended.
    hooks = list(connection.run_on_commit)
    savepoint = connection.savepoint()
    try:
        yield
    finally:
        connection.needs_rollback = False
        if savepoint is not None:
            connection.savepoint_rollback(savepoint)
            connection.savepoint_commit(savepoint)
        connection.run_on_commit = hooks


@contextmanager
def _transaction(alias: str) -> Iterator[None]:
    block = transaction.atomic(using=alias)
    # As in Django's TestCase: a durable block inside must not mind.
    block._from_testcase = True  # type: ignore[attr-defined]
    with block:
        try:
            yield
        finally:
            transaction.set_rollback(True, using=alias)


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)
