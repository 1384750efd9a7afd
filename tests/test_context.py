"""What a body may ask of its run."""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest

from ultimat3_jobs import Aborted, current_tenant
from ultimat3_jobs.context import Run
from ultimat3_jobs.records import Claim, ClaimedJob

JOB = ClaimedJob(
    claim=Claim(uuid4(), uuid4()),
    run_id=uuid4(),
    name="shop.ship",
    queue="default",
    input="{}",
    tenant_id="acme",
    attempt=2,
    max_attempts=5,
    lapses=0,
    parks=0,
    enqueued_by="auth.user:7",
    traceparent="",
)


def test_a_run_tells_what_it_is() -> None:
    run = Run(JOB)

    assert (run.id, run.run_id) == (JOB.claim.id, JOB.run_id)
    assert (run.attempt, run.max_attempts) == (2, 5)
    assert (run.tenant, run.enqueued_by) == ("acme", "auth.user:7")
    assert repr(run) == f"<Run {JOB.run_id} attempt 2/5>"


def test_a_run_never_shows_its_claim() -> None:
    assert JOB.claim.token not in vars(Run(JOB)).values()


def test_a_run_that_is_told_to_stop_aborts_where_it_asks() -> None:
    run = Run(JOB)
    run.check_cancelled()

    run.cancelled.set()

    with pytest.raises(Aborted, match=str(JOB.run_id)):
        run.check_cancelled()


def test_a_body_that_catches_exceptions_does_not_swallow_an_abort() -> None:
    assert not issubclass(Aborted, Exception)
    assert Aborted.code == "X_ABORTED"


def test_the_logger_of_a_run_carries_the_job(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Run(JOB).logger.info("packed")

    record = caplog.records[0]
    assert record.name == "ultimat3_jobs.run.shop.ship"
    assert vars(record)["job_id"] == str(JOB.claim.id)
    assert vars(record)["attempt"] == 2


def test_there_is_no_tenant_outside_a_run() -> None:
    assert current_tenant() is None
