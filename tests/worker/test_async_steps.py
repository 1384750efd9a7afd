"""Steps of async bodies: awaited, recorded in the slot's thread, and suspended through tasks and groups of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from tests.app.models import Effect
from tests.working import row, run_due
from ultimat3_jobs import NO_TENANT, AsyncRun, Job, Retry, job

pytestmark = pytest.mark.usefixtures("queue")


def declare(work: Callable[[AsyncRun], Coroutine[Any, Any, Any]], **options: Any) -> Job[..., Any]:
    """Declare a job whose body is an `async def`."""

    async def body(run: AsyncRun, n: int) -> Any:
        return await work(run)

    return job(**{"name": "t.async", "idempotency_key": "{n}", "tenant": NO_TENANT, **options})(body)


async def aleave(label: str) -> str:
    """Leave an effect through the ORM's async methods."""
    await Effect.objects.acreate(label=label, attempt=0, pid=0, detail="async")
    return label


def leave(label: str) -> UUID:
    """Leave an effect, and return what JSON does not know."""
    Effect.objects.create(label=label, attempt=0, pid=0, detail=threading.current_thread().name)
    return UUID(int=1)


def effects() -> list[str]:
    """Return the labels of all effects, in order."""
    return list(Effect.objects.order_by("id").values_list("label", flat=True))


def test_steps_are_awaited_recorded_and_replayed() -> None:
    seen: list[Any] = []

    async def work(run: AsyncRun) -> None:
        seen.append(await run.step("async", aleave, "a"))
        seen.append(await run.step("plain", leave, "b"))
        seen.append(await run.step("atomic", leave, "c", atomic=True))
        seen.append(await run.step("made", lambda: aleave("d")))
        if run.attempt == 1:
            raise ValueError("once more")

    queued = declare(work, retry=Retry(attempts=2, delay=0)).enqueue(n=1)
    run_due()
    assert row(queued).state == "done"
    assert effects() == ["a", "b", "c", "d"]
    assert seen == ["a", UUID(int=1), UUID(int=1), "d"] * 2
    # What is no coroutine is called in the thread of the run's slot, which has its connection.
    threads = set(Effect.objects.exclude(detail="async").values_list("detail", flat=True))
    assert len(threads) == 1
    assert threads.pop().startswith("ultimat3_jobs.body-")


def test_an_atomic_step_that_fails_leaves_nothing() -> None:
    def half() -> None:
        leave("half")
        raise ValueError("half-way")

    async def work(run: AsyncRun) -> None:
        await run.step("half", half, atomic=True)

    queued = declare(work, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert row(queued).state == "dead"
    assert effects() == []


def test_an_atomic_step_takes_no_coroutine() -> None:
    async def work(run: AsyncRun) -> None:
        await run.step("s", aleave, "a", atomic=True)

    queued = declare(work, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert row(queued).error_class == "ultimat3_jobs.errors.StepNotAtomic"
    assert effects() == []


def test_the_wait_for_the_thread_is_none_of_a_steps_time() -> None:
    """The second step waits for the run's thread, which the first has until the loop has come past both."""
    told: list[str] = []

    async def work(run: AsyncRun) -> None:
        loop = asyncio.get_running_loop()

        @contextmanager
        def limit(name: str) -> Iterator[None]:
            told.append(f"{name} counts")
            yield

        run._vitals.step_limit = limit

        async def turns() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        def call(name: str) -> None:
            asyncio.run_coroutine_threadsafe(turns(), loop).result()
            told.append(f"{name} is called")

        await asyncio.gather(run.step("a", call, "a"), run.step("b", call, "b"))

    queued = declare(work, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert row(queued).state == "done"
    assert told == ["a counts", "a is called", "b counts", "b is called"]


@pytest.mark.parametrize("how", ["plain", "task", "gather", "group"])
def test_a_sleep_suspends_the_run_from_wherever_it_is_awaited(how: str) -> None:
    async def work(run: AsyncRun) -> None:
        await run.step("before", aleave, "before")
        nap = run.sleep("nap", "3d")
        if how == "plain":
            await nap
        elif how == "task":
            await asyncio.create_task(nap)
        elif how == "gather":
            await asyncio.gather(nap, asyncio.sleep(0))
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(nap)
                group.create_task(asyncio.sleep(0))
        await aleave("after")

    queued = declare(work, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    asleep = row(queued)
    assert (asleep.state, asleep.attempt) == ("suspended", 0)
    assert asleep.park_reason.startswith("asleep until ")
    past = {"sqlite": "'2001-01-01 00:00:00.000000'", "postgresql": "'2001-01-01+00'"}[connection.vendor]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE x_jobs SET run_at = {past}")
        cursor.execute(f"UPDATE x_job_steps SET until = {past} WHERE kind = 'sleep'")
    run_due()
    assert row(queued).state == "done"
    assert effects() == ["before", "after"]


def test_a_failure_beside_a_sleep_is_a_failure() -> None:
    async def fail() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("beside") from None

    async def work(run: AsyncRun) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(run.sleep("nap", "3d"))

    queued = declare(work, retry=Retry(attempts=1)).enqueue(n=1)
    run_due()
    assert row(queued).state == "dead"


def test_a_snooze_is_awaited() -> None:
    turns: list[int] = []

    async def work(run: AsyncRun) -> None:
        turns.append(run.attempt)
        if len(turns) == 1:
            await run.snooze(0)

    queued = declare(work).enqueue(n=1)
    run_due()
    run_due()
    assert row(queued).state == "done"
    assert turns == [1, 1]
