"""A pytest plugin for tests that run jobs: an empty queue, workers of this process, and a view of what they left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, connections
from pytest_django import DjangoDbBlocker

from tests.emptying import empty_tables
from tests.processes import TIMEOUT, wait_for
from ultimat3_jobs import NO_TENANT, EnqueueResult, Job, Run, job, registry
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobAttempt
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.loop import Worker, WorkerOptions


@pytest.fixture
def queue(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """An empty queue outside any transaction, which is emptied again; jobs that a test declares are forgotten."""
    with django_db_blocker.unblock(), registry.isolated():
        empty_tables()
        yield
        wait_for(lambda: not _threads(), "the threads of the test's workers have ended")
        empty_tables()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ultimat3_jobs.")]


def declare(work: Callable[[Run, int], Any], **options: Any) -> Job[..., Any]:
    """Declare a job of one number whose body is `work`."""

    def body(run: Run, n: int) -> Any:
        return work(run, n)

    return job(**{"name": "t.job", "idempotency_key": "{n}", "tenant": NO_TENANT, **options})(body)


def run_due(**options: Any) -> Ending:
    """Run what is due in a worker of this process, to its end; the options are those of the worker."""
    return Worker(WorkerOptions(burst=True, **options)).run()


class Working:
    """A worker in a thread of this process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.endings: list[Ending] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Do what a SIGTERM does."""
        self.worker.stop()

    def ended(self) -> Ending:
        """Wait until it has ended, and return how."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the worker did not end"
        return self.endings[0]

    def _run(self) -> None:
        try:
            self.endings.append(self.worker.run())
        finally:
            connections.close_all()


@contextmanager
def working(**options: Any) -> Iterator[Working]:
    """Keep a worker of this process running for the length of the block, then drain it."""
    running = Working(Worker(WorkerOptions(**options)))
    try:
        yield running
    finally:
        if not running.endings:
            running.stop()
        running.ended()


def row(job: EnqueueResult | UUID) -> JobRow:
    """Return a job's row as it is now."""
    return JobRow.objects.get(pk=job.id if isinstance(job, EnqueueResult) else job)


def history(job: EnqueueResult | UUID) -> list[JobAttempt]:
    """Return the failures, retries and cancels of a job, oldest first."""
    return list(JobAttempt.objects.filter(job_id=job.id if isinstance(job, EnqueueResult) else job).order_by("id"))


def states() -> dict[str, int]:
    """Return how many jobs are in each state."""
    counts: dict[str, int] = {}
    for state in JobRow.objects.values_list("state", flat=True):
        counts[state] = counts.get(state, 0) + 1
    return counts


def age(seconds: float, *columns: str) -> None:
    """Let time pass for every job: the database's clock cannot be moved, so these columns become older."""
    earlier = {
        "postgresql": "{0} = {0} - make_interval(secs => %(seconds)s)",
        "sqlite": "{0} = strftime('%%Y-%%m-%%d %%H:%%M:%%f', {0}, (-%(seconds)s) || ' seconds') || '000'",
    }[connection.vendor]
    with connection.cursor() as cursor:
        changes = ", ".join(earlier.format(column) for column in columns)
        cursor.execute(f"UPDATE x_jobs SET {changes}", {"seconds": seconds})


class Failing:
    """An execute wrapper that makes statements of one connection fail.

    Args:
        times: how many fail before the rest goes through.
        only: whether a statement is meant.
        after: fail once the statement has been carried out: its answer is what gets lost.
    """

    def __init__(self, times: int, only: Callable[[str], bool] = lambda _: True, *, after: bool = False) -> None:
        self.left = times
        self.only = only
        self.after = after

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self.left and self.only(sql):
            self.left -= 1
            if self.after:
                execute(sql, params, many, context)
            raise OperationalError("the connection is gone")
        return execute(sql, params, many, context)
