"""Where a worker is, in memory that another process can read after this one was stopped or killed.

A worker counts up when one of its threads comes into a section and down when it leaves: a body, a settlement (from
before its first statement until its commit is answered), a move of the relay (from before its first row is queued until
its commit is answered). The storm stops a worker, reads the counters, and knows what a kill hits.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

SECTIONS = ("body", "settle", "relay")
FILE = "CHAOS_MARKS"  # names the file of a worker
SIZE = 8 * len(SECTIONS)


class Marks:
    """The counters of this process; without a file nothing is counted."""

    def __init__(self, file: str | None) -> None:
        self._lock = threading.Lock()
        self._memory: mmap.mmap | bytearray = bytearray(SIZE)
        if file:
            with open(file, "r+b") as opened:  # noqa: PTH123
                self._memory = mmap.mmap(opened.fileno(), SIZE)

    @contextmanager
    def inside(self, section: str) -> Iterator[None]:
        """Count this thread as inside a section for the length of the block."""
        self._count(section, 1)
        try:
            yield
        finally:
            self._count(section, -1)

    def _count(self, section: str, by: int) -> None:
        with self._lock:
            self._memory[SECTIONS.index(section) * 8] += by


MARKS = Marks(os.environ.get(FILE))


def make(file: Path) -> None:
    """Make the file of a worker that is to be started."""
    file.write_bytes(bytes(SIZE))


def read(file: Path) -> set[str]:
    """Return the sections that threads of a worker are in."""
    counted = file.read_bytes()
    return {section for number, section in enumerate(SECTIONS) if counted[number * 8]}


def mark_worker() -> None:
    """Have the settlements and the moves of this process's worker counted."""
    from ultimat3_jobs.drivers.database.driver import DatabaseDriver
    from ultimat3_jobs.outbox import relay
    from ultimat3_jobs.worker import loop
    from ultimat3_jobs.worker.atomic import AtomicEnding

    for name in ("ack", "nack"):
        setattr(DatabaseDriver, name, _within("settle", getattr(DatabaseDriver, name)))
    AtomicEnding.transaction = _until_the_commit(AtomicEnding.transaction)
    moving = threading.local()
    enqueue, relay_once = DatabaseDriver.enqueue, relay.relay_once

    @wraps(enqueue)
    def marked_enqueue(*arguments: Any, **options: Any) -> Any:
        if getattr(moving, "now", False) and not moving.marked:
            MARKS._count("relay", 1)
            moving.marked = True
        return enqueue(*arguments, **options)

    @wraps(relay_once)
    def marked_relay(*arguments: Any, **options: Any) -> int:
        if getattr(moving, "now", False):  # of all outboxes, and now of one of them
            return relay_once(*arguments, **options)
        moving.now, moving.marked = True, False
        try:
            return relay_once(*arguments, **options)
        finally:
            if moving.marked:
                MARKS._count("relay", -1)
            moving.now = False

    DatabaseDriver.enqueue = marked_enqueue
    relay.relay_once = loop.relay_once = marked_relay


def _within(section: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def marked(*arguments: Any, **options: Any) -> Any:
        with MARKS.inside(section):
            return call(*arguments, **options)

    return marked


def _until_the_commit(transaction: Callable[..., Any]) -> Callable[..., Any]:
    """An atomic body's job is settled from its fence until the commit of its transaction."""

    @contextmanager
    def marked(ending: Any) -> Iterator[Callable[[str | None], None]]:
        with ExitStack() as settling, transaction(ending) as finish:

            def marked_finish(result: str | None) -> None:
                settling.enter_context(MARKS.inside("settle"))
                finish(result)

            yield marked_finish

    return marked
