"""`drain()`: run everything due inline, in the caller's thread and inside the caller's open transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from uuid import uuid4

from ultimat3_jobs.aliases import in_transaction, outbox_aliases, queue_alias
from ultimat3_jobs.drivers import Driver, get_driver
from ultimat3_jobs.durations import Duration, parse_duration
from ultimat3_jobs.errors import DrainEndless, DrainFailed
from ultimat3_jobs.options import check_queue
from ultimat3_jobs.records import Nack, QueueSelection
from ultimat3_jobs.sql import run
from ultimat3_jobs.testing.borrowed import BorrowedConnections
from ultimat3_jobs.testing.outcomes import is_of, named, text_of
from ultimat3_jobs.testing.passing import BATCH, pass_time, time_to_the_next
from ultimat3_jobs.testing.report import DrainedJob, DrainReport
from ultimat3_jobs.worker.atomic import AtomicEnding
from ultimat3_jobs.worker.attempt import connections_of_a_run
from ultimat3_jobs.worker.claim import claim
from ultimat3_jobs.worker.execute import execute
from ultimat3_jobs.worker.inflight import ActiveRun, Inflight
from ultimat3_jobs.worker.outcome import Outcome
from ultimat3_jobs.worker.recording import open_steps
from ultimat3_jobs.worker.settle import settle_once

ENDED_WELL = ("done", "suspended")
LEASE = timedelta(days=1)
"""Nobody renews the claim of a drain: no body may outlast it."""


def drain(
    *,
    queues: str | Sequence[str] = (),
    ahead: Duration = 0,
    max_jobs: int = 1_000,
    raise_errors: bool = True,
) -> DrainReport:
    """Run everything that is due, and what that enqueues, until nothing is due. For tests.

    Work goes the way it goes in production: staged rows through the relay, then claim, body and settlement, each with
    the same statements; but in the caller's thread, on the caller's connection and inside the transaction that the
    caller has open, which is neither committed nor rolled back. No worker is needed. Works in `TestCase`,
    `TransactionTestCase` and their pytest counterparts. Nobody watches the time: `timeout` and `step_timeout` bound
    nothing here, since a body in the caller's thread cannot be given up.

    Args:
        queues: names of the queues to serve; all where it is empty.
        ahead: let this much time pass while draining ("1h"; numbers are seconds): delayed jobs and retries that fall
            due in it run in the order of their times, and so does what they enqueue in turn. The database's clock
            cannot be moved: instead due times, and the times until which done jobs hold their keys, become earlier.
        max_jobs: how many attempts to start at most.
        raise_errors: raise what the first failing body raised, as it is, once its failure is stored; the rest stays
            queued. False records it in the report and goes on.

    Returns:
        What was run and how each attempt ended.

    Raises:
        BaseException: what a body raised, where `raise_errors` is true. KeyboardInterrupt is raised in any case.
        DrainFailed: where `raise_errors` is true and work could not be published, run or stored.
        DrainEndless: where more than `max_jobs` are due.
    """
    served = QueueSelection(only=tuple(map(check_queue, [queues] if isinstance(queues, str) else queues)))
    one = _Drain(get_driver(), served, max_jobs=max_jobs, raise_errors=raise_errors)
    left = parse_duration(ahead)
    if left < timedelta(0):
        raise ValueError(f"ahead={ahead!r} is a time in the past")
    one.run_due()
    while left:
        step = time_to_the_next(served, left)
        pass_time(step)
        left -= step
        one.run_due()
    return one.report()


class _Drain:
    """One drain under way."""

    def __init__(self, driver: Driver, served: QueueSelection, *, max_jobs: int, raise_errors: bool) -> None:
        self._driver = driver
        self._served = served
        self._max_jobs = max_jobs
        self._raise_errors = raise_errors
        self._worker = f"drain-{uuid4().hex}"
        self._jobs: list[DrainedJob] = []
        self._set_aside: list[str] = []
        self._relayed = 0

    def report(self) -> DrainReport:
        return DrainReport(tuple(self._jobs), self._relayed, tuple(self._set_aside))

    def run_due(self) -> None:
        """Relay, promote and run until nothing is due."""
        while True:
            self._relay()
            while self._driver.promote(limit=BATCH) >= BATCH:
                pass
            claimed = claim(self._driver, worker=self._worker, free=1, lease=LEASE, queues=self._served, lapsed=1)
            if not claimed:
                return
            for active in claimed:
                self._attempt(active)

    def _attempt(self, active: ActiveRun) -> None:
        job = active.job
        if len(self._jobs) >= self._max_jobs:
            self._driver.nack([Nack.hand_back(job.claim)])
            raise DrainEndless(
                f"{len(self._jobs)} jobs were started, and {job.name} is due",
                fix=f"drain(max_jobs={10 * self._max_jobs})  # or give the job that enqueues itself an end",
            )
        borrowed = BorrowedConnections()
        active.vitals.may_wait = False
        ending = AtomicEnding(self._driver, Inflight(), active, lease=LEASE)
        outcome = _lending(
            borrowed,
            lambda: execute(
                job, active.run, transaction=ending.transaction, open_steps=partial(open_steps, self._driver)
            ),
        )
        landed = settle_once(self._driver, job, outcome, progress=active.vitals.progress)
        drained = DrainedJob(
            id=job.claim.id,
            name=job.name,
            attempt=job.attempt,
            outcome=named(outcome) if landed else "lost",
            error=borrowed.error if is_of(borrowed.error, outcome) else None,
            text=text_of(outcome),
        )
        self._jobs.append(drained)
        self._raise(drained, job.max_attempts)

    def _raise(self, drained: DrainedJob, max_attempts: int) -> None:
        error = drained.error
        if error is not None and (self._raise_errors or isinstance(error, KeyboardInterrupt)):
            with contextlib.suppress(Exception):  # an exception can refuse even this
                error.add_note(f"raised in {drained.name}, attempt {drained.attempt} of {max_attempts}, run by drain()")
            raise error
        if drained.outcome not in ENDED_WELL and self._raise_errors:
            raise DrainFailed(
                f"{drained.name} (job {drained.id}) ended {drained.outcome!r}: {drained.text or 'its claim is gone'}",
                fix="drain(raise_errors=False)  # records it in the report's jobs instead",
            )

    def _relay(self) -> None:
        known = _set_aside()
        moved = relay_staged()
        if not moved:
            return
        aside = [error for staged, error in _set_aside().items() if staged not in known]
        self._relayed += moved - len(aside)
        self._set_aside += aside
        if aside and self._raise_errors:
            raise DrainFailed(
                f"{len(aside)} staged rows could not be published; the first: {aside[0]}",
                fix="drain(raise_errors=False)  # records it in the report's set_aside instead",
            )


def relay_staged() -> int:
    """Relay what the caller has staged, in its open transaction, and return how many rows were decided."""
    from ultimat3_jobs.outbox.relay import relay_all  # noqa: PLC0415 - needs loaded apps

    moved = relay_all()
    for alias in {*outbox_aliases(), queue_alias()}:
        if in_transaction(alias):
            run(alias, "stay_open", {})
    return moved


def _lending(borrowed: BorrowedConnections, work: Callable[[], Outcome]) -> Outcome:
    lent = connections_of_a_run.set(lambda: borrowed)
    try:
        return work()
    finally:
        connections_of_a_run.reset(lent)


def _set_aside() -> dict[object, str]:
    from ultimat3_jobs.models import OutboxEntry  # noqa: PLC0415 - needs loaded apps

    found: dict[object, str] = {}
    for alias in outbox_aliases():
        entries = OutboxEntry.objects.using(alias).filter(outcome=OutboxEntry.Outcome.SET_ASIDE)
        found.update(entries.values_list("id", "error"))
    return found
