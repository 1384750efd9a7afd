"""`drain()` runs what is due inline, the way it goes in production, and tells what became of it."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.app.models import Effect
from tests.declaring import error_of
from tests.working import age, declare, history, row, states
from ultimat3_jobs import NO_TENANT, Retry, Run, current_tenant, job, registry
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.records import Failure
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing import drain
from ultimat3_jobs.testing.outcomes import is_of
from ultimat3_jobs.testing.report import DrainReport
from ultimat3_jobs.worker.outcome import Buried, Outcome, Retrying, Succeeded

FAILURE = Failure("LookupError", "place", "cause", "text")
draining = sys.modules["ultimat3_jobs.testing.drain"]  # the name in the package is the function's

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("isolated_registry")]


def note(run: Run, n: int) -> int:
    """Leave an effect."""
    Effect.objects.create(label=str(n), attempt=run.attempt)
    return n


def fail(run: Run, n: int) -> None:
    """Leave an effect, then fail."""
    note(run, n)
    raise LookupError(f"no {n}")


def effects() -> list[str]:
    """Return the labels of the effects in their order."""
    return list(Effect.objects.order_by("pk").values_list("label", flat=True))


def names(report: DrainReport) -> list[tuple[str, int, str]]:
    """Return each attempt with its number and outcome."""
    return [(one.name, one.attempt, one.outcome) for one in report.jobs]


def test_nothing_due_is_nothing_done() -> None:
    report = drain()

    assert (report.jobs, report.counts, report.relayed, report.set_aside) == ((), {}, 0, ())


def test_staged_work_goes_all_the_way() -> None:
    handle = declare(note)
    staged = handle.enqueue(7)
    assert staged.staged
    report = drain()

    assert names(report) == [("t.job", 1, "done")]
    assert (report.relayed, report.counts, report.jobs[0].id) == (1, {"done": 1}, staged.id)
    assert effects() == ["7"]
    assert (row(staged).state, row(staged).result, row(staged).claimed_by[:6]) == ("done", 7, "drain-")
    assert OutboxEntry.objects.get().outcome == "published"


def test_a_body_runs_in_the_callers_thread_with_its_tenant() -> None:
    seen: list[Any] = []

    @job(name="t.tenant", idempotency_key="k", tenant="org")
    def body(run: Run, org: str) -> None:
        seen.append((threading.current_thread(), current_tenant(), run.tenant))

    body.enqueue("acme")
    drain()

    assert seen == [(threading.current_thread(), "acme", "acme")]
    assert current_tenant() is None


def test_what_a_body_enqueues_runs_too_and_priorities_hold() -> None:
    @job(name="t.child", idempotency_key="{n}", tenant=NO_TENANT)
    def child(run: Run, n: int) -> None:
        note(run, n)

    def parent(run: Run, n: int) -> None:
        note(run, n)
        child.using(priority=5).enqueue(n * 10)

    handle = declare(parent)
    handle.enqueue(1)
    handle.enqueue(2)
    report = drain()

    assert effects() == ["1", "10", "2", "20"]
    assert (report.counts, report.relayed) == ({"done": 4}, 4)


def test_only_the_named_queues_are_served() -> None:
    handle = declare(note)
    handle.using(queue="mail").enqueue(1)
    handle.using(queue="slow").enqueue(2)

    assert drain(queues="mail").counts == {"done": 1}
    assert drain(queues=["none", "mail"]).counts == {}
    assert drain(queues=["slow", "none"]).counts == {"done": 1}
    error_of("X_JOB_DECLARATION_INVALID", lambda: drain(queues="a,b"))


def test_the_first_error_of_a_body_is_raised_once_it_is_stored() -> None:
    handle = declare(fail, retry=Retry(attempts=1))
    first, second = handle.enqueue(1), handle.enqueue(2)

    with pytest.raises(LookupError, match="no 1") as raised:
        drain()
    assert "t.job, attempt 1 of 1" in raised.value.__notes__[0]
    assert row(first).state == "dead"
    assert "LookupError: no 1" in row(first).last_error
    assert row(second).state == "ready", "the rest stays queued"
    assert effects() == ["1"], "a failing body keeps what it wrote, as it does in a worker"


def test_errors_can_be_recorded_instead() -> None:
    handle = declare(fail, retry=Retry(attempts=2, delay="1m", jitter=False))
    failing = handle.enqueue(1)
    report = drain(raise_errors=False)

    assert names(report) == [("t.job", 1, "retrying")]
    assert [type(error) for error in report.errors] == [LookupError]
    assert "retry in 1m: attempt 1 of 2 failed" in report.jobs[0].text
    assert row(failing).state == "delayed"
    assert len(history(failing)) == 1


@pytest.mark.parametrize(("dead_letter", "outcome"), [(True, "dead"), (False, "failed")])
def test_the_last_failure_is_told_from_others(dead_letter: bool, outcome: str) -> None:
    declare(fail, retry=Retry(attempts=1, dead_letter=dead_letter)).enqueue(1)

    assert drain(raise_errors=False).counts == {outcome: 1}


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_whatever_a_body_raises_is_raised(kind: type[BaseException]) -> None:
    def body(run: Run, n: int) -> None:
        raise kind("out")

    declare(body, retry=Retry(attempts=1)).enqueue(1)
    with pytest.raises(kind, match="out"):
        drain()
    assert states() == {"dead": 1}


def test_ctrl_c_ends_a_drain_that_records_errors_too() -> None:
    def body(run: Run, n: int) -> None:
        raise KeyboardInterrupt

    declare(body).enqueue(1)
    with pytest.raises(KeyboardInterrupt):
        drain(raise_errors=False)


def test_an_unknown_name_is_raised_or_parked() -> None:
    with registry.isolated():
        declare(note).enqueue(1)
        declare(note).enqueue(2)
    error = error_of("X_DRAIN_FAILED", drain)

    assert isinstance(error, AssertionError)
    assert "t.job" in error.cause
    assert drain(raise_errors=False).counts == {"parked": 1}


def test_a_result_that_cannot_be_stored_is_raised_or_recorded() -> None:
    handle = declare(lambda run, n: object())
    handle.enqueue(1)

    assert "its result cannot be stored" in error_of("X_DRAIN_FAILED", drain).cause
    handle.enqueue(2)
    assert drain(raise_errors=False).counts == {"dead": 1}


def test_an_input_that_no_longer_fits_is_raised() -> None:
    with registry.isolated():
        job(name="t.job", idempotency_key="k", tenant=NO_TENANT)(lambda_of_text()).enqueue("one")
    declare(note)

    assert "no longer fits" in error_of("X_DRAIN_FAILED", drain).cause


def lambda_of_text() -> Any:
    """Return a body that takes text where another of its name takes a number."""

    def body(run: Run, n: str) -> None: ...

    return body


def test_work_that_cannot_be_published_is_raised_or_recorded() -> None:
    @job(name="t.keyed", idempotency_key="k", tenant=NO_TENANT)
    def body(run: Run, n: int) -> None: ...

    def reuse() -> None:
        # Both are staged before either is queued: only the relay meets the conflict.
        calls = [body.call(1), body.call(2)]
        from ultimat3_jobs.outbox.stage import stage

        stage("default", [call.request for call in calls])

    reuse()
    assert "X_JOB_KEY_REUSED" in error_of("X_DRAIN_FAILED", drain).cause
    assert drain().counts == {"done": 1}, "what was set aside before is not reported again"
    reuse()
    report = drain(raise_errors=False)
    assert (report.counts, report.relayed, len(report.set_aside)) == ({"done": 1}, 1, 1)


def test_a_claim_that_is_gone_is_lost() -> None:
    def body(run: Run, n: int) -> None:
        JobRow.objects.all().delete()

    handle = declare(body)
    handle.enqueue(1)

    assert "its claim is gone" in error_of("X_DRAIN_FAILED", drain).cause
    handle.enqueue(1)
    assert drain(raise_errors=False).counts == {"lost": 1}


def test_a_lapsed_lease_of_a_drain_changes_nothing() -> None:
    def body(run: Run, n: int) -> None:
        age(7_200, "visible_at")

    declare(body).enqueue(1)

    assert drain().counts == {"done": 1}


def test_a_job_that_enqueues_itself_for_ever_ends_in_an_error() -> None:
    def again(run: Run, n: int) -> None:
        note(run, n)
        handle.enqueue(n + 1)

    handle = declare(again)
    handle.enqueue(1)
    error = error_of("X_DRAIN_ENDLESS", lambda: drain(max_jobs=5))

    assert "5 jobs were started, and t.job is due" in error.cause
    assert effects() == ["1", "2", "3", "4", "5"]
    left = JobRow.objects.get(state="ready")
    assert (left.attempt, left.claim_token) == (0, None), "what was not started is given back"
    assert states() == {"done": 5, "ready": 1}


def test_as_many_jobs_as_may_start_are_no_error() -> None:
    declare(note).enqueue_many([{"n": 1}, {"n": 2}])

    assert drain(max_jobs=2).counts == {"done": 2}


class TestAhead:
    """Time that passes."""

    def test_what_is_due_later_stays_without_it(self) -> None:
        declare(note).using(run_after="1h").enqueue(1)

        assert drain().jobs == ()
        assert drain(ahead="59m").jobs == ()
        assert drain(ahead="2m").counts == {"done": 1}, "what has passed stays passed"

    def test_jobs_run_in_the_order_of_their_times(self) -> None:
        handle = declare(note)
        for n, delay in ((3, "3h"), (1, "1h"), (2, "2h"), (4, "4h")):
            handle.using(run_after=delay).enqueue(n)

        assert drain(ahead="3h").counts == {"done": 3}
        assert effects() == ["1", "2", "3"]
        assert drain(ahead=3_600).counts == {"done": 1}

    def test_retries_run_to_their_end(self) -> None:
        failing = declare(fail, retry=Retry(attempts=3, delay="10m", jitter=False)).enqueue(1)

        report = drain(ahead="1h", raise_errors=False)
        assert names(report) == [("t.job", 1, "retrying"), ("t.job", 2, "retrying"), ("t.job", 3, "dead")]
        assert row(failing).stop == "attempts-exhausted"

    def test_a_job_that_comes_back_runs_as_often_as_the_time_allows(self) -> None:
        def again(run: Run, n: int) -> None:
            note(run, n)
            handle.using(run_after="10m").enqueue(n + 1)

        handle = declare(again)
        handle.enqueue(1)
        drain(ahead="35m")

        assert effects() == ["1", "2", "3", "4"]

    def test_keys_are_let_go_in_time(self) -> None:
        handle = declare(note, dedupe_for="24h")
        handle.enqueue(1)
        drain()
        drain(ahead="23h")
        handle.enqueue(1)
        assert drain().jobs == ()
        drain(ahead="2h")
        handle.enqueue(1)

        assert drain().counts == {"done": 1}

    def test_other_queues_come_nearer_but_are_not_run(self) -> None:
        declare(note).using(queue="slow", run_after="1h").enqueue(1)

        assert drain(queues="mail", ahead="2h").jobs == ()
        assert drain().counts == {"done": 1}

    def test_time_does_not_go_back(self) -> None:
        with pytest.raises(ValueError, match="past"):
            drain(ahead=-1)
        with pytest.raises(ValueError, match="soon"):
            drain(ahead="soon")

    def test_the_clock_is_the_databases(self) -> None:
        from django.utils import timezone

        handed = declare(note).using(run_after=timedelta(minutes=1)).enqueue(1)
        drain()
        due = row(handed).run_at
        drain(ahead="30s")

        assert due - row(handed).run_at == timedelta(seconds=30)
        assert row(handed).run_at - timezone.now() < timedelta(seconds=31)


def test_a_park_is_looked_at_again_when_its_time_came() -> None:
    with registry.isolated():
        declare(note).enqueue(1)
    drain(raise_errors=False)
    declare(note)

    assert drain().jobs == ()
    assert drain(ahead="61s").counts == {"done": 1}


@pytest.mark.parametrize(
    ("error", "outcome", "expected"),
    [
        (LookupError(), Buried(FAILURE, Stop.TERMINAL, dead_letter=True), True),
        (LookupError(), Retrying(FAILURE, timedelta(0)), True),
        (SystemExit(), Retrying(FAILURE, timedelta(0)), False),
        (LookupError(), Succeeded(None), False),
        (None, Retrying(FAILURE, timedelta(0)), False),
    ],
)
def test_only_what_failed_an_attempt_is_its_error(
    error: BaseException | None, outcome: Outcome, expected: bool
) -> None:
    """What else leaves a body is a signal of the worker's own: the attempt ended as its outcome says."""
    assert is_of(error, outcome) is expected


@pytest.mark.usefixtures("queue")
class TestWithoutATransaction:
    """In a `TransactionTestCase`, in a shell: whatever goes through is committed, as a worker would."""

    pytestmark = pytest.mark.django_db(transaction=True)

    def test_it_works_the_same(self) -> None:
        handle = declare(note)
        assert not handle.enqueue(1).staged
        handle.using(run_after="1h").enqueue(2)

        assert drain(ahead="1h").counts == {"done": 2}
        assert not connection.in_atomic_block

    def test_what_was_not_started_is_given_back(self) -> None:
        handle = declare(note)
        handle.enqueue(1)
        error_of("X_DRAIN_ENDLESS", lambda: drain(max_jobs=0))

        assert states() == {"ready": 1}
        assert JobRow.objects.get().attempt == 0
