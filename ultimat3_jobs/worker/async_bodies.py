"""`async def` bodies: one event loop thread for a process, and the slot's own thread for what is not async.

The thread of the slot hands the coroutine to the loop and waits. Meanwhile it runs what the coroutine calls through
`sync_to_async`, the ORM's async methods among it: runs do not queue on one connection, each has the sound one of its
slot, and the tenant's scoping holds on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections

from ultimat3_jobs.cancellation import Cancellation
from ultimat3_jobs.forks import leave_if_forked
from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import close_thread_connections
from ultimat3_jobs.worker import stacks

T = TypeVar("T")
Body = Callable[[], Coroutine[Any, Any, Any]]

LAST_WORDS = 5.0
"""Seconds in which tasks that a body left behind may end after they were cancelled."""

_children: ContextVar[WeakSet[asyncio.Task[Any]]] = ContextVar("ultimat3_jobs_children")


class AsyncBodies:
    """Runs coroutines of several threads on one loop. The loop's thread starts with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _LoopThread | None = None
        self._active = 0
        self._closing = False

    def call(self, body: Body, cancelled: Cancellation) -> Any:
        """Run a coroutine to its end, in a copy of the caller's context; return or raise what it does.

        Args:
            body: makes the coroutine.
            cancelled: cancels the coroutine once it is set.
        """
        with self._lock:
            self._active += 1
            if self._loop is None:
                self._loop = _LoopThread()
            loop = self._loop
        try:
            return loop.call(body, cancelled)
        finally:
            with self._lock:
                self._active -= 1
                self._stop_if_idle()

    def close(self, *, wait: bool) -> None:
        """Let the loop end with the last run.

        Args:
            wait: until it has ended. Only where no run is left: one that ignores its cancellation never ends.
        """
        with self._lock:
            self._closing = True
            loop = self._loop
            self._stop_if_idle()
        if wait and loop is not None:
            loop.join()

    def _stop_if_idle(self) -> None:
        if self._closing and not self._active and self._loop is not None:
            self._loop.stop()
            self._loop = None


class _LoopThread:
    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.SelectorEventLoop(_Selector())
        self._loop.set_task_factory(_note_child)  # type: ignore[arg-type]
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="ultimat3_jobs.async", daemon=True)
        self._thread.start()

    def call(self, body: Body, cancelled: Cancellation) -> Any:
        ended: Future[Any] = Future()
        slot = _SlotExecutor()
        context = copy_context()
        stack = stacks.current()

        def start() -> None:
            task = self._loop.create_task(_supervise(body, slot, ended, self._process), context=context)
            task.add_done_callback(partial(_make_sure, ended))
            if stack is not None:
                stack.task = task
            if cancelled.is_set():
                task.cancel()  # before its first step
            cancelled.call(lambda: self._soon(task.cancel, "the run was told to stop"))

        # In a context of its own: what a callback of the loop sets is nobody's.
        self._loop.call_soon_threadsafe(start, context=Context())
        slot.serve(ended)
        return ended.result()

    def stop(self) -> None:
        self._stopped = True
        self._soon(self._loop.stop)

    def join(self) -> None:
        self._thread.join()

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed
            if not self._loop.is_closed():
                raise

    def _run(self) -> None:
        # A body may stop the loop, and a task or a callback that raises SystemExit or KeyboardInterrupt leaves it. What
        # was waiting is still there: the loop goes on with it.
        while not self._stopped:
            try:
                self._loop.run_forever()
            except BaseException as error:
                leave_if_forked(self._process, error)
                emit("jobs.async.loop-left", level=logging.ERROR, exc_info=True, error=type(error).__name__)
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._loop.shutdown_asyncgens(), LAST_WORDS))
        except BaseException as error:
            emit("jobs.async.close-failed", level=logging.WARNING, error=type(error).__name__)
        self._loop.close()
        close_thread_connections()


class _Selector(selectors.DefaultSelector):
    """Ends a forked child where it would wait for events: those are the parent's."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        leave_if_forked(self._process, RuntimeError("a forked child went on in the worker's event loop"))
        return super().select(timeout)


class _SlotExecutor(Executor):
    """Runs what is submitted in the thread that serves it, one call after another."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def serve(self, ended: Future[Any]) -> None:
        """Run calls until `ended` is done. A call that is being run by then is waited for: threads cannot be ended."""
        process = os.getpid()
        ended.add_done_callback(lambda _: self._calls.put(None))
        while (call := self._calls.get()) is not None:
            _carry_out(*call, process)
            del call


def _carry_out(future: Future[Any], call: Callable[[], Any], process: int) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        leave_if_forked(process, error)
        if issubclass(type(error), StopIteration):  # isinstance() would ask the exception itself
            # asyncio's futures refuse it, and whoever awaits one would wait for ever.
            future.set_exception(RuntimeError(f"what the body called raised {type(error).__name__}"))
        else:
            future.set_exception(error)
    else:
        leave_if_forked(process)
        future.set_result(result)


async def _supervise(body: Body, slot: _SlotExecutor, ended: Future[Any], process: int) -> None:
    try:
        children: WeakSet[asyncio.Task[Any]] = WeakSet()
        _children.set(children)
        async with ThreadSensitiveContext(executor=slot):
            try:
                result = await body()
            finally:
                await _end(children)
                await _close_connections()
    # SystemExit and KeyboardInterrupt too: asyncio would raise them out of the loop.
    except BaseException as error:
        leave_if_forked(process, error)
        ended.set_exception(error)
    else:
        leave_if_forked(process)
        ended.set_result(result)


async def _end(children: WeakSet[asyncio.Task[Any]]) -> None:
    """Cancel what a body started and did not wait for: its run, its tenant and its connection end with it."""
    left = [task for task in children if not task.done()]
    for task in left:
        task.cancel("the run that started it has ended")
    if left:
        _, pending = await asyncio.wait(left, timeout=LAST_WORDS)
        for task in pending:
            emit("jobs.async.task-left", level=logging.ERROR, task=task.get_name())


async def _close_connections() -> None:
    """Close what a body opened past its slot, such as by `sync_to_async(connection.cursor)`: asked for in the loop."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:
            connection.inc_thread_sharing()
            await sync_to_async(connection.close)()


def _make_sure(ended: Future[Any], task: asyncio.Task[None]) -> None:
    # A task that is cancelled before its first step never enters its coroutine.
    if not ended.done():
        ended.set_exception(asyncio.CancelledError())


def _note_child(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    if (children := _children.get(None)) is not None:
        children.add(task)
    return task


_thread = threading.local()


def serve_thread(bodies: AsyncBodies | None) -> None:
    """Make `bodies` what runs the async bodies of the calling thread. Without one each gets a loop for itself."""
    _thread.bodies = bodies


def call_async_body(body: Callable[..., Any], run: object, values: Mapping[str, Any], cancelled: Cancellation) -> Any:
    """Run an `async def` body to its end from the thread of its slot; return or raise what it does."""
    bodies: AsyncBodies | None = getattr(_thread, "bodies", None)
    if bodies is not None:
        return bodies.call(partial(body, run, **values), cancelled)
    bodies = AsyncBodies()
    try:
        return bodies.call(partial(body, run, **values), cancelled)
    finally:
        bodies.close(wait=True)
