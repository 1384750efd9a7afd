"""A cancelled job, an error that says how long to wait, a result that cannot be stored: as a worker meets them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.processes import TIMEOUT, wait_for
from tests.working import declare, history, row, run_due, working
from ultimat3_jobs import Retry, Run, error_registry, register_error_retry
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.records import CancelVerdict, RetryVerdict

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    """Forget what a test registers."""
    with error_registry.isolated():
        yield


class BusyError(Exception):
    """What a service says that wants to be left alone."""

    retry_after = 90


@pytest.mark.parametrize("obedient", [True, False])
def test_a_cancelled_jobs_worker_learns_it_at_its_heartbeat_and_can_settle_nothing(
    settings: Any, obedient: bool
) -> None:
    settings.ULTIMAT3_JOBS = {"RENEWAL": "100ms", "POLL": "50ms"}
    begun, ended = threading.Event(), threading.Event()

    def body(run: Run, n: int) -> str:
        try:
            if not begun.is_set():
                begun.set()
                assert run.cancelled.wait(TIMEOUT)
                if obedient:
                    run.check_cancelled()
            return "ended well"
        finally:
            ended.set()

    work = declare(body)
    queued = work.enqueue(1)
    with working(concurrency=1):
        assert begun.wait(TIMEOUT)
        assert get_driver().cancel([queued.id], by="ann", reason="a mistake") == [CancelVerdict.CANCELLED]
        following = work.enqueue(1)
        assert not following.deduped, "the key is free at once"
        assert ended.wait(TIMEOUT)
        wait_for(lambda: row(following).state == "done", "the worker goes on")

    job_row = row(queued)
    assert (job_row.state, job_row.stop, job_row.result) == ("cancelled", "cancelled", None)
    assert [(kept.kind, kept.by, kept.reason) for kept in history(queued)] == [("cancel", "ann", "a mistake")]


def test_an_error_that_says_how_long_to_wait_is_kept_with_its_rule_and_its_time() -> None:
    register_error_retry({BusyError: "retry-after"})

    def body(run: Run, n: int) -> None:
        raise BusyError("later")

    queued = declare(body, retry=Retry(attempts=2, delay="1s", jitter=False)).enqueue(1)
    run_due()

    job_row = row(queued)
    assert job_row.state == "delayed"
    (kept,) = history(queued)
    assert (kept.message, kept.decision) == ("later", "retry")
    assert kept.rule == f"{__name__}.BusyError is retry-after"
    assert "in body" in kept.traceback
    assert kept.next_run_at == job_row.run_at
    assert kept.finished_at is not None
    assert abs(job_row.run_at - kept.finished_at - timedelta(seconds=90)) < timedelta(seconds=1)
    assert job_row.last_error.endswith("verdict: retry in 1m30s, as the error says: attempt 1 of 2 failed")


@pytest.mark.parametrize("result", [object(), "x" * 1_001], ids=["no data", "too long"])
def test_fault_20_a_result_that_cannot_be_stored_ends_its_job_and_the_next_one_runs(
    settings: Any, result: object
) -> None:
    settings.ULTIMAT3_JOBS = {"MAX_RESULT_BYTES": 1_000, "RELEASE": "r7"}
    runs: list[int] = []

    def body(run: Run, n: int) -> object:
        runs.append(n)
        return result if n == 1 else None

    work = declare(body)
    first, second = work.enqueue(1), work.enqueue(2)
    run_due(concurrency=1)
    run_due(concurrency=1)

    assert runs == [1, 2], "no second run by itself"
    assert (row(first).state, row(first).stop, row(second).state) == ("dead", "terminal", "done")
    assert "verdict: dead (terminal): the body ended well" in row(first).last_error
    assert [kept.release for kept in history(first)] == ["r7"]
    assert get_driver().retry([first.id]) == [RetryVerdict.RETRIED], "a person may decide otherwise"
