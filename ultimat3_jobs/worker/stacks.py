"""What the bodies of this process are doing: their stacks, written to the log when a signal asks for them."""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from uuid import UUID

from ultimat3_jobs.logs import emit
from ultimat3_jobs.worker.inflight import monotonic

LONGEST = 10_000
"""Characters of a stack that are kept: the innermost calls."""


class Running:
    """One body that is running."""

    def __init__(self, job: UUID, name: str) -> None:
        self.job = job
        self.name = name
        self.since = monotonic()
        self.thread = threading.get_ident()
        self.task: asyncio.Task[Any] | None = None
        """Of an `async def` body; its thread then serves what the task calls."""

    def stack(self) -> str:
        """Return where the body is, the innermost call last. It holds lines of code, and no values."""
        frames: list[FrameType] = []
        if self.task is not None:
            frames = _awaited(self.task.get_coro())
        thread = _outwards(sys._current_frames().get(self.thread))
        if self.task is None or not frames:
            frames = thread
        elif serving := _served(thread):
            frames += serving
        return _text(frames)


_running: dict[int, Running] = {}


@contextmanager
def running(job: UUID, name: str) -> Iterator[None]:
    """Count a body in for as long as it runs in the calling thread."""
    thread = threading.get_ident()
    before = _running.get(thread)
    _running[thread] = Running(job, name)
    try:
        yield
    finally:
        if before is None:
            _running.pop(thread, None)
        else:
            _running[thread] = before


def current() -> Running | None:
    """Return the body that runs in the calling thread."""
    return _running.get(threading.get_ident())


def of_thread(thread: int) -> str:
    """Return where the body of a thread is, or the thread itself where no body runs in it."""
    body = _running.get(thread)
    return body.stack() if body is not None else _text(_outwards(sys._current_frames().get(thread)))


def write_stacks() -> None:
    """Log the stack of each running body, the longest running first: one event each."""
    bodies = sorted(_running.copy().values(), key=lambda body: body.since)
    emit("jobs.worker.stacks", level=logging.WARNING, running=len(bodies))
    for body in bodies:
        emit(
            "jobs.body.stack",
            level=logging.WARNING,
            job=body.job,
            name=body.name,
            seconds=round(monotonic() - body.since, 1),
            stack="\n" + body.stack(),
        )


class StackWriter:
    """Writes the stacks from a thread of its own each time it is asked.

    A signal handler interrupts whatever its thread does, even a log call that holds a lock: it may ask, not write.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ultimat3_jobs.stacks", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Have the stacks written. Safe in a signal handler."""
        self._asked.put(True)

    def close(self) -> None:
        """End the thread."""
        self._asked.put(False)
        self._thread.join()

    def _run(self) -> None:
        while self._asked.get():
            try:
                write_stacks()
            except Exception as error:
                emit("jobs.worker.stacks-failed", level=logging.WARNING, error=type(error).__name__)


def _text(frames: list[FrameType]) -> str:
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    return "".join(summary.format())[-LONGEST:]


def _outwards(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a thread, the innermost last."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _awaited(waiting: Any) -> list[FrameType]:
    """Return the frames of a coroutine and of what it awaits, the innermost last."""
    frames: list[FrameType] = []
    while waiting is not None and len(frames) <= sys.getrecursionlimit():
        frame = next((f for f in (getattr(waiting, name, None) for name in _FRAMES) if f is not None), None)
        if frame is not None:
            frames.append(frame)
        waiting = next((w for w in (getattr(waiting, name, None) for name in _AWAITED) if w is not None), None)
    return frames


_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


def _served(thread: list[FrameType]) -> list[FrameType]:
    """Return the frames of what a slot's thread does for its coroutine; none where it waits."""
    names = [frame.f_code.co_name for frame in thread]
    return thread[names.index("_carry_out") :] if "_carry_out" in names else []
