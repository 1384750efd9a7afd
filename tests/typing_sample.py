"""What a type checker must say of a job: checked by mypy, which also complains of an ignore that is not needed."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, assert_type
from uuid import UUID

from ultimat3_jobs import NO_TENANT, AsyncRun, EnqueueResult, Job, JobCall, ReceivedEvent, Retry, Run, job
from ultimat3_jobs.testing import Enqueued, assert_enqueued, assert_not_enqueued, drain


@job(idempotency_key="invoice:{invoice_id}", tenant="org_id", retry=Retry(attempts=5), queue="billing")
def send_invoice(run: Run, org_id: UUID, invoice_id: int, copy_to: list[str] | None = None) -> str:
    """Send one invoice."""
    return f"{org_id} {invoice_id} {copy_to} {run.attempt}"


@job(idempotency_key=lambda day: f"{day:%F}", tenant=lambda: NO_TENANT, dedupe_for="24h", while_running="again")
def report(run: Run, day: datetime) -> None:
    """Make the report of a day."""


@job(idempotency_key="{order}", tenant=NO_TENANT)
async def fetch(run: AsyncRun, order: int) -> str:
    """Fetch an order."""
    await run.check_cancelled()
    return f"{order} {run.attempt}"


def right(org_id: UUID, run: Run) -> None:
    """Use the handle as it is meant."""
    assert_type(send_invoice.enqueue(org_id=org_id, invoice_id=5), EnqueueResult)
    assert_type(send_invoice.enqueue(org_id, 5, ["a@example.com"]), EnqueueResult)
    assert_type(send_invoice.call(org_id, invoice_id=5), JobCall)
    assert_type(send_invoice.call(org_id, invoice_id=5).enqueue(), EnqueueResult)
    assert_type(send_invoice.func(run, org_id, 5), str)
    later = send_invoice.using(run_after=datetime(2026, 5, 3, tzinfo=UTC), priority=5, on_conflict="error")
    assert_type(later.on_behalf_of("import").enqueue(org_id=org_id, invoice_id=5), EnqueueResult)
    assert_type(send_invoice.enqueue_many([{"org_id": org_id, "invoice_id": 5}]), list[EnqueueResult])
    assert_type(fetch.enqueue(order=5), EnqueueResult)
    awaited: Awaitable[EnqueueResult] = send_invoice.aenqueue(org_id=org_id, invoice_id=5)
    handle: Job[[datetime], None] = report
    del awaited, handle


def make_slug(name: str, length: int = 20) -> UUID:
    """Return what a step records."""
    return UUID(int=len(name[:length]))


def loose(data):  # type: ignore[no-untyped-def]
    """Return something that only `returns` can tell of."""
    return data


async def fetch_one(order: int) -> Decimal:
    """Fetch what a step records."""
    return Decimal(order)


def steps(run: Run) -> None:
    """Use the steps of a run: a result has the type of its function, or the declared one."""
    assert_type(run.step("slug", make_slug, "acme"), UUID)
    assert_type(run.step("short", make_slug, "acme", 5, atomic=True), UUID)
    assert_type(run.step("partial", partial(make_slug, length=5), "acme"), UUID)
    assert_type(run.step("declared", loose, 1, returns=tuple[int, str]), tuple[int, str])
    assert_type(run.step("lambda", lambda: 5), int)
    run.sleep("3d")
    run.sleep("trial", timedelta(days=3))
    received = run.wait_for_event("paid", "order.paid", match={"order": 5}, timeout="1d", returns=list[int])
    assert_type(received, ReceivedEvent[list[int]] | None)
    certain = run.wait_for_event("paid", "order.paid", required=True, returns=list[int])
    assert_type(certain, ReceivedEvent[list[int]])
    assert_type(certain.payload, list[int])
    assert_type(run.wait_for_event("paid", "order.paid"), ReceivedEvent[Any] | None)


async def async_steps(run: AsyncRun) -> None:
    """Use the steps of an async run: what is awaited is what comes back."""
    assert_type(await run.step("fetch", fetch_one, 5), Decimal)
    assert_type(await run.step("slug", make_slug, "acme", atomic=True), UUID)
    assert_type(await run.step("declared", fetch_one, 5, returns=str), str)
    certain = await run.wait_for_event("paid", "order.paid", required=True, returns=list[int])
    assert_type(certain, ReceivedEvent[list[int]])
    assert_type(await run.wait_for_event("paid", "order.paid"), ReceivedEvent[Any] | None)


def tested(org_id: UUID) -> None:
    """Run and look up jobs as a test does."""
    assert_type(drain(queues=["mail"], ahead="1h", raise_errors=False).counts, dict[str, int])
    assert_type(assert_enqueued(send_invoice, org_id=org_id, count=1), list[Enqueued])
    assert_not_enqueued(report)


def wrong(org_id: UUID, run: Run) -> None:
    """Use the handle as it is not meant: each line is an error."""
    send_invoice.enqueue(org_id=org_id, invoice_id="5")  # type: ignore[arg-type]
    send_invoice.enqueue(org_id=org_id)  # type: ignore[call-arg]
    send_invoice.enqueue(org_id=org_id, invoice_id=5, colour="red")  # type: ignore[call-arg]
    send_invoice.enqueue(run, org_id, 5)  # type: ignore[arg-type]
    fetch.enqueue(order="5")  # type: ignore[arg-type]
    send_invoice.call(5, 5)  # type: ignore[arg-type]
    send_invoice.func(org_id, 5)  # type: ignore[call-arg, arg-type]
    send_invoice.using(on_conflict="ignore")  # type: ignore[arg-type]
    send_invoice.using(later="1h")  # type: ignore[call-arg]
    send_invoice.enqueue_many([5])  # type: ignore[list-item]
    job(idempotency_key=5, tenant=NO_TENANT)  # type: ignore[arg-type]
    job(idempotency_key="k", tenant=NO_TENANT, while_running="wait")  # type: ignore[arg-type]
    job(idempotency_key="k", tenant=NO_TENANT, retry=3)  # type: ignore[arg-type]


def wrong_steps(run: Run) -> None:
    """Use steps as they are not meant: each line is an error."""
    run.step("slug", make_slug)  # type: ignore[call-arg, arg-type]
    run.step("slug", make_slug, 5)  # type: ignore[arg-type]
    run.step("slug", make_slug("acme"))  # type: ignore[call-overload]
    run.step("slug", make_slug, "acme", atomic="yes")  # type: ignore[call-overload]
    run.sleep("trial", "3d", "4d")  # type: ignore[call-overload]
    run.wait_for_event("paid", "order.paid", match={"order": 5.0})  # type: ignore[dict-item]


async def wrong_async_steps(run: AsyncRun) -> None:
    """Use steps as they are not meant: each line is an error."""
    await run.step("fetch", fetch_one, "5")  # type: ignore[arg-type]
    await run.sleep()  # type: ignore[call-overload]
