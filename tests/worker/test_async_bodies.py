"""`async def` bodies: one loop for all, a thread and a connection for each, and an end whatever they raise."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, connections, transaction
from django.utils import translation

from tests import raising
from tests.app.models import Effect
from tests.processes import wait_for
from tests.worker.test_connections import session
from tests.working import history, row, run_due, states, working
from ultimat3_jobs import NO_TENANT, Aborted, AsyncRun, Job, Retry, Run, current_tenant, job
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.worker import async_bodies
from ultimat3_jobs.worker.async_bodies import call_async_body
from ultimat3_jobs.worker.drain import Ending

pytestmark = pytest.mark.usefixtures("queue")

scope: ContextVar[str] = ContextVar("scope", default="nothing")
leftover: ContextVar[str] = ContextVar("leftover", default="nothing")


@contextmanager
def scoping(tenant: str) -> Iterator[None]:
    """A project's own scoping: of the context, and of the thread's connection."""
    connection.ensure_connection()
    entered = (threading.get_ident(), connection.connection)
    connection.scope = tenant
    token = scope.set(tenant)
    try:
        yield
    finally:
        scope.reset(token)
        del connection.scope
        assert entered == (threading.get_ident(), connection.connection)


def declare(body: Callable[..., Any], **options: Any) -> Job[..., Any]:
    """Declare an async job of one number, which is started once."""

    async def numbered(run: AsyncRun, n: int) -> Any:
        return await body(run, n)

    given = {"name": "t.async", "idempotency_key": "{n}", "tenant": NO_TENANT, "retry": Retry(attempts=1)}
    return job(**(given | options))(numbered)


def enqueue(handle: Job[..., Any], count: int) -> None:
    """Queue the job once for each number."""
    handle.enqueue_many([{"n": n} for n in range(count)])


def test_an_async_body_gets_a_run_whose_methods_are_awaited() -> None:
    async def body(run: AsyncRun, n: int) -> dict[str, Any]:
        await run.check_cancelled()
        await Effect.objects.acreate(label="async")
        assert isinstance(run, AsyncRun)
        run.logger.debug("works")
        return {"id": run.id, "attempt": run.attempt, "of": run.max_attempts, "n": n}

    queued = declare(body).enqueue(7)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).last_error) == ("done", "")
    assert row(queued).result == {"id": str(queued.id), "attempt": 1, "of": 1, "n": 7}
    assert Effect.objects.count() == 1


def test_bodies_share_one_loop_on_which_all_of_them_meet() -> None:
    barrier = asyncio.Barrier(10)
    loops = set()

    async def body(run: AsyncRun, n: int) -> None:
        loops.add(asyncio.get_running_loop())
        async with asyncio.timeout(30):
            await barrier.wait()

    enqueue(declare(body), 10)
    run_due(concurrency=10)

    assert states() == {"done": 10}
    assert len(loops) == 1


def test_the_orm_calls_of_two_bodies_do_not_queue_on_one_connection() -> None:
    barrier = threading.Barrier(2, timeout=30)
    seen = []

    def meet() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            barrier.wait()
            seen.append((threading.get_ident(), connection.connection))

    async def body(run: AsyncRun, n: int) -> None:
        await sync_to_async(meet)()
        await Effect.objects.acreate(label="after that")

    enqueue(declare(body), 2)
    run_due(concurrency=2)

    assert states() == {"done": 2}
    assert len({thread for thread, _ in seen}) == len({id(one) for _, one in seen}) == 2


def test_the_orm_calls_of_a_body_are_on_the_connection_of_its_slot_which_is_kept() -> None:
    seen = []

    async def body(run: AsyncRun, n: int) -> None:
        seen.append(await sync_to_async(session)())
        await asyncio.gather(*(Effect.objects.acreate(label="at once") for _ in range(3)))
        seen.append(await sync_to_async(session)())

    @job(name="t.plain", idempotency_key="{n}", tenant=NO_TENANT)
    def plain(run: Run, n: int) -> None:
        seen.append(session())

    enqueue(declare(body), 2)
    enqueue(plain, 2)
    run_due(concurrency=1)

    assert states() == {"done": 4}
    assert len(seen) == 6
    assert len(set(seen)) == 1


def test_what_an_async_body_left_on_its_connection_is_not_given_to_the_next() -> None:
    def spoil() -> None:
        transaction.atomic().__enter__()
        Effect.objects.create(label="in a transaction that nobody commits")

    async def body(run: AsyncRun, n: int) -> bool:
        before = await sync_to_async(transaction.get_autocommit)()
        await sync_to_async(spoil)()
        return before

    enqueue(declare(body), 3)
    run_due(concurrency=1)

    assert states() == {"done": 3}
    assert not Effect.objects.exists()


def test_a_connection_that_a_body_opened_past_its_slot_ends_with_its_run() -> None:
    opened = []

    async def body(run: AsyncRun, n: int) -> None:
        opened.append(connections["default"])  # asked for in the loop, this is none of the slot's
        await sync_to_async(opened[0].ensure_connection)()

    queued = declare(body).enqueue(1)
    run_due(concurrency=1)

    assert row(queued).state == "done"
    assert [one.connection for one in opened] == [None]


def test_the_orm_is_refused_where_it_would_block_the_loop() -> None:
    async def body(run: AsyncRun, n: int) -> None:
        Effect.objects.create(label="blocks")

    queued = declare(body).enqueue(1)
    run_due(concurrency=1)

    assert row(queued).error_class == f"django.core.exceptions.{SynchronousOnlyOperation.__name__}"


def test_the_tenant_and_the_projects_scoping_hold_in_the_coroutine_and_in_what_it_calls(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"TENANT_CONTEXT": f"{__name__}.scoping"}
    seen = []

    def look() -> tuple[str | None, ...]:
        return (current_tenant(), scope.get(), leftover.get(), getattr(connection, "scope", None))

    async def child() -> tuple[str | None, ...]:
        return (current_tenant(), scope.get(), leftover.get())

    async def body(run: AsyncRun, org: str | None) -> None:
        here = (run.tenant, current_tenant(), scope.get(), leftover.get(), translation.get_language())
        task = await asyncio.create_task(child())
        seen.append((here, await sync_to_async(look)(), task, await sync_to_async(async_to_sync(child))()))
        leftover.set("something")
        await sync_to_async(translation.activate)("de")

    @job(name="t.owned", idempotency_key="{n}", tenant="org", retry=Retry(attempts=1))
    async def owned(run: AsyncRun, org: str, n: int) -> None:
        await body(run, org)
        if n == 2:
            raise ValueError("one of them fails")

    @job(name="t.shared", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1))
    async def shared(run: AsyncRun, n: int) -> None:
        await body(run, None)

    owned.enqueue("acme", 1)
    owned.enqueue("globex", 2)
    shared.enqueue(3)
    run_due(concurrency=1)

    def expected(tenant: str | None) -> tuple[Any, ...]:
        inside = (tenant, tenant or "nothing", "nothing")
        return ((tenant, *inside, "en-us"), (*inside, tenant), inside, inside)

    assert seen == [expected("acme"), expected("globex"), expected(None)]
    assert states() == {"done": 2, "dead": 1}


def raised_in_a_child(kind: str) -> Callable[..., Any]:
    """Return a body that waits for a task which raises."""

    async def child() -> None:
        raise raising.KINDS[kind]()

    async def body(run: AsyncRun, n: int) -> None:
        await asyncio.create_task(child())

    return body


def raised_in_a_thread(kind: str) -> Callable[..., Any]:
    """Return a body that waits for a call which raises."""

    def call() -> None:
        raise raising.KINDS[kind]()

    async def body(run: AsyncRun, n: int) -> None:
        await sync_to_async(call)()

    return body


def raised(kind: str) -> Callable[..., Any]:
    """Return a body that raises."""

    async def body(run: AsyncRun, n: int) -> None:
        raise raising.KINDS[kind]()

    return body


@pytest.mark.parametrize("where", [raised, raised_in_a_child, raised_in_a_thread], ids=lambda where: where.__name__)
def test_every_kind_of_exception_is_a_failed_attempt_and_the_worker_goes_on(where: Callable[[str], Any]) -> None:
    bodies = [where(kind) for kind in raising.KINDS]

    async def body(run: AsyncRun, n: int) -> str:
        if n < len(bodies):
            await bodies[n](run, n)
        return "worked"

    enqueue(declare(body), len(bodies) + 2)
    run_due(concurrency=2)

    assert states() == {"dead": len(bodies), "done": 2}
    kept = dict(JobRow.objects.values_list("idempotency_key", "error_class"))
    by_kind = {kind: kept[str(n)] for n, kind in enumerate(raising.KINDS)}
    assert [by_kind[kind] for kind in ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "StopIteration")] == [
        "SystemExit",
        "KeyboardInterrupt",
        "GeneratorExit",
        "RuntimeError",
    ]
    assert by_kind["unaskable"] == "tests.raising.UnaskableError"


def test_a_call_that_raises_in_the_loop_and_a_loop_that_is_stopped_hold_up_nobody() -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def forgotten() -> None:
        raise KeyboardInterrupt

    async def body(run: AsyncRun, n: int) -> int:
        loop = asyncio.get_running_loop()
        loop.call_soon(leave)
        task = loop.create_task(forgotten())
        await asyncio.sleep(0)
        loop.stop()
        await asyncio.sleep(0.01)
        assert isinstance(task.exception(), KeyboardInterrupt)
        return n

    enqueue(declare(body), 3)
    run_due(concurrency=3)

    assert states() == {"done": 3}


def test_a_cancellation_of_its_own_is_a_failed_attempt() -> None:
    async def body(run: AsyncRun, n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(30)

    queued = declare(body, retry=Retry(attempts=2, delay=0)).enqueue(1)
    run_due(concurrency=1)

    assert (row(queued).state, row(queued).attempt, len(history(queued))) == ("dead", 2, 2)
    assert row(queued).error_class == "asyncio.exceptions.CancelledError"


class Endless:
    """An async body that goes on until it is cancelled, or beyond."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.started = threading.Event()
        self.let_go = threading.Event()
        self.unwound = threading.Event()
        self.stubborn = stubborn

    async def body(self, run: AsyncRun, n: int) -> None:
        """Be the body."""
        self.started.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            while self.stubborn and not self.let_go.is_set():
                await asyncio.sleep(0.01)
            with pytest.raises(Aborted):
                await run.check_cancelled()
            await Effect.objects.acreate(label="cleaned up")
            raise
        finally:
            self.unwound.set()


