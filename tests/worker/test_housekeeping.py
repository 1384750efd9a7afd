"""What any worker does for all: due jobs become ready, lapsed ones are taken from their workers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.working import age, history, row, states
from ultimat3_jobs import NO_TENANT, Retry, Run, job
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.records import ClaimedJob, QueueSelection
from ultimat3_jobs.worker import housekeeping
from ultimat3_jobs.worker.housekeeping import Housekeeping

pytestmark = pytest.mark.usefixtures("queue")


class Bell:
    """Counts how often it is rung."""

    rings = 0

    def ring(self) -> None:
        """Ring once."""
        self.rings += 1


class Eager(DatabaseDriver):
    """Writers that do not wait for one another, as on PostgreSQL."""

    one_writer = False


class TakingTurns(DatabaseDriver):
    """Writers that wait for one another, as on SQLite."""

    one_writer = True


def keeping(bell: Bell, *, sweep_every: float = 3_600, driver: type[DatabaseDriver] = Eager) -> Housekeeping:
    """Return a housekeeping."""
    return Housekeeping(driver(), sweep_every=sweep_every, on_ready=bell.ring)


def enqueue(count: int, *, run_after: str = "0s") -> None:
    """Queue jobs."""

    @job(name="t.kept", idempotency_key="{n}", tenant=NO_TENANT)
    def kept(run: Run, n: int) -> None: ...

    kept.using(run_after=run_after).enqueue_many([{"n": n} for n in range(count)])


def claimed(count: int) -> list[ClaimedJob]:
    """Claim jobs for a worker that then goes silent."""
    return get_driver().claim(worker="w1", limit=count, lease=timedelta(seconds=30), queues=QueueSelection())


def test_due_jobs_become_ready_and_wake_the_worker() -> None:
    enqueue(3, run_after="1h")
    bell = Bell()
    house = keeping(bell)
    assert house.tidy() is False
    assert (bell.rings, states()) == (0, {"delayed": 3})

    age(3_601, "run_at")

    assert house.tidy() is False
    assert (bell.rings, states()) == (1, {"ready": 3})


def test_lapsed_jobs_are_taken_from_their_workers_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    enqueue(2)
    lapsed = claimed(1)[0]
    age(31, "visible_at")
    claimed(1)
    bell = Bell()

    keeping(bell).tidy()

    assert (bell.rings, states()) == (1, {"ready": 1, "running": 1})
    job_row = row(lapsed.claim.id)
    assert (job_row.state, job_row.attempt, job_row.lapses, job_row.claim_token) == ("ready", 1, 1, None)
    assert [(kept.decision, kept.worker) for kept in history(lapsed.claim.id)] == [("retry", "w1")]
    (record,) = [r for r in caplog.records if r.message.startswith("jobs.lease.swept")]
    assert vars(record)["fields"] == {"job": lapsed.claim.id, "name": "t.kept", "worker": "w1", "state": "ready"}


def test_sweeps_come_at_their_interval_or_when_asked_for() -> None:
    enqueue(3)
    house = keeping(Bell(), sweep_every=3_600)
    house.tidy()
    claimed(3)
    age(31, "visible_at")

    house.tidy()
    assert states() == {"running": 3}
    house.tidy(last=True)
    assert states() == {"ready": 3}


def test_a_pass_that_met_its_bound_says_that_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "BATCH", 2)
    enqueue(5)
    claimed(5)
    age(31, "visible_at")
    house = keeping(Bell())

    assert [house.tidy(), house.tidy(), house.tidy()] == [True, True, False]
    assert states() == {"ready": 5}


def test_promotion_goes_on_in_bounded_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "BATCH", 2)
    enqueue(5, run_after="1h")
    age(3_601, "run_at")
    house = keeping(Bell())

    assert [house.tidy(), house.tidy(), house.tidy()] == [True, True, False]
    assert states() == {"ready": 5}


def test_the_driver_of_this_database_says_whether_its_writers_take_turns(vendor: str) -> None:
    assert get_driver().one_writer is (vendor == "sqlite")


def test_where_writers_take_turns_a_lease_is_taken_that_two_sweeps_saw_lapsed() -> None:
    enqueue(2)
    claimed(2)
    age(31, "visible_at")
    house = keeping(Bell(), sweep_every=0, driver=TakingTurns)

    house.tidy()
    assert states() == {"running": 2}
    house.tidy()
    assert states() == {"ready": 2}


def test_where_writers_take_turns_a_lease_that_was_renewed_in_between_is_left_even_if_it_lapsed_again() -> None:
    enqueue(2)
    late, silent = claimed(2)
    age(31, "visible_at")
    house = keeping(Bell(), sweep_every=0, driver=TakingTurns)
    house.tidy()
    # Not a second ago, which is where the lease already ends where all of this falls in one tick of the clock.
    get_driver().heartbeat([late.claim], lease=timedelta(seconds=-0.5))

    house.tidy()

    assert (row(late.claim.id).state, row(silent.claim.id).state) == ("running", "ready")
    house.tidy()
    assert states() == {"ready": 2}


def test_where_writers_take_turns_no_lease_is_taken_right_after_a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(1)
    claimed(1)
    age(31, "visible_at")
    house = keeping(Bell(), sweep_every=0, driver=TakingTurns)
    house.tidy()
    with monkeypatch.context() as patch:
        patch.setattr(housekeeping, "LONG_WAIT", -1.0)
        house.tidy()
    assert states() == {"running": 1}

    house.tidy()
    assert states() == {"ready": 1}


def test_where_writers_take_turns_many_lapsed_ones_are_taken_in_bounded_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "BATCH", 2)
    enqueue(5)
    claimed(5)
    age(31, "visible_at")
    house = keeping(Bell(), sweep_every=0, driver=TakingTurns)

    assert [house.tidy() for _ in range(4)] == [False, True, True, False]
    assert states() == {"ready": 5}


def test_a_last_pass_does_not_wait_for_another() -> None:
    enqueue(1)
    claimed(1)
    age(31, "visible_at")

    keeping(Bell(), driver=TakingTurns).tidy(last=True)

    assert states() == {"ready": 1}


def test_a_key_that_was_asked_for_while_its_job_lapsed_holds_up_no_other() -> None:
    enqueue(21)
    claimed(21)
    age(31, "visible_at")
    enqueue(1)  # under the key of one of them: joins it, since a key is held while its job is live

    keeping(Bell()).tidy()

    assert states() == {"ready": 21}


@pytest.mark.parametrize(("attempts", "state"), [(2, "ready"), (1, "dead")])
def test_a_job_that_lapsed_on_its_last_attempt_is_dead_with_the_reason(attempts: int, state: str) -> None:
    @job(name="t.fatal", idempotency_key="key", tenant=NO_TENANT, retry=Retry(attempts=attempts))
    def fatal(run: Run) -> None: ...

    queued = fatal.enqueue()
    (one,) = claimed(1)
    assert get_driver().begin([one.claim]) == [True]
    age(31, "visible_at")

    keeping(Bell()).tidy()

    job_row = row(queued)
    assert (job_row.state, job_row.attempt) == (state, 1)
    assert job_row.error_class == "WorkerLost"
    if state == "dead":
        assert job_row.stop == "worker-lost"
        assert job_row.last_error.endswith("verdict: dead (worker-lost): worker lost on the final attempt")
