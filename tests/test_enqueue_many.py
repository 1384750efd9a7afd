"""`enqueue_many`: all or nothing, in few statements, results in order, on every way into the queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.conftest import InThreads
from tests.declaring import refused, refused_inside, written
from ultimat3_jobs import EnqueueResult, Job, Run, batches, job
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all

pytestmark = pytest.mark.usefixtures("isolated_registry", "outside")


@pytest.fixture
def handle() -> Job[..., None]:
    @job(name="tests.onboard", idempotency_key="onboard:{org_id}", tenant="tenant")
    def onboard(run: Run, org_id: UUID, tenant: int = 1, note: str = "") -> None: ...

    return onboard


@pytest.fixture(params=["outside", "staged", "direct"])
def way(request: pytest.FixtureRequest, settings: Any) -> str:
    """Outside a transaction, staged in one, or queued in one."""
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct" if request.param == "direct" else "auto"}}
    return str(request.param)


def open_transaction(way: str) -> AbstractContextManager[Any]:
    return nullcontext() if way == "outside" else transaction.atomic()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROWS", 3)


def stored() -> dict[UUID, Any]:
    """Return the input of every row by its id."""
    return dict([*JobRow.objects.values_list("id", "input"), *OutboxEntry.objects.values_list("id", "input")])


def test_ten_thousand_rows_or_joins_take_at_most_ten_statements(handle: Job[..., None], way: str) -> None:
    handle.enqueue(uuid4())
    inputs = [{"org_id": uuid4(), "tenant": number % 7} for number in range(10_000)]

    with CaptureQueriesContext(connection) as statements, open_transaction(way):
        results = handle.enqueue_many(inputs)

    assert len(statements) <= 10
    assert len({result.id for result in results}) == 10_000
    assert {result.staged for result in results} == {way == "staged"}
    assert {result.deduped for result in results} == {None if way == "staged" else False}
    found = stored()
    assert [found[result.id]["org_id"] for result in results] == [str(given["org_id"]) for given in inputs]
    if way == "outside":
        with CaptureQueriesContext(connection) as statements:
            joined = handle.enqueue_many(reversed(inputs))
        assert len(statements) <= 10
        assert [result.id for result in reversed(joined)] == [result.id for result in results]
        assert all(result.deduped for result in joined)


@pytest.mark.usefixtures("small_batches")
def test_results_come_in_the_order_of_the_inputs(handle: Job[..., None], way: str) -> None:
    known = handle.enqueue(UUID(int=4), note="n")
    numbers = [9, 2, 7, 4, 1, 8, 3, 6, 5, 0]

    with open_transaction(way):
        results = handle.enqueue_many({"org_id": UUID(int=number), "note": "n"} for number in numbers)

    found = stored()
    assert [found[result.id]["org_id"] for result in results] == [str(UUID(int=number)) for number in numbers]
    if way == "staged":
        assert {(result.deduped, result.staged) for result in results} == {(None, True)}
    else:
        assert [result.deduped for result in results] == [number == 4 for number in numbers]
        assert results[3] == EnqueueResult(known.id, known.run_id, deduped=True, staged=False)


@pytest.mark.usefixtures("small_batches")
def test_two_of_one_key_in_a_batch_are_one_job(handle: Job[..., None], way: str) -> None:
    one, other = {"org_id": UUID(int=1)}, {"org_id": UUID(int=2)}

    with open_transaction(way):
        results = handle.enqueue_many([one, other, one, {**one, "tenant": 2}, one])
    relay_all()

    assert JobRow.objects.count() == 3
    if way == "staged":
        assert sorted(OutboxEntry.objects.values_list("outcome", flat=True)) == ["deduped"] * 2 + ["published"] * 3
    else:
        assert [result.deduped for result in results] == [False, False, True, False, True]
        assert results[0].id == results[2].id == results[4].id != results[3].id


def bad_batches() -> Iterator[tuple[str, list[Any], str, str]]:
    good = [{"org_id": UUID(int=number)} for number in range(1, 5)]
    fits = "the input of onboard does not fit its signature: "
    yield (
        "X_JOB_INPUT_INVALID",
        [*good, {"org_id": 5}],
        f"input 4 of the batch: {fits}at `$.org_id`",
        "onboard.enqueue(",
    )
    yield "X_JOB_INPUT_INVALID", [{}, *good], f"input 0 of the batch: {fits}`$.org_id` is missing", "onboard.enqueue("
    yield "X_JOB_TENANT_REQUIRED", [*good, {**good[0], "tenant": None}], "input 4 of the batch: ", ""
    not_a_dict = "input 4 of the batch: the value at `$` is of type {}, not the keyword arguments of one enqueue"
    fix = "enqueue_many([{'org_id': ..., 'tenant': ..., 'note': ...}])"
    for bad in (UUID(int=9), 5, "text", None, ["org_id"], b"x"):
        yield "X_JOB_INPUT_INVALID", [*good, bad], not_a_dict.format(type(bad).__name__), fix
    yield "X_JOB_INPUT_INVALID", [*good, {5: 5}], f"input 4 of the batch: {fits}`$` has no argument '5'", "onboard."


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("code", "batch", "cause", "fix"), list(bad_batches()))
def test_one_bad_input_refuses_the_whole_batch(way: str, code: str, batch: list[Any], cause: str, fix: str) -> None:
    def onboard(run: Run, org_id: UUID, tenant: int | None = 1, note: str = "") -> None: ...

    handle = job(name="tests.onboard", idempotency_key="onboard:{org_id}", tenant="tenant")(onboard)

    error = (refused if way == "outside" else refused_inside)(code, lambda: handle.enqueue_many(batch))

    assert error.cause.startswith(cause)
    assert error.fix.startswith(fix)


@pytest.mark.usefixtures("small_batches")
def test_one_conflict_refuses_the_whole_batch(handle: Job[..., None], way: str) -> None:
    handle.enqueue(UUID(int=9), note="held")
    batch = [{"org_id": UUID(int=number)} for number in range(1, 10)]
    refusal = refused if way == "outside" else refused_inside

    refusal("X_JOB_KEY_REUSED", lambda: handle.enqueue_many(batch))
    batch[-1]["note"] = "held"  # type: ignore[assignment]
    refusal("X_JOB_DUPLICATE", lambda: handle.using(on_conflict="error").enqueue_many(batch))
    with open_transaction(way):
        assert len(handle.enqueue_many(batch)) == 9


@pytest.mark.usefixtures("small_batches")
def test_conflicts_inside_a_batch_are_refused_alike(handle: Job[..., None], way: str) -> None:
    one, other = {"org_id": UUID(int=1)}, {"org_id": UUID(int=2)}
    refusal = refused if way == "outside" else refused_inside

    error = refusal("X_JOB_KEY_REUSED", lambda: handle.enqueue_many([one, other, {**one, "note": "n"}]))
    assert error.cause.startswith(f"the key 'onboard:{UUID(int=1)}' of tests.onboard is held by job ")
    refusal("X_JOB_DUPLICATE", lambda: handle.using(on_conflict="error").enqueue_many([one, other, one]))
    with open_transaction(way):
        handle.using(on_conflict="error").enqueue_many([one, other, {**one, "tenant": 2}])


def test_an_empty_batch_touches_nothing(handle: Job[..., None], way: str) -> None:
    with open_transaction(way), CaptureQueriesContext(connection) as statements:
        assert handle.enqueue_many([]) == []
        assert handle.enqueue_many(iter(())) == []

    assert not statements.captured_queries


def test_a_dict_in_place_of_a_list_is_refused(handle: Job[..., None]) -> None:
    error = refused("X_JOB_INPUT_INVALID", lambda: handle.enqueue_many({"org_id": UUID(int=1)}))  # type: ignore[arg-type]

    assert error.cause.startswith("input 0 of the batch: the value at `$` is of type str")


def test_what_a_generator_raises_comes_through_and_nothing_is_queued(handle: Job[..., None], way: str) -> None:
    def inputs() -> Iterator[dict[str, Any]]:
        yield {"org_id": UUID(int=1)}
        raise LookupError("on purpose")

    with open_transaction(way), pytest.raises(LookupError, match="on purpose"):
        handle.enqueue_many(inputs())

    assert written() == (0, 0)


def test_large_inputs_are_sent_in_several_statements(
    handle: Job[..., None], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    handle.enqueue(UUID(int=0))
    monkeypatch.setattr(batches, "BYTES", 300_000)
    inputs = [{"org_id": UUID(int=number), "note": "x" * 200_000} for number in range(1, 5)]

    with CaptureQueriesContext(connection) as statements, open_transaction(way):
        handle.enqueue_many(inputs)

    assert sum(query["sql"].lstrip().startswith("INSERT") for query in statements.captured_queries) == 4
    assert sum(written()) == 5


def test_what_handles_were_told_holds_for_the_whole_batch(handle: Job[..., None], way: str) -> None:
    with open_transaction(way):
        handle.using(priority=5, queue="slow").on_behalf_of("import").enqueue_many([{"org_id": UUID(int=1)}] * 2)
    relay_all()

    row = JobRow.objects.get()
    assert (row.priority, row.queue, row.enqueued_by) == (5, "slow", "import")


def test_batches_that_share_keys_in_opposite_orders_do_not_deadlock(
    handle: Job[..., None], settings: Any, in_threads: InThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}
    monkeypatch.setattr(batches, "ROWS", 1)  # every key is a statement of its own
    inputs = [{"org_id": UUID(int=number)} for number in range(60)]
    start = threading.Barrier(2, timeout=30)

    def queue(batch: list[dict[str, Any]]) -> list[EnqueueResult]:
        start.wait()
        with transaction.atomic():
            return handle.enqueue_many(batch)

    up, down = in_threads(lambda: queue(inputs), lambda: queue(inputs[::-1]))

    assert [result.id for result in up] == [result.id for result in reversed(down)]
    assert JobRow.objects.count() == 60
