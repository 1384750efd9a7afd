"""What the database driver leaves on the rows: for people who look, and for the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from tests.drivers.factories import JobFactory
from tests.drivers.harness import DatabaseHarness
from tests.processes import wait_for
from ultimat3_jobs.drivers.database import driver as database_driver
from ultimat3_jobs.drivers.database import repairs, settlements
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Job, JobAttempt
from ultimat3_jobs.records import Ack, Claim, Failure, Nack
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.harness import FAILURE, LEASE

HOUR = timedelta(hours=1)


def the_job() -> Job:
    """Return the only job there is."""
    return Job.objects.get()


def history() -> list[tuple[str, int, str]]:
    """Return the history as (kind, attempt, decision), oldest first."""
    return list(JobAttempt.objects.order_by("id").values_list("kind", "attempt", "decision"))


def test_an_enqueue_keeps_when_it_was_asked_for(harness: DatabaseHarness) -> None:
    staged = datetime(2026, 3, 1, 12, 30, 15, 123_000, tzinfo=UTC)
    harness.enqueue("k", requested_at=staged, dedupe_for=90.5, run_at=staged + HOUR, priority=-7, enqueued_by="ann")
    job = the_job()

    assert (job.created_at, job.run_at) == (staged, staged + HOUR)
    assert job.key_until == staged + timedelta(seconds=90.5)
    assert (job.priority, job.enqueued_by, job.attempt, job.claim_token) == (-7, "ann", 0, None)


def test_a_claim_says_whose_it_is_and_until_when(harness: DatabaseHarness) -> None:
    harness.enqueue("k")
    (claimed,) = harness.claim(worker="worker-1", lease=LEASE)
    job = the_job()

    assert (job.claimed_by, job.claim_token) == ("worker-1", claimed.claim.token)
    assert job.visible_at is not None
    assert job.started_at is not None
    assert job.visible_at - job.started_at == timedelta(seconds=LEASE)


def test_an_ack_keeps_the_result_and_the_token_and_clears_the_error(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k")
    harness.driver().nack([Nack.retry(claim, delay=timedelta(0), failure=FAILURE)])
    harness.due()
    (claimed,) = harness.claim()
    harness.driver().ack([Ack(claimed.claim, '{"rows": [1, null]}')])
    job = the_job()

    assert job.result == {"rows": [1, None]}
    assert (job.last_error, job.visible_at, job.claim_token) == ("", None, claimed.claim.token)
    assert job.finished_at is not None
    harness.driver().ack([Ack(claimed.claim, '"said twice"')])
    assert the_job().result == {"rows": [1, None]}


def test_a_failure_is_kept_on_the_row(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k")
    harness.driver().nack([Nack.retry(claim, delay=HOUR, failure=FAILURE)])
    job = the_job()

    assert (job.error_class, job.error_place) == (FAILURE.error_class, FAILURE.error_place)
    assert (job.cause, job.last_error) == (FAILURE.cause, FAILURE.text)
    assert job.run_at - job.updated_at == HOUR
    assert (job.claim_token, job.visible_at, job.finished_at) == (None, None, None)


@pytest.mark.parametrize(("dead_letter", "state"), [(True, "dead"), (False, "failed")])
def test_a_buried_job_says_why_it_ended(harness: DatabaseHarness, dead_letter: bool, state: str) -> None:
    (claim,) = harness.running("k", dedupe_for=3_600.0)
    nack = Nack.bury(claim, stop=Stop.EXHAUSTED, failure=FAILURE, dead_letter=dead_letter)
    harness.driver().nack([nack])
    job = the_job()

    assert (job.state, job.stop, job.last_error) == (state, "attempts-exhausted", FAILURE.text)
    assert job.finished_at is not None
    assert job.key_until is None
    assert harness.buckets() == {"dead": 1}


def test_a_parked_job_says_why_until_it_is_promoted(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k")
    harness.driver().nack([Nack.park(claim, delay=timedelta(0), reason="no code knows this name")])
    assert the_job().park_reason == "no code knows this name"
    harness.due()

    assert the_job().park_reason == ""


@pytest.mark.parametrize(("max_attempts", "state", "stop"), [(2, "ready", ""), (1, "dead", "worker-lost")])
def test_a_lapsed_job_says_what_became_of_its_worker(
    harness: DatabaseHarness, max_attempts: int, state: str, stop: str
) -> None:
    harness.running("k", max_attempts=max_attempts)
    harness.lapse()
    harness.driver().sweep(limit=10)
    job = the_job()

    assert (job.state, job.stop, job.error_class, job.lapses) == (state, stop, "WorkerLost", 1)
    assert job.last_error.splitlines()[-1].startswith("verdict: ")
    assert (job.claim_token, job.visible_at) == (None, None)
    assert (job.finished_at is None) is (state == "ready")


def test_a_retried_job_is_as_new_but_keeps_its_last_error(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k")
    harness.driver().nack([Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE)])
    harness.driver().retry([claim.id])
    job = the_job()

    assert (job.state, job.stop, job.attempt, job.claim_token, job.finished_at) == ("ready", "", 0, None, None)
    assert job.last_error == FAILURE.text


def test_a_job_that_was_followed_has_nothing_more_to_ask_for(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k", dedupe_for=3_600.0)
    harness.enqueue("k", while_running="again")
    assert the_job().rerun is not None
    harness.driver().ack([Ack(claim)])
    job = Job.objects.get(pk=claim.id)

    assert (job.state, job.rerun, job.key_until) == ("done", None, None)


def test_the_history_keeps_what_went_wrong_and_nothing_else(harness: DatabaseHarness) -> None:
    harness.enqueue("k", max_attempts=2)
    for settle in (
        lambda claim: harness.driver().nack([Nack.park(claim, delay=timedelta(0), reason="unknown name")]),
        lambda claim: harness.driver().nack([Nack.hand_back(claim)]),
        lambda claim: harness.driver().nack([Nack.retry(claim, delay=timedelta(0), failure=FAILURE)]),
        lambda claim: harness.driver().nack([Nack.bury(claim, stop=Stop.EXHAUSTED, failure=FAILURE)]),
    ):
        (job,) = harness.claim()
        settle(job.claim)
        harness.due()
    harness.driver().retry([the_job().id], by="ann", reason="mended")
    for _ in range(2):
        harness.claim()
        harness.lapse()
        harness.driver().sweep(limit=10)
    harness.driver().retry([the_job().id])
    (job,) = harness.claim()
    harness.driver().ack([Ack(job.claim)])

    assert history() == [
        ("failure", 1, "retry"),
        ("failure", 2, "attempts-exhausted"),
        ("retry", 0, ""),
        ("failure", 1, "retry"),
        ("failure", 2, "worker-lost"),
        ("retry", 0, ""),
    ]


def test_a_failure_in_the_history_says_who_what_and_when(harness: DatabaseHarness) -> None:
    (claim,) = harness.running("k")
    harness.driver().nack([Nack.retry(claim, delay=HOUR, failure=FAILURE)])
    job, entry = the_job(), JobAttempt.objects.get()

    assert (entry.job_id, entry.worker) == (job.id, "worker")
    assert (entry.error_class, entry.message) == (FAILURE.error_class, FAILURE.text)
    assert (entry.started_at, entry.next_run_at) == (job.started_at, job.run_at)
    assert entry.finished_at is not None


def test_a_retry_in_the_history_says_who_and_why(harness: DatabaseHarness) -> None:
    job = JobFactory(state="dead")
    harness.driver().retry([job.id], by="ann", reason="the address is mended")
    entry = JobAttempt.objects.get()

    assert (entry.job_id, entry.by, entry.reason) == (job.id, "ann", "the address is mended")
    assert entry.next_run_at == the_job().run_at


def test_a_write_that_lost_leaves_no_history(harness: DatabaseHarness) -> None:
    lost = harness.running("k")
    harness.lapse()
    harness.driver().sweep(limit=10)
    before = history()
    harness.driver().nack([Nack.retry(claim, delay=HOUR, failure=FAILURE) for claim in lost])
    harness.driver().nack([Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE) for claim in lost])

    assert history() == before


def test_two_runs_settled_in_one_batch_keep_their_own_failures(harness: DatabaseHarness) -> None:
    (stale,) = harness.running("k")
    harness.lapse()
    harness.driver().sweep(limit=10)
    (ours,) = harness.claim()
    failures = {claim: Failure("E", "place", "c", text) for claim, text in ((stale, "stale"), (ours.claim, "ours"))}
    for order in (1, -1):
        nacks = [Nack.retry(claim, delay=HOUR, failure=failure) for claim, failure in failures.items()]
        harness.driver().nack(nacks[::order])

    assert the_job().last_error == "ours"
    assert JobAttempt.objects.filter(message="ours").count() == 1
    assert not JobAttempt.objects.filter(message="stale").exists()


def test_failed_jobs_count_with_the_dead_and_finished_ones_not_at_all(harness: DatabaseHarness) -> None:
    for state in ("dead", "failed", "done", "cancelled"):
        JobFactory(state=state)

    assert harness.buckets() == {"dead": 2}


@pytest.mark.parametrize("state", ["ready", "delayed", "suspended", "running", "dead"])
def test_no_count_goes_past_the_cap(harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(database_driver, "STATS_CAP", 4)
    JobFactory.create_batch(3, state=state)
    assert (harness.buckets(), harness.depth().capped) == ({state: 3}, False)
    JobFactory.create_batch(3, state=state)

    assert (harness.buckets(), harness.depth().capped) == ({state: 4}, True)


class LostConnectionError(Exception):
    """Stands for a connection that breaks between two statements."""


ENDINGS: dict[str, Callable[[DatabaseHarness, Claim], object]] = {
    "ack": lambda harness, claim: harness.driver().ack([Ack(claim)]),
    "bury": lambda harness, claim: harness.driver().nack([Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE)]),
    "sweep": lambda harness, claim: harness.driver().sweep(limit=10),
}


def breaks_at(monkeypatch: pytest.MonkeyPatch, statement: str, module: ModuleType = settlements) -> None:
    """Let the connection break before `statement`."""

    def broken(alias: str, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if name == statement:
            raise LostConnectionError
        return run(alias, name, parameters)

    monkeypatch.setattr(module, "run", broken)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_end_and_its_follower_are_one_transaction(
    harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (claim,) = harness.running("k", max_attempts=1)
    harness.enqueue("k", while_running="again")
    harness.lapse()
    with monkeypatch.context() as patched:
        breaks_at(patched, "hand_over")
        with pytest.raises(LostConnectionError):
            ENDINGS[ending](harness, claim)

    assert the_job().state == "running"
    ENDINGS[ending](harness, claim)
    assert [job.claim.id != claim.id for job in harness.claim()] == [True]


@pytest.mark.parametrize("ending", ["bury", "sweep"])
def test_a_failure_and_its_history_are_one_transaction(
    harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (claim,) = harness.running("k", max_attempts=1)
    harness.lapse()
    with monkeypatch.context() as patched:
        breaks_at(patched, "log_failures")
        with pytest.raises(LostConnectionError):
            ENDINGS[ending](harness, claim)

    assert (the_job().state, history()) == ("running", [])


def test_a_retry_and_its_history_are_one_transaction(harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory(state="dead")
    breaks_at(monkeypatch, "log_repairs", repairs)
    with pytest.raises(LostConnectionError):
        harness.driver().retry([job.id])

    assert (the_job().state, history()) == ("dead", [])


def test_time_goes_on_in_an_open_transaction(harness: DatabaseHarness) -> None:
    with harness.transaction():
        first = harness.enqueue_one("first")
        begun = Job.objects.get(pk=first.id).created_at

        def later() -> bool:
            return Job.objects.get(pk=harness.enqueue_one(str(uuid7())).id).created_at > begun

        wait_for(later, "a later enqueue is later by the database's clock")


def test_a_token_is_read_back_as_it_is_stored(harness: DatabaseHarness) -> None:
    job = JobFactory(state="running")

    assert harness.driver().ack([Ack(Claim(job.id, job.claim_token))]) == [True]
