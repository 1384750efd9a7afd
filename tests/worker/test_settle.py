"""Outcomes become rows: fenced on the claim, written again where the database failed, never turned into another."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction

from tests.working import Failing, age, history, row, run_due, states
from ultimat3_jobs import NO_TENANT, Retry, Run, job
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.records import Claim, ClaimedJob, Failure, Nack, QueueSelection, Suspension
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.events import event
from ultimat3_jobs.worker.outcome import Buried, Outcome, Parked, Retrying, Succeeded, Suspending
from ultimat3_jobs.worker.settle import settle, settle_once

pytestmark = pytest.mark.usefixtures("queue")

FAILURE = Failure("shop.DeclinedError", "shop.jobs.ship", "c" * 64, "declined\nverdict: as the test says")
RETRYING = Retrying(FAILURE, timedelta(minutes=5))
BURIED = Buried(FAILURE, Stop.EXHAUSTED, dead_letter=True)
PARKED = Parked("unknown name", timedelta(minutes=1))
WAITING = Suspending(Suspension(reason="waits for paid", event="paid", poll=3_600.0))
OUTCOMES = [Succeeded("1"), RETRYING, BURIED, PARKED, WAITING]


def a_claim() -> ClaimedJob:
    """Queue a job and claim it."""

    @job(name="t.ship", idempotency_key="key", tenant="org")
    def ship(run: Run, org: str) -> None: ...

    ship.enqueue("acme")
    return get_driver().claim(worker="w1", limit=1, lease=timedelta(seconds=30), queues=QueueSelection())[0]


def settled(one: ClaimedJob, outcome: Outcome, *, patience: float = 10) -> bool:
    """Settle with the process's driver."""
    return settle(get_driver(), one, outcome, patience=timedelta(seconds=patience))


def seconds_from_now(moment: datetime | None) -> float:
    """Return how far off a moment is."""
    assert moment is not None
    return (moment - datetime.now(UTC)).total_seconds()


def test_success_ends_the_job_with_its_result() -> None:
    one = a_claim()

    assert settled(one, Succeeded('{"shipped":true}'))

    job_row = row(one.claim.id)
    assert (job_row.state, job_row.result, job_row.attempt) == ("done", {"shipped": True}, 1)
    assert job_row.finished_at is not None
    assert job_row.visible_at is None
    assert history(one.claim.id) == []


def test_a_failure_that_may_try_again_is_delayed_and_kept() -> None:
    one = a_claim()

    assert settled(one, RETRYING)

    job_row = row(one.claim.id)
    assert (job_row.state, job_row.stop, job_row.attempt) == ("delayed", "", 1)
    assert 280 < seconds_from_now(job_row.run_at) < 305
    assert job_row.last_error == FAILURE.text
    assert (job_row.error_class, job_row.error_place, job_row.cause) == (
        FAILURE.error_class,
        FAILURE.error_place,
        FAILURE.cause,
    )
    (kept,) = history(one.claim.id)
    assert (kept.kind, kept.attempt, kept.worker, kept.decision) == ("failure", 1, "w1", "retry")
    assert (kept.error_class, kept.message) == (FAILURE.error_class, FAILURE.text)
    assert kept.next_run_at == job_row.run_at
    assert kept.started_at is not None
    assert kept.finished_at is not None


@pytest.mark.parametrize(("dead_letter", "state"), [(True, "dead"), (False, "failed")])
def test_a_last_failure_ends_the_job_as_its_policy_keeps_it(dead_letter: bool, state: str) -> None:
    one = a_claim()

    assert settled(one, Buried(FAILURE, Stop.TERMINAL, dead_letter))

    job_row = row(one.claim.id)
    assert (job_row.state, job_row.stop, job_row.attempt) == (state, "terminal", 1)
    assert job_row.finished_at is not None
    assert [(kept.decision, kept.next_run_at) for kept in history(one.claim.id)] == [("terminal", None)]


