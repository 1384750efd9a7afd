"""The run an `async def` body is in: `Run` with methods that are awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from asgiref.sync import sync_to_async

from ultimat3_jobs.context import Attempt
from ultimat3_jobs.durations import Duration
from ultimat3_jobs.event_checks import MatchValue
from ultimat3_jobs.steps import waits
from ultimat3_jobs.steps.asked import is_async
from ultimat3_jobs.steps.steps import Replayed
from ultimat3_jobs.steps.waits import ReceivedEvent

T = TypeVar("T")
Args = TypeVarTuple("Args")

_in_slot = sync_to_async  # the thread of the run's slot: see ultimat3_jobs.worker.async_bodies


class AsyncRun(Attempt):
    """One attempt of one job, as an `async def` body gets it: what `Run` has, with methods that are awaited.

    Where the run should stop, its coroutine is cancelled as well: whatever it awaits raises `asyncio.CancelledError`.
    """

    async def check_cancelled(self) -> None:
        """Let the other bodies of the loop have their turn, then raise `Aborted` where the run should stop."""
        await asyncio.sleep(0)
        self._check_cancelled()

    async def progress(self, done: float, total: float | None = None) -> None:
        """Tell how far the work is, as `Run.progress` does."""
        self._vitals.tell(done, total)

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        returns: None = None,
        atomic: bool = False,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Args], T],
        *args: *Args,
        returns: None = None,
        atomic: bool = False,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Args], object],
        *args: *Args,
        returns: type[T],
        atomic: bool = False,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Args], object],
        *args: *Args,
        returns: Any,
        atomic: bool = False,
    ) -> Any: ...
    async def step(
        self,
        name: str,
        fn: Callable[[*Args], Any],
        *args: *Args,
        returns: Any = None,
        atomic: bool = False,
    ) -> Any:
        """`Run.step` for async bodies. `fn` may be an `async def`, which is awaited, or a plain function.

        A plain function is called in the run's own thread, an atomic step's always: Django has no transaction that a
        coroutine can be in.
        """
        steps = self._steps
        if atomic:
            return await _in_slot(steps.step)(name, fn, args, returns=returns, atomic=True)
        begun = await _in_slot(steps.begin)(name, fn, returns=returns, atomic=False)
        if isinstance(begun, Replayed):
            return begun.value
        # Of what waits for the run's thread, the wait is none of the step's time.
        result = fn(*args) if is_async(fn) else await _in_slot(steps.timed)(begun.name, fn, args)
        if inspect.isawaitable(result):
            with steps.deadline(begun.name), steps.named(f"step {begun.name!r}"):
                result = await result
        return await _in_slot(steps.finish)(begun, result)

    @overload
    async def sleep(self, duration: Duration, /) -> None: ...
    @overload
    async def sleep(self, name: str, duration: Duration, /) -> None: ...
    async def sleep(self, first: Any, second: Any = None, /) -> None:
        """`Run.sleep` for async bodies."""
        await _in_slot(waits.sleep)(self._steps, first, second)

    async def snooze(self, duration: Duration) -> None:
        """`Run.snooze` for async bodies."""
        await _in_slot(waits.snooze)(self._steps, duration)

    @overload
    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: Literal[True],
        returns: type[T],
    ) -> ReceivedEvent[T]: ...
    @overload
    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: Literal[True],
        returns: Any = None,
    ) -> ReceivedEvent[Any]: ...
    @overload
    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: type[T],
    ) -> ReceivedEvent[T] | None: ...
    @overload
    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: Any = None,
    ) -> ReceivedEvent[Any] | None: ...
    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        match: Mapping[str, MatchValue] | None = None,
        timeout: Duration | None = None,
        required: bool = False,
        returns: Any = None,
    ) -> ReceivedEvent[Any] | None:
        """`Run.wait_for_event` for async bodies."""
        return await _in_slot(waits.wait_for_event)(
            self._steps,
            name,
            event,
            match=match,
            timeout=timeout,
            required=required,
            returns=returns,
        )
