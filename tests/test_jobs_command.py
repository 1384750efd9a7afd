"""`manage.py jobs retry`: one new start for each dead letter, its history kept; all else is refused with the reason."""

from __future__ import annotations

import io
import re
import shlex
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from tests.processes import Processes, wait_for
from tests.working import history, row, run_due
from ultimat3_jobs import NO_TENANT, EnqueueResult, Retry, Run, job
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.management.reporting import who
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.states import State

pytestmark = pytest.mark.usefixtures("queue")

fails = [True]


def declare(*, dead_letter: bool = True) -> None:
    """Declare a job that fails as long as it is told to."""
    fails[:] = [True]

    @job(name="t.order", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1, dead_letter=dead_letter))
    def order(run: Run, n: int) -> str:
        if fails[0]:
            raise ValueError("declined")
        return "worked"

    declared[:] = [order]


declared = []


def dead(n: int, *, dead_letter: bool = True) -> EnqueueResult:
    """Return a job that failed for the last time."""
    declare(dead_letter=dead_letter)
    queued: EnqueueResult = declared[0].enqueue(n)
    run_due(concurrency=1)
    return queued


def retry(*ids: UUID, reason: str = "") -> str:
    """Run the command, and return what it printed."""
    out = io.StringIO()
    call_command("jobs", "retry", *map(str, ids), "--reason", reason, stdout=out)
    return out.getvalue()


def refused(*ids: UUID) -> str:
    """Expect a refusal, and return it."""
    with pytest.raises(CommandError) as raised:
        retry(*ids)
    return str(raised.value)


def executed(refusal: str, processes: Processes) -> str:
    """Run the command that a refusal names as its fix, as it stands, and return its output."""
    (fix,) = [line.strip().removeprefix("fix: ") for line in refusal.splitlines() if "fix:" in line]
    python, *command = shlex.split(fix, comments=True)
    assert python == "python"
    child = processes.start(*command)
    assert child.wait() == 0, child.output()
    return child.output()


@pytest.mark.parametrize(("dead_letter", "state"), [(True, "dead"), (False, "failed")])
def test_a_dead_letter_starts_again_with_its_attempts_anew_and_its_history_kept(dead_letter: bool, state: str) -> None:
    queued = dead(1, dead_letter=dead_letter)
    assert (row(queued).state, row(queued).attempt) == (state, 1)

    assert retry(queued.id, reason="the service is back") == f"{queued.id} retried\n"

    assert (row(queued).state, row(queued).attempt, row(queued).stop) == ("ready", 0, "")
    fails[0] = False
    run_due(concurrency=1)
    assert (row(queued).state, row(queued).attempt, row(queued).result) == ("done", 1, "worked")
    failure, retried = history(queued)
    assert (failure.kind, failure.attempt, failure.decision) == ("failure", 1, "attempts-exhausted")
    assert (retried.kind, retried.by, retried.reason) == ("retry", who("manage.py jobs"), "the service is back")


def test_one_that_fails_again_is_dead_again() -> None:
    queued = dead(1)
    retry(queued.id)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).attempt) == ("dead", 1)
    assert [(kept.kind, kept.attempt) for kept in history(queued)] == [("failure", 1), ("retry", 0), ("failure", 1)]
    retry(queued.id)
    assert row(queued).state == "ready"


@pytest.mark.parametrize("state", [state for state in State if state not in ("dead", "failed")])
def test_what_is_not_dead_is_refused_with_the_reason_twice_and_left_as_it_is(state: State) -> None:
    declare()
    queued = declared[0].enqueue(1)
    JobRow.objects.filter(pk=queued.id).update(state=state)
    before = JobRow.objects.values().get()

    for _ in range(2):
        refusal = refused(queued.id)
        assert f"X_JOB_NOT_RETRYABLE: job {queued.id} is {state}; only dead and failed jobs can be retried" in refusal
        assert "fix: " in refusal

    assert JobRow.objects.values().get() == before
    assert history(queued) == []