def test_a_run_that_is_handed_back_is_cancelled_so_that_it_unwinds(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "DRAIN_TIMEOUT": "50ms"}
    endless = Endless()
    queued = declare(endless.body).enqueue(1)
    with working(concurrency=1) as worker:
        assert endless.started.wait(30)
        worker.stop()
        assert worker.ended() is Ending.HANDED_BACK

    assert endless.unwound.wait(30)
    assert (row(queued).state, row(queued).attempt, history(queued)) == ("ready", 0, [])
    wait_for(Effect.objects.exists, "what it does on its way out is done")


def test_a_run_whose_lease_is_lost_is_cancelled() -> None:
    endless = Endless()
    queued = declare(endless.body).enqueue(1)
    with working(concurrency=1) as worker:
        assert endless.started.wait(30)
        (one,) = worker.worker._inflight.all()

        def lose() -> bool:
            one.confirmed_at -= 3_600  # again where a renewal lands meanwhile
            worker.worker._heartbeat.watch()
            return one.lost

        wait_for(lose, "it is taken for lost")
        assert endless.unwound.wait(30)

    assert row(queued).error_class == "asyncio.exceptions.CancelledError"


@pytest.mark.parametrize("signals", [1, 2])
def test_a_body_that_ignores_its_cancellation_does_not_keep_the_worker(settings: Any, signals: int) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "DRAIN_TIMEOUT": "50ms" if signals == 1 else "1h"}
    endless = Endless(stubborn=True)
    declare(endless.body).enqueue(1)
    try:
        with working(concurrency=1) as worker:
            assert endless.started.wait(30)
            for _ in range(signals):
                worker.stop()
            assert worker.ended() is (Ending.HANDED_BACK if signals == 1 else Ending.AT_ONCE)
            for one in worker.worker._inflight.all():
                one.run.cancelled.set()
    finally:
        endless.let_go.set()


