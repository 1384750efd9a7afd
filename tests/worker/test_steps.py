"""Steps of plain bodies: recorded before they return, replayed afterwards, refused where they cannot work."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.app.models import Effect
from tests.working import declare, history, row, run_due
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.models import JobStep

pytestmark = pytest.mark.usefixtures("queue")

AT_ONCE = Retry(attempts=3, delay=0)


def leave(label: str) -> str:
    """Leave an effect, and say which."""
    Effect.objects.create(label=label, attempt=0, pid=0, detail="step")
    return label


def effects() -> list[str]:
    """Return the labels of all effects, in order."""
    return list(Effect.objects.order_by("id").values_list("label", flat=True))


@pytest.mark.parametrize("atomic", [False, True])
def test_a_recorded_step_is_not_done_again(atomic: bool) -> None:
    def body(run: Run, n: int) -> str:
        first = run.step("first", leave, "a", atomic=atomic)
        if run.attempt < 3:
            raise ValueError("not yet")
        return str(first + run.step("second", leave, "b", atomic=atomic))

    job = declare(body, retry=AT_ONCE).enqueue(n=1)
    run_due()
    assert row(job).state == "done"
    assert row(job).result == "ab"
    assert effects() == ["a", "b"]
    steps = list(
        JobStep.objects.filter(run_id=job.run_id).order_by("seq").values_list("name", "seq", "attempt", "state")
    )
    assert steps == [("first", 1, 1, "done"), ("second", 2, 3, "done")]


def test_an_atomic_step_that_fails_leaves_nothing() -> None:
    def half(label: str) -> None:
        leave(label)
        raise ValueError("half-way")

    def body(run: Run, n: int) -> None:
        run.step("half", half, "a", atomic=True)

    job = declare(body, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert row(job).state == "dead"
    assert effects() == []
    assert not JobStep.objects.exists()


def test_a_sleep_lets_go_of_the_worker_and_burns_no_attempt() -> None:
    def body(run: Run, n: int) -> int:
        run.step("before", leave, f"before-{run.attempt}")
        run.sleep("3d")
        run.step("after", leave, f"after-{run.attempt}")
        return run.attempt

    job = declare(body).enqueue(n=1)
    run_due()
    asleep = row(job)
    assert (asleep.state, asleep.attempt, asleep.claim_token) == ("suspended", 0, None)
    assert asleep.park_reason.startswith("asleep until ")
    assert history(job) == []
    run_due()
    assert row(job).state == "suspended"
    with connection.cursor() as cursor:
        past = {"sqlite": "'2001-01-01 00:00:00.000000'", "postgresql": "'2001-01-01+00'"}[connection.vendor]
        cursor.execute(f"UPDATE x_jobs SET run_at = {past}")
        cursor.execute(f"UPDATE x_job_steps SET until = {past} WHERE kind = 'sleep'")
    run_due()
    assert row(job).state == "done"
    assert row(job).result == 1
    assert effects() == ["before-1", "after-1"]
