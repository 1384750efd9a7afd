"""What a retry and a cancel leave on the rows and in the history, in how many statements, and what a conflict costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.drivers.factories import LONG_AGO, JobFactory, add_copies, add_steps
from tests.drivers.harness import DatabaseHarness
from ultimat3_jobs.drivers.database import repairs
from ultimat3_jobs.models import Job, JobAttempt, JobStep
from ultimat3_jobs.records import CancelVerdict, Nack, RetryVerdict
from ultimat3_jobs.testing.conformance.harness import FAILURE

UNKNOWN = "quarantined"


def history(**which: Any) -> list[tuple[str, int, str, str]]:
    """Return the history as (kind, attempt, by, reason), oldest first."""
    rows = JobAttempt.objects.filter(**which).order_by("id")
    return list(rows.values_list("kind", "attempt", "by", "reason"))


def test_a_retried_job_is_as_new_and_its_history_stays(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k", max_attempts=1)
    harness.lapse()
    harness.driver().sweep(limit=10)
    Job.objects.update(
        parks=4, park_reason="x", cancel_requested_at=LONG_AGO, cancel_requested_by="x", cancel_reason="x"
    )
    before = Job.objects.get()
    assert (before.lapses, before.stop) == (1, "worker-lost")

    harness.driver().retry([claim.id], by="ann", reason="mended")

    job = Job.objects.get()
    assert (job.state, job.stop, job.attempt, job.lapses, job.parks, job.park_reason) == ("ready", "", 0, 0, 0, "")
    assert (job.cancel_requested_at, job.cancel_requested_by, job.cancel_reason) == (None, "", "")
    assert (job.finished_at, job.claim_token, job.visible_at) == (None, None, None)
    assert job.last_error == before.last_error
    assert history() == [("failure", 1, "", ""), ("retry", 0, "ann", "mended")]


@pytest.mark.parametrize("state", ["ready", "delayed", "running", "suspended"])
def test_a_cancelled_job_says_who_stopped_it_why_and_when(harness: DatabaseHarness, state: str) -> None:
    job = JobFactory(state=state, rerun={"a": "request"}, key_until=LONG_AGO, park_reason="unknown name")
    harness.driver().cancel([job.id], by="ann", reason="a mistake")
    after = Job.objects.get()

    assert (after.state, after.stop, after.attempt) == ("cancelled", "cancelled", 1)
    assert (after.key_until, after.claim_token, after.visible_at, after.rerun) == (None, None, None, None)
    assert (after.cancel_requested_by, after.cancel_reason, after.park_reason) == ("ann", "a mistake", "")
    assert after.cancel_requested_at == after.finished_at == after.updated_at
    assert after.finished_at is not None
    assert after.finished_at - LONG_AGO > timedelta(days=365)
    assert history() == [("cancel", 1, "ann", "a mistake")]
    assert JobAttempt.objects.get().next_run_at is None


def test_what_is_refused_leaves_the_row_and_the_history_as_they_were(harness: DatabaseHarness) -> None:
    jobs = [JobFactory(state=state) for state in ("done", "dead", "failed", "cancelled", UNKNOWN)]
    before = list(Job.objects.order_by("id").values())

    assert set(harness.driver().cancel([job.id for job in jobs])) == {CancelVerdict.NOT_CANCELLABLE}
    assert list(Job.objects.order_by("id").values()) == before
    assert history() == []


def test_fault_23_retry_pressed_twice_on_a_dead_a_running_and_a_finished_job(harness: DatabaseHarness) -> None:
    dead, running, done = (JobFactory(state=state, attempt=3) for state in ("dead", "running", "done"))
    ids = [dead.id, running.id, done.id]
    refused = RetryVerdict.NOT_RETRYABLE

    assert harness.driver().retry(ids) == [RetryVerdict.RETRIED, refused, refused]
    assert harness.driver().retry(ids) == [refused] * 3
    assert [job.claim.id for job in harness.claim()] == [dead.id]
    assert len(history()) == 1


@pytest.mark.parametrize("repair", ["retry", "cancel"])
def test_who_and_why_are_stored_whatever_they_are(harness: DatabaseHarness, repair: str) -> None:
    job = JobFactory(state="dead" if repair == "retry" else "ready")
    act: Callable[..., list[object]] = getattr(harness.driver(), repair)
    act([job.id], by="x" * 10_000, reason="a\x00b \ud800")

    assert history() == [(repair, Job.objects.get().attempt, "x" * 254 + "…", "a\\x00b \\ud800")]


@pytest.mark.parametrize(("state", "repair"), [("dead", "retry"), ("ready", "cancel")])
def test_thousands_take_a_few_statements(harness: DatabaseHarness, state: str, repair: str) -> None:
    made = JobFactory(state=state)
    ids = add_copies(made, 3_000)
    few = statements(lambda: getattr(harness.driver(), repair)([made.id]))

    assert statements(lambda: getattr(harness.driver(), repair)(ids)) == few <= 6
    assert len(history()) == 3_001


def statements(work: Callable[[], object]) -> int:
    """Return how many statements it takes."""
    with CaptureQueriesContext(connection) as captured:
        work()
    return len(captured)


@pytest.mark.postgresql_only(reason="SQLite has one writer: nothing is taken between a look and a write")
def test_a_key_taken_between_the_look_and_the_write_costs_its_own_row_alone(harness: DatabaseHarness) -> None:
    names = [f"{number:02}" for number in range(30)]
    letters = [JobFactory(state="dead", idempotency_key=name).id for _ in range(2) for name in names]
    with harness.transaction():
        harness.enqueue("07", "21")
        verdicts = harness.meanwhile(lambda: harness.driver().retry(letters))

    older, newer = verdicts()[:30], verdicts()[30:]
    for at in range(30):
        taken = at in (7, 21)
        assert newer[at] is (RetryVerdict.KEY_HELD if taken else RetryVerdict.RETRIED), at
        assert older[at] is (RetryVerdict.KEY_HELD if taken else RetryVerdict.SUPERSEDED), at
    assert JobAttempt.objects.count() == 28


def test_a_repair_in_a_transaction_that_rolls_back_never_was(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k")
    harness.driver().nack([Nack.retry(claim, delay=timedelta(hours=1), failure=FAILURE)])
    dead = JobFactory(state="dead").id
    with harness.taken_back():
        assert harness.driver().cancel([claim.id]) == [CancelVerdict.CANCELLED]
        assert harness.driver().retry([dead]) == [RetryVerdict.RETRIED]

    assert harness.buckets() == {"delayed": 1, "dead": 1}
    assert [kind for kind, *_ in history()] == ["failure"]


def steps(job: Job) -> list[str]:
    """Return the names of what a job has recorded, in its order."""
    return list(JobStep.objects.filter(run_id=job.run_id).order_by("seq").values_list("name", flat=True))


def test_the_history_says_from_which_step_a_job_was_retried(harness: DatabaseHarness) -> None:
    again, anew = JobFactory(state="dead"), JobFactory(state="failed")
    for job in (again, anew):
        add_steps(job, "reserve", "charge")
    harness.driver().retry([again.id], by="ann", reason="mended", from_step="charge")
    harness.driver().retry([anew.id])
    harness.driver().cancel([anew.id])

    kept = JobAttempt.objects.order_by("id").values_list("job_id", "kind", "rule", "by", "reason")
    assert list(kept) == [
        (again.id, "retry", "charge", "ann", "mended"),
        (anew.id, "retry", "", "", ""),
        (anew.id, "cancel", "", "", ""),
    ]


def test_what_a_retry_forgets_comes_back_where_it_is_rolled_back(harness: DatabaseHarness) -> None:
    job = JobFactory(state="dead")
    add_steps(job, "reserve", "charge")
    with harness.taken_back():
        assert harness.driver().retry([job.id], from_step="charge") == [RetryVerdict.RETRIED]
        assert steps(job) == ["reserve"]

    assert steps(job) == ["reserve", "charge"]


def test_steps_are_forgotten_with_the_retry_or_not_at_all(
    harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFactory(state="dead")
    add_steps(job, "reserve", "charge")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the history is full")

    monkeypatch.setattr(repairs, "log_repairs", fail)
    with pytest.raises(RuntimeError):
        harness.driver().retry([job.id], from_step="charge")

    assert (steps(job), Job.objects.get().state) == (["reserve", "charge"], "dead")


def test_thousands_are_retried_from_a_step_in_a_few_statements(harness: DatabaseHarness) -> None:
    made = JobFactory(state="dead")
    add_steps(made, "reserve", "charge")
    ids = [made.id, *add_copies(made, 2_000)]
    assert JobStep.objects.count() == 2 * len(ids)

    assert statements(lambda: harness.driver().retry(ids, from_step="charge")) <= 8
    assert set(JobStep.objects.values_list("name", flat=True)) == {"reserve"}


@pytest.mark.postgresql_only(reason="SQLite has one writer: nothing is taken between a look and a write")
def test_a_batch_that_is_taken_apart_forgets_the_steps_of_what_was_started(harness: DatabaseHarness) -> None:
    jobs = [JobFactory(state="dead", idempotency_key=f"{number}") for number in range(6)]
    for job in jobs:
        add_steps(job, "reserve", "charge")
    with harness.transaction():
        harness.enqueue("3")
        verdicts = harness.meanwhile(lambda: harness.driver().retry([job.id for job in jobs], from_step="charge"))

    expected = [RetryVerdict.KEY_HELD if at == 3 else RetryVerdict.RETRIED for at in range(6)]
    assert verdicts() == expected
    assert [steps(job) == ["reserve"] for job in jobs] == [at != 3 for at in range(6)]