def test_a_run_that_is_cancelled_before_it_starts_never_does() -> None:
    run: Any = Run.__new__(Run)
    run.cancelled = async_bodies.Cancellation()
    run.cancelled.set()

    async def body(run: Any) -> None:
        raise AssertionError("it started")

    with pytest.raises(asyncio.CancelledError):
        call_async_body(body, run, {}, run.cancelled)


def test_tasks_that_a_body_left_behind_end_with_its_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_bodies, "LAST_WORDS", 0.05)
    ends: list[Any] = []
    late: list[Any] = []

    async def obedient() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ends.append((current_tenant(), await sync_to_async(threading.get_ident)()))

    async def stubborn(go: asyncio.Event) -> None:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            await go.wait()
            try:
                await Effect.objects.acreate(label="after its run")
            except RuntimeError:
                late.append("refused")

    async def starter(org: str) -> None:
        asyncio.create_task(obedient())  # noqa: RUF006 - that nobody keeps it is what is tested
        await asyncio.sleep(0)

    @job(name="t.first", idempotency_key="key", tenant="org")
    async def first(run: AsyncRun, org: str) -> None:
        await asyncio.create_task(starter(org))
        gone.append(asyncio.Event())
        kept.append(asyncio.create_task(stubborn(gone[0])))
        await asyncio.sleep(0)
        ends.append(await sync_to_async(threading.get_ident)())

    @job(name="t.second", idempotency_key="key", tenant=NO_TENANT, priority=-1)
    async def second(run: AsyncRun) -> None:
        gone[0].set()
        await kept[0]

    gone: list[asyncio.Event] = []
    kept: list[asyncio.Task[None]] = []
    first.enqueue("acme")
    second.enqueue()
    run_due(concurrency=1)

    assert states() == {"done": 2}
    assert ends == [ends[0], ("acme", ends[0])]
    assert late == ["refused"]
    assert not Effect.objects.exists()
    (left,) = [r for r in caplog.records if r.message.startswith("jobs.async.task-left")]
    assert left.levelno == logging.ERROR


def test_a_body_run_without_a_worker_has_its_calls_made_by_the_callers_thread() -> None:
    async def body(run: object, n: int) -> int:
        await Effect.objects.acreate(label="in the caller's transaction")
        return await sync_to_async(threading.get_ident)() + n

    with transaction.atomic():
        assert call_async_body(body, None, {"n": 1}, async_bodies.Cancellation()) == threading.get_ident() + 1
        assert Effect.objects.count() == 1
        transaction.set_rollback(True)
    assert not Effect.objects.exists()


def test_a_plain_function_that_returns_a_coroutine_is_a_failed_attempt() -> None:
    async def forgotten() -> None: ...

    @job(name="t.plain", idempotency_key="key", tenant=NO_TENANT, retry=Retry(attempts=1))
    def plain(run: Run) -> Any:
        return forgotten()

    queued = plain.enqueue()
    run_due(concurrency=1)

    assert row(queued).state == "dead"
    assert "declare it with async def" in row(queued).last_error
