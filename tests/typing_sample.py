"""What a type checker must say of a job: checked by mypy, which also complains of an ignore that is not needed."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import assert_type
from uuid import UUID

from ultimat3_jobs import NO_TENANT, AsyncRun, EnqueueResult, Job, JobCall, Retry, Run, job
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