def test_a_dead_letter_that_is_retried_twice_starts_once() -> None:
    queued = dead(1)

    refusal = refused(queued.id, queued.id)

    assert f"job {queued.id} is ready" in refusal
    assert [kept.kind for kept in history(queued)] == ["failure", "retry"]
    assert (row(queued).state, row(queued).attempt) == ("ready", 0)


def test_an_id_that_nothing_has_is_refused() -> None:
    missing = uuid4()

    assert f"X_JOB_UNKNOWN: there is no job {missing}" in refused(missing)


def test_text_that_is_no_id_is_refused() -> None:
    with pytest.raises(CommandError, match="X_JOB_UNKNOWN: 'order-1' is not an id, nor at least 8 of its first digits"):
        call_command("jobs", "retry", "order-1")


def test_those_that_can_be_retried_are_although_others_are_refused() -> None:
    first, second, missing = dead(1), dead(2), uuid4()

    refusal = refused(first.id, missing, second.id)

    assert str(missing) in refusal
    assert [row(one).state for one in (first, second)] == ["ready", "ready"]


def test_the_fix_for_a_running_job_is_a_command_that_retries_it_once_it_is_dead(processes: Processes) -> None:
    declare()
    queued = declared[0].enqueue(1)
    (claimed,) = get_driver().claim(worker="w1", limit=1, lease=timedelta(seconds=-1), queues=QueueSelection())
    assert get_driver().begin([claimed.claim]) == [True]
    refusal = refused(queued.id)
    assert f"job {queued.id} is running" in refusal
    get_driver().sweep(limit=10)
    assert row(queued).state == "dead"

    assert f"{queued.id} retried" in executed(refusal, processes)
    assert row(queued).state == "ready"


def test_a_job_whose_key_another_has_taken_is_refused_until_that_one_has_ended(processes: Processes) -> None:
    queued = dead(1)
    fails[0] = False
    successor = declared[0].enqueue(1)
    assert successor.id != queued.id

    refusal = refused(queued.id)

    assert f"X_JOB_NOT_RETRYABLE: job {queued.id} gave up its key when it died" in refusal
    assert row(queued).state == "dead"
    run_due(concurrency=1)
    assert row(successor).state == "done"
    assert f"{queued.id} retried" in executed(refusal, processes)
    assert row(queued).state == "ready"


@pytest.mark.parametrize(
    ("arguments", "done"),
    [([], ["reserve", "charge"]), (["--from-step", "charge"], ["reserve", "charge", "charge"])],
    ids=["as it stands", "from a step"],
)
def test_a_retried_job_does_again_what_was_forgotten_and_nothing_else(arguments: list[str], done: list[str]) -> None:
    fails[:] = [True]
    did: list[str] = []

    @job(name="t.pipeline", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1))
    def pipeline(run: Run, n: int) -> None:
        for name in ("reserve", "charge"):
            run.step(name, did.append, name)
        if fails[0]:
            raise ValueError("declined")

    queued = pipeline.enqueue(n=1)
    run_due(concurrency=1)
    assert (row(queued).state, did) == ("dead", ["reserve", "charge"])
    fails[:] = [False]

    call_command("jobs", "retry", str(queued.id), *arguments, stdout=io.StringIO())
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).attempt, did) == ("done", 1, done)


def test_the_fix_of_an_event_that_did_not_come_waits_for_it_anew() -> None:
    @job(name="t.patient", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1))
    def patient(run: Run, n: int) -> None:
        run.wait_for_event('the reviewer\'s "yes"', "review.done", timeout=0.05, required=True)

    queued = patient.enqueue(n=1)

    def is_dead() -> bool:
        run_due(concurrency=1)
        return row(queued).state == "dead"

    wait_for(is_dead, "the wait has timed out")
    (fix,) = re.findall(r"python manage.py jobs (retry .*?)  #", row(queued).last_error)

    call_command("jobs", *shlex.split(fix), stdout=io.StringIO())

    assert row(queued).state == "ready"
    assert not JobStep.objects.filter(run_id=queued.run_id).exists()