def test_a_park_gives_the_attempt_back_and_keeps_no_failure() -> None:
    one = a_claim()

    assert settled(one, Parked("no job of that name", timedelta(minutes=2)))

    job_row = row(one.claim.id)
    assert (job_row.state, job_row.attempt, job_row.parks) == ("suspended", 0, 1)
    assert job_row.park_reason == "no job of that name"
    assert 100 < seconds_from_now(job_row.run_at) < 125
    assert job_row.last_error == ""
    assert history(one.claim.id) == []


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_under_a_token_that_is_no_longer_the_rows_changes_nothing_and_says_so(
    outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    one = a_claim()
    before = JobRow.objects.values().get()
    late = ClaimedJob(
        **{name: getattr(one, name) for name in one.__struct_fields__} | {"claim": Claim(one.claim.id, uuid4())}
    )

    assert not settled(late, outcome)

    assert JobRow.objects.values().get() == before
    assert history(one.claim.id) == []
    (record,) = [r for r in caplog.records if r.message.startswith("jobs.lease.lost")]
    assert vars(record)["fields"]["at"] == "settle"


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_that_cannot_be_written_at_first_is_written_as_it_is(
    outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    one = a_claim()

    with connection.execute_wrapper(Failing(2)):
        assert settled(one, outcome)

    state = {Succeeded: "done", Retrying: "delayed", Buried: "dead"}.get(type(outcome), "suspended")
    assert row(one.claim.id).state == state
    assert len(history(one.claim.id)) == (1 if isinstance(outcome, Retrying | Buried) else 0)
    assert sum(r.message.startswith("jobs.worker.settle-retried") for r in caplog.records) == 2


@pytest.mark.parametrize("outcome", [Succeeded("1"), BURIED], ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_whose_answer_was_lost_is_recognised_as_ours(outcome: Outcome) -> None:
    one = a_claim()

    with connection.execute_wrapper(Failing(1, lambda sql: "UPDATE x_jobs" in sql, after=True)):
        assert settled(one, outcome)

    assert row(one.claim.id).state in ("done", "dead")
    assert len(history(one.claim.id)) <= 1


def test_an_outcome_that_cannot_be_written_at_all_is_given_up_and_never_becomes_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = a_claim()

    with connection.execute_wrapper(Failing(1_000)):
        assert not settled(one, Succeeded("1"), patience=0.2)

    job_row = row(one.claim.id)
    assert (job_row.state, job_row.attempt, job_row.last_error) == ("running", 1, "")
    assert history(one.claim.id) == []
    (record,) = [r for r in caplog.records if r.message.startswith("jobs.worker.settle-failed")]
    assert record.levelno == logging.ERROR
    # It is still ours, past its lease too, until a sweep takes it.
    age(60, "visible_at")
    assert settled(one, Succeeded("1"))
    assert row(one.claim.id).state == "done"


@pytest.mark.postgresql_only(reason="SQLite has no connection that a server can cut")
def test_a_job_whose_connection_was_cut_while_it_ran_is_done() -> None:
    @job(name="t.cut", idempotency_key="key", tenant=NO_TENANT, retry=Retry(attempts=1))
    def cut(run: Run) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        finally:
            other.close()
        return "worked"

    queued = cut.enqueue()
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).result, row(queued).attempt) == ("done", "worked", 1)
    assert history(queued) == []


def test_a_job_of_which_every_statement_fails_for_a_while_after_its_body_is_done_once() -> None:
    ran = []

    @job(name="t.flaky", idempotency_key="key", tenant=NO_TENANT)
    def flaky(run: Run) -> None:
        ran.append(run.attempt)
        connection.execute_wrappers.append(Failing(3))

    flaky.enqueue()
    run_due(concurrency=1)

    assert ran == [1]
    assert states() == {"done": 1}


def test_a_run_that_waits_looks_for_its_event_once_it_is_parked() -> None:
    one = a_claim()
    get_driver().publish([event()])

    assert settled(one, WAITING)
    assert row(one.claim.id).state == "ready"


def test_a_run_that_waits_in_vain_stays_parked() -> None:
    one = a_claim()

    assert settled(one, WAITING)
    assert row(one.claim.id).state == "suspended"


def test_a_run_that_does_not_wait_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = a_claim()
    monkeypatch.setattr(DatabaseDriver, "look_again", None)

    assert settled(one, Suspending(Suspension(reason="sleeps", delay=60.0)))


def test_a_run_whose_park_was_answered_too_late_looks_for_its_event_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    one = a_claim()
    nack = DatabaseDriver.nack
    answers: list[object] = []

    def lose_the_first_answer(self: DatabaseDriver, given: list[Nack]) -> list[bool]:
        answers.append(landed := nack(self, given))
        if len(answers) == 1:
            get_driver().publish([event()])
            raise OperationalError("the answer is lost")
        return landed

    monkeypatch.setattr(DatabaseDriver, "nack", lose_the_first_answer)
    settled(one, WAITING)

    assert answers == [[True], [False]]
    assert row(one.claim.id).state == "ready"


def test_a_look_that_fails_leaves_the_run_parked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = a_claim()
    nacks: list[object] = []
    nack = DatabaseDriver.nack

    def count(self: DatabaseDriver, given: list[Nack]) -> list[bool]:
        nacks.append(given)
        return nack(self, given)

    def fail(*_: object) -> int:
        raise OperationalError("gone")

    monkeypatch.setattr(DatabaseDriver, "nack", count)
    monkeypatch.setattr(DatabaseDriver, "look_again", fail)

    assert settled(one, WAITING)
    assert len(nacks) == 1, "what is settled is not settled again"
    assert row(one.claim.id).state == "suspended"
    assert [one.event for one in caplog.records if hasattr(one, "event")] == ["jobs.event.look-failed"]


def test_in_a_callers_transaction_it_looks_there_and_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    one = a_claim()
    get_driver().publish([event()])
    with transaction.atomic():
        assert settle_once(get_driver(), one, WAITING)
        assert row(one.claim.id).state == "ready"

    def fail(*_: object) -> int:
        raise OperationalError("gone")

    two = get_driver().claim(worker="w2", limit=1, lease=timedelta(seconds=30), queues=QueueSelection())[0]
    monkeypatch.setattr(DatabaseDriver, "look_again", fail)
    with pytest.raises(OperationalError):
        settle_once(get_driver(), two, WAITING)
