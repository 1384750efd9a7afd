"""The threads that run bodies: one for each slot, and others in place of those that a body does not give back."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import close_thread_connections
from ultimat3_jobs.worker.async_bodies import AsyncBodies, serve_thread
from ultimat3_jobs.worker.inflight import ActiveRun

THREADS_A_SLOT = 2
"""Threads at most, those of abandoned bodies among them: each has a database connection."""


class BodyThreads:
    """Runs one attempt after another in each of `slots` threads.

    A thread whose body was abandoned is replaced, and ends with its body. Where as many were abandoned as there are
    slots, each further one costs its slot until a body ends.

    Args:
        slots: runs at once.
        attempt: runs and settles one; never raises.
        async_bodies: runs the coroutines of these threads.
        on_free: called when a thread has come back.
    """

    def __init__(
        self,
        slots: int,
        *,
        attempt: Callable[[ActiveRun], None],
        async_bodies: AsyncBodies,
        on_free: Callable[[], None],
    ) -> None:
        self._slots = slots
        self._attempt = attempt
        self._async_bodies = async_bodies
        self._on_free = on_free
        self._runs: queue.SimpleQueue[ActiveRun | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._working: list[threading.Thread] = []
        self._abandoned: list[threading.Thread] = []
        self._started = 0
        self._closing = False

    def start(self) -> None:
        """Start a thread for each slot."""
        with self._lock:
            self._fill()

    @property
    def slots(self) -> int:
        """How many runs there are threads for."""
        with self._lock:
            return len(self._working)

    @property
    def abandoned(self) -> int:
        """How many threads have not come back from bodies that were abandoned."""
        with self._lock:
            return len(self._abandoned)

    def put(self, active: ActiveRun) -> None:
        """Have a run attempted by the next free thread."""
        self._runs.put(active)

    def replace(self, active: ActiveRun) -> None:
        """Start another thread in place of the one that runs an abandoned body, where there may be one more."""
        with self._lock:
            lost = [thread for thread in self._working if thread.ident == active.thread]
            self._working = [thread for thread in self._working if thread not in lost]
            self._abandoned += lost
            self._fill()
            left = len(self._working)
        if left < self._slots:
            emit("jobs.worker.slot-lost", level=logging.ERROR, slots=left, of=self._slots)

    def close(self, *, wait: bool) -> None:
        """Let the threads end with the runs that they have; those of abandoned bodies are not waited for."""
        with self._lock:
            self._closing = True
            working = list(self._working)
        for _ in working:
            self._runs.put(None)
        if wait:
            for thread in working:
                thread.join()

    def _fill(self) -> None:
        most = THREADS_A_SLOT * self._slots
        while len(self._working) < self._slots and len(self._working) + len(self._abandoned) < most:
            name = f"ultimat3_jobs.body-{self._started}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._started += 1
            self._working.append(thread)

    def _run(self) -> None:
        serve_thread(self._async_bodies)
        while (active := self._runs.get()) is not None:
            active.thread = threading.get_ident()
            self._attempt(active)
            if active.abandoned:
                break
        close_thread_connections()
        self._come_back()

    def _come_back(self) -> None:
        with self._lock:
            mine = threading.current_thread()
            if mine not in self._abandoned:
                return
            self._abandoned.remove(mine)
            if not self._closing:
                self._fill()
        self._on_free()
