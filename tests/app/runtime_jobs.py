"""Jobs of worker processes whose bodies do what few do: they fork, or are async."""

from __future__ import annotations

import asyncio
import os
import time
from multiprocessing import get_context

from django.db import transaction

from tests.app.models import Effect
from ultimat3_jobs import NO_TENANT, AsyncRun, Retry, Run, job


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=20, delay=0))
def steady(run: Run, label: str) -> str:
    """Leave an effect, as often as it takes."""
    Effect.objects.create(label=label, detail="start", attempt=run.attempt, pid=os.getpid())
    return "worked"


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=1))
def forking(run: Run, label: str, fails: bool = False) -> str:
    """Fork, and let the child unwind as the parent does."""
    child = os.fork()
    if child == 0:
        if fails:
            raise ValueError("in the child")
        return "in the child"
    _, status = os.waitpid(child, 0)
    Effect.objects.create(label=label, detail=str(os.waitstatus_to_exitcode(status)), pid=os.getpid())
    return "in the parent"


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=1), atomic=True)
def forking_after_the_commit(run: Run, label: str) -> str:
    """Leave a hook that forks, whose child ends as a program does."""

    def hook() -> None:
        child = os.fork()
        if child == 0:
            raise SystemExit(7)
        _, status = os.waitpid(child, 0)
        Effect.objects.create(label=label, detail=str(os.waitstatus_to_exitcode(status)), pid=os.getpid())

    transaction.on_commit(hook)
    return "in the parent"


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=1))
def forking_in_a_step(run: Run, label: str, atomic: bool) -> str:
    """Fork in a step, and let the child return from it as the parent does."""

    def fork() -> str:
        child = os.fork()
        if child == 0:
            return "in the child"
        _, status = os.waitpid(child, 0)
        Effect.objects.create(label=label, detail=str(os.waitstatus_to_exitcode(status)), pid=os.getpid())
        return "in the parent"

    returned: str = run.step("fork", fork, atomic=atomic)
    return returned


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=1))
def terminating(run: Run, label: str, number: int) -> str:
    """Start a process and tell it to end, as those of a pool are told."""
    child = get_context("fork").Process(target=_stay_until_orphaned, args=[os.getpid()])
    child.start()
    os.kill(child.pid or 0, number)
    child.join()
    return str(child.exitcode)


def _stay_until_orphaned(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.05)


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=1))
def pooling(run: Run, label: str) -> list[int]:
    """Spread work over processes, and end them as the pool's context manager does."""
    with get_context("fork").Pool(2) as pool:
        return pool.map(_square, [1, 2, 3])


def _square(number: int) -> int:
    return number * number


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=1))
async def forking_async(run: AsyncRun, label: str, fails: bool = False) -> str:
    """Fork, and let the child go on in the loop, or end."""
    child = os.fork()
    if child == 0:
        if fails:
            await asyncio.sleep(0.01)
        return "in the child"
    _, status = os.waitpid(child, 0)
    await Effect.objects.acreate(label=label, detail=str(os.waitstatus_to_exitcode(status)), pid=os.getpid())
    return "in the parent"


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=Retry(attempts=1))
async def waiting_async(run: AsyncRun, label: str) -> str:
    """Start, wait until a test says `go`, and end."""
    await Effect.objects.acreate(label=label, detail="start", attempt=run.attempt, pid=os.getpid())
    await waited_for(label)
    return "worked"


async def waited_for(label: str) -> None:
    """Wait until a test lets a label go."""
    while not await Effect.objects.filter(label=label, detail="go").aexists():
        await asyncio.sleep(0.02)
