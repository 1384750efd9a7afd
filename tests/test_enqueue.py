"""Where an enqueue goes: staged in the open transaction, queued where none is open, or as the settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from tests.app.models import Organization
from tests.declaring import refused, written
from ultimat3_jobs import NO_TENANT, EnqueueResult, Job, Run, job
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox import admission
from ultimat3_jobs.outbox.relay import relay_all

pytestmark = pytest.mark.usefixtures("isolated_registry", "outside")


class UndoneError(Exception):
    """Rolls a block back."""


@pytest.fixture
def greet() -> Job[..., None]:
    @job(name="tests.greet", idempotency_key="greet:{name}", tenant=NO_TENANT)
    def greet(run: Run, name: str = "ada") -> None: ...

    return greet


@pytest.fixture
def mode(settings: Any) -> Any:
    def use(mode: str) -> None:
        settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": mode}}

    return use


def test_outside_a_transaction_the_job_is_queued(greet: Job[..., None]) -> None:
    result = greet.enqueue("eve")

    row = JobRow.objects.get()
    assert result == EnqueueResult(id=row.id, run_id=row.run_id, deduped=False, staged=False)
    assert (row.id, row.name, row.queue, row.state) == (row.run_id, "tests.greet", "default", "ready")
    assert (row.input, row.idempotency_key, row.tenant_id) == ({"name": "eve"}, "greet:eve", None)
    assert (row.attempt, row.max_attempts, row.priority, row.enqueued_by) == (0, 3, 0, "")
    assert row.run_at <= row.updated_at
    assert written() == (1, 0)


def test_inside_a_transaction_it_is_staged_and_becomes_the_job_of_the_same_id(greet: Job[..., None]) -> None:
    with transaction.atomic():
        result = greet.using(priority=7, queue="slow", run_after="1h").enqueue("eve")
        assert written() == (0, 1)

    staged = OutboxEntry.objects.get()
    assert result == EnqueueResult(id=staged.id, run_id=staged.id, deduped=None, staged=True)
    assert staged.outcome is None
    relay_all()
    row = JobRow.objects.get()
    assert (row.id, row.run_id, row.priority, row.queue, row.state) == (staged.id, staged.id, 7, "slow", "delayed")
    assert row.input == {"name": "eve"}


def test_what_is_rolled_back_was_never_enqueued(greet: Job[..., None]) -> None:
    with transaction.atomic():
        greet.enqueue("stays")
        with pytest.raises(UndoneError), transaction.atomic():
            undo(greet, "inner")
    with pytest.raises(UndoneError), transaction.atomic():
        undo(greet, "outer")

    assert [entry.input for entry in OutboxEntry.objects.all()] == [{"name": "stays"}]
    assert not JobRow.objects.exists()


def undo(handle: Job[..., None], name: str) -> None:
    assert handle.enqueue(name).staged
    raise UndoneError


def test_without_autocommit_it_is_staged(greet: Job[..., None]) -> None:
    transaction.set_autocommit(False)
    try:
        assert greet.enqueue("undone").staged
        transaction.rollback()
        assert greet.enqueue("kept").staged
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)

    assert [entry.input for entry in OutboxEntry.objects.all()] == [{"name": "kept"}]


def test_on_commit_it_is_queued(greet: Job[..., None]) -> None:
    results: list[EnqueueResult] = []
    with transaction.atomic():
        transaction.on_commit(lambda: results.append(greet.enqueue()))
        assert not results

    assert not results[0].staged
    assert written() == (1, 0)


@pytest.fixture
def enqueuing_receiver(greet: Job[..., None]) -> Iterator[None]:
    def receiver(instance: Organization, **_: Any) -> None:
        greet.enqueue(instance.name)

    post_save.connect(receiver, sender=Organization)
    yield
    post_save.disconnect(receiver, sender=Organization)


@pytest.mark.usefixtures("enqueuing_receiver")
def test_a_signal_of_save_enqueues_with_the_row_that_is_saved() -> None:
    Organization.objects.create(name="alone")
    assert written() == (1, 0)
    with pytest.raises(UndoneError), transaction.atomic():
        save_and_undo("undone")
    with transaction.atomic():
        Organization.objects.create(name="together")

    assert set(Organization.objects.values_list("name", flat=True)) == {"alone", "together"}
    assert [row.input for row in JobRow.objects.all()] == [{"name": "alone"}]
    assert [entry.input for entry in OutboxEntry.objects.all()] == [{"name": "together"}]


def save_and_undo(name: str) -> None:
    Organization.objects.create(name=name)
    raise UndoneError


class TestInATestCase(TestCase):
    """Django's own test case wraps each test in a transaction."""

    def test_it_is_staged(self) -> None:
        @job(name="tests.in_case", idempotency_key="k", tenant=NO_TENANT)
        def body(run: Run) -> None: ...

        assert body.enqueue().staged
        assert OutboxEntry.objects.count() == 1


