"""Two connections enqueue one key inside open transactions: neither is aborted, and one job represents the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from tests.app.models import Organization
from tests.conftest import InThreads
from tests.locks import waiting_for_this_session
from tests.processes import wait_for
from ultimat3_jobs import NO_TENANT, EnqueueResult, Job, Run, job
from ultimat3_jobs.errors import KeyReused
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all

pytestmark = pytest.mark.usefixtures("isolated_registry")

ONE_WRITER = "SQLite lets one transaction write at a time: a second cannot be open beside it"
TIMEOUT = 30.0  # seconds


@pytest.fixture
def count() -> Job[..., None]:
    @job(name="tests.count", idempotency_key="count", tenant=NO_TENANT)
    def count(run: Run, n: int = 0) -> None: ...

    return count


@pytest.fixture
def direct(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}


def another_waits_for_this_one() -> bool:
    """Whether a lock of this connection keeps another waiting. SQLite shows nothing of it."""
    return connection.vendor == "sqlite" or waiting_for_this_session() > 0


class FirstThenSecond:
    """Two callers of one key. The second begins once the first has enqueued; the first ends once the second waits."""

    def __init__(self, enqueue: Callable[[], EnqueueResult]) -> None:
        self._enqueue = enqueue
        self.enqueued = threading.Event()
        self.begun = threading.Event()

    def first(self, *, undo: bool = False) -> EnqueueResult:
        with transaction.atomic():
            Organization.objects.create(name="first")
            result = self._enqueue()
            self.enqueued.set()
            assert self.begun.wait(TIMEOUT)
            wait_for(another_waits_for_this_one, "the second waits for the first")
            transaction.set_rollback(undo)
        return result

    def second(self) -> EnqueueResult:
        assert self.enqueued.wait(TIMEOUT)
        self.begun.set()
        with transaction.atomic():
            Organization.objects.create(name="second")
            result = self._enqueue()
            assert Organization.objects.filter(name="second").exists()  # the transaction still answers
            Organization.objects.create(name="second, after its enqueue")
        return result


@pytest.mark.postgresql_only(reason=ONE_WRITER)
def test_staging_never_waits_for_a_key(count: Job[..., None], in_threads: InThreads) -> None:
    both_staged = threading.Barrier(2, timeout=TIMEOUT)
    both_read = threading.Barrier(2, timeout=TIMEOUT)

    def enqueue(name: str) -> EnqueueResult:
        with transaction.atomic():
            result = count.enqueue()
            both_staged.wait()  # neither has committed, and neither waits
            Organization.objects.create(name=name)
            both_read.wait()
        return result

    one, other = in_threads(lambda: enqueue("one"), lambda: enqueue("other"))
    relay_all()

    assert (one.staged, other.staged) == (True, True)
    assert one.id != other.id
    assert Organization.objects.count() == 2
    job_id = JobRow.objects.get().id
    assert set(OutboxEntry.objects.values_list("job_id", "outcome")) == {(job_id, "published"), (job_id, "deduped")}


@pytest.mark.postgresql_only(reason=ONE_WRITER)
def test_staging_never_waits_for_a_key_that_is_taken_in_an_open_transaction(
    count: Job[..., None], in_threads: InThreads, settings: Any
) -> None:
    queued, staged = threading.Event(), threading.Event()

    def queue() -> EnqueueResult:
        settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}
        with transaction.atomic():
            result = count.enqueue()
            settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "auto"}}
            queued.set()
            assert staged.wait(TIMEOUT)
        return result

    def stage() -> EnqueueResult:
        assert queued.wait(TIMEOUT)
        with transaction.atomic():
            result = count.enqueue()
            Organization.objects.create(name="after the enqueue")
            staged.set()
        return result

    first, second = in_threads(queue, stage)
    relay_all()

    assert (first.staged, second.staged) == (False, True)
    assert JobRow.objects.get().id == OutboxEntry.objects.get().job_id == first.id


def test_two_transactions_that_stage_one_key_both_commit(count: Job[..., None], in_threads: InThreads) -> None:
    def enqueue(name: str) -> EnqueueResult:
        with transaction.atomic():
            Organization.objects.create(name=name)
            result = count.enqueue()
            assert Organization.objects.filter(name=name).exists()
        return result

    in_threads(*[lambda n=n: enqueue(f"caller {n}") for n in range(4)])  # type: ignore[misc]
    relay_all()

    assert Organization.objects.count() == 4
    assert JobRow.objects.count() == 1
    assert sorted(OutboxEntry.objects.values_list("outcome", flat=True)) == ["deduped"] * 3 + ["published"]


@pytest.mark.usefixtures("direct")
def test_queued_directly_the_second_joins_the_first_that_commits(count: Job[..., None], in_threads: InThreads) -> None:
    callers = FirstThenSecond(count.enqueue)

    first, second = in_threads(callers.first, callers.second)

    assert first.deduped is False
    assert second == EnqueueResult(first.id, first.run_id, deduped=True, staged=False)
    assert JobRow.objects.get().id == first.id
    assert Organization.objects.count() == 3


@pytest.mark.usefixtures("direct")
def test_queued_directly_the_second_takes_the_place_of_a_first_that_rolls_back(
    count: Job[..., None], in_threads: InThreads
) -> None:
    callers = FirstThenSecond(count.enqueue)

    first, second = in_threads(lambda: callers.first(undo=True), callers.second)

    assert first.deduped is False
    assert second.deduped is False
    assert JobRow.objects.get().id == second.id != first.id
    assert set(Organization.objects.values_list("name", flat=True)) == {"second", "second, after its enqueue"}


@pytest.mark.usefixtures("direct")
def test_queued_directly_a_second_with_another_input_is_refused_and_its_transaction_goes_on(
    count: Job[..., None], in_threads: InThreads
) -> None:
    callers = FirstThenSecond(count.enqueue)

    def second() -> str:
        assert callers.enqueued.wait(TIMEOUT)
        callers.begun.set()
        with transaction.atomic():
            with pytest.raises(KeyReused):
                count.enqueue(n=1)
            Organization.objects.create(name="after the refusal")
        return "committed"

    first, outcome = in_threads(callers.first, second)

    assert outcome == "committed"
    assert JobRow.objects.get().id == first.id
    assert set(Organization.objects.values_list("name", flat=True)) == {"first", "after the refusal"}


def test_outside_a_transaction_many_callers_of_one_key_make_one_job(
    count: Job[..., None], in_threads: InThreads
) -> None:
    together = threading.Barrier(8, timeout=TIMEOUT)

    def enqueue() -> EnqueueResult:
        together.wait()
        return count.enqueue()

    results = in_threads(*[enqueue] * 8)

    assert {result.id for result in results} == {JobRow.objects.get().id}
    assert sorted(result.deduped for result in results) == [False] + [True] * 7


@pytest.mark.postgresql_only(reason=ONE_WRITER)
def test_a_batch_that_deadlocks_with_a_callers_transaction_starts_over(in_threads: InThreads, settings: Any) -> None:
    @job(name="tests.number", idempotency_key="{n}", tenant=NO_TENANT)
    def number(run: Run, n: int) -> None: ...

    batch_inside = threading.Event()
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}

    def takes_keys_out_of_order() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            # The other one is to be the victim: it looks for a deadlock long before this one does.
            cursor.execute("SET LOCAL deadlock_timeout = '1min'")
            number.enqueue(n=2)
            batch_inside.set()
            wait_for(another_waits_for_this_one, "the batch waits for the second key")
            number.enqueue(n=1)

    def batch() -> list[EnqueueResult]:
        assert batch_inside.wait(TIMEOUT)
        return number.enqueue_many([{"n": 1}, {"n": 2}])

    _, results = in_threads(takes_keys_out_of_order, batch)

    assert [result.deduped for result in results] == [True, True]
    assert JobRow.objects.filter(name="tests.number").count() == 2