def test_required_mode_refuses_outside_a_transaction_and_stages_inside(greet: Job[..., None], mode: Any) -> None:
    mode("required")

    for attempt in (
        greet.enqueue,
        greet.call().enqueue,
        lambda: greet.enqueue_many([{}]),
        async_to_sync(greet.aenqueue),
    ):
        error = refused("X_OUTBOX_NO_TX", attempt)
        assert error.cause == 'tests.greet was enqueued outside a transaction and OUTBOX["MODE"] is "required"'
        assert error.fix.startswith("with transaction.atomic(): ...")
    with transaction.atomic():
        assert greet.enqueue().staged
    assert greet.enqueue_many([]) == []


def test_direct_mode_queues_in_the_callers_transaction(greet: Job[..., None], mode: Any) -> None:
    mode("direct")

    with pytest.raises(UndoneError), transaction.atomic():
        queue_and_undo(greet)
    with transaction.atomic():
        assert not greet.enqueue("inside").staged
    assert not greet.enqueue("outside").staged

    assert [row.input["name"] for row in JobRow.objects.order_by("id")] == ["inside", "outside"]
    assert not OutboxEntry.objects.exists()


def queue_and_undo(handle: Job[..., None]) -> None:
    assert not handle.enqueue("undone").staged
    raise UndoneError


def test_an_enqueue_is_one_statement_and_staging_takes_one_look_before(greet: Job[..., None]) -> None:
    greet.enqueue("warm")

    with CaptureQueriesContext(connection) as direct:
        greet.enqueue("direct")
    with transaction.atomic(), CaptureQueriesContext(connection) as staged:
        greet.enqueue("staged")

    assert [query["sql"].split()[:3] for query in direct.captured_queries] == [["INSERT", "INTO", "x_jobs"]]
    # On SQLite a write that changes nothing comes first: a read that becomes a write could fail at once.
    turn = ["UPDATE"] if connection.vendor == "sqlite" else []
    assert [query["sql"].split()[0] for query in staged.captured_queries] == [*turn, "SELECT", "INSERT"]


def test_async_callers_enqueue_as_sync_ones_do(greet: Job[..., None]) -> None:
    async def view() -> list[EnqueueResult]:
        one = await greet.using(priority=5).aenqueue("one")
        many = await greet.aenqueue_many([{"name": "two"}, {"name": "one"}])
        return [one, *many]

    one, two, again = async_to_sync(view)()

    assert (again.id, again.deduped) == (one.id, True)
    assert (one.deduped, two.deduped) == (False, False)
    assert [row.priority for row in JobRow.objects.order_by("id")] == [5, 0]


def test_async_enqueues_join_the_transaction_around_them(greet: Job[..., None]) -> None:
    with transaction.atomic():
        assert async_to_sync(greet.aenqueue)("inside").staged

    @sync_to_async
    def in_a_block() -> EnqueueResult:
        with transaction.atomic():
            return greet.enqueue("inside a sync function")

    async def main() -> EnqueueResult:
        return await in_a_block()

    assert async_to_sync(main)().staged
    assert written() == (0, 2)


def test_enqueuing_from_a_coroutine_by_mistake_is_refused_by_django(greet: Job[..., None]) -> None:
    async def view() -> None:
        greet.enqueue()

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(view())
    assert written() == (0, 0)


def test_a_large_input_is_stored_as_it_is() -> None:
    text = "☃" * 20_000

    @job(name="tests.large", idempotency_key="large", tenant=NO_TENANT)
    def large(run: Run, text: str) -> None: ...

    large.enqueue(text)
    with transaction.atomic():
        large.enqueue(text)

    assert JobRow.objects.get().input == OutboxEntry.objects.get().input == {"text": text}


def test_the_tables_are_looked_for_once(greet: Job[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_with_tables", set())

    with CaptureQueriesContext(connection) as first:
        greet.enqueue("first")
    with CaptureQueriesContext(connection) as second:
        greet.enqueue("second")

    assert len(second) == 1 < len(first)
