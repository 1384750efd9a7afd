"""What a driver's test supplies, and the short words in which the rules are written."""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import pytest

from ultimat3_jobs.drivers import Capability, Driver
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.records import (
    Claim,
    ClaimedJob,
    EnqueueRequest,
    Failure,
    QueueSelection,
    QueueStats,
    Receipt,
)

HOUR = 3_600.0  # seconds
LEASE = HOUR
MARGIN = 60.0  # seconds that a test may take without changing what it sees
PATIENCE = 60.0  # seconds until a thread counts as stuck
FAILURE = Failure("builtins.ValueError", "shop.jobs:12", "c" * 64, "no such order\nverdict: a test's")

Answer = TypeVar("Answer")


def request(key: str, **options: Any) -> EnqueueRequest:
    """Return an EnqueueRequest under `key`. The options are its fields; `input` is a JSON value that names the key."""
    text = msgspec.json.encode(options.pop("input", {"key": key})).decode()
    values: dict[str, Any] = {
        "id": uuid7(),
        "name": "shop.ship",
        "queue": "default",
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
        "tenant_id": "acme",
        "max_attempts": 3,
        "priority": 0,
    }
    return EnqueueRequest(idempotency_key=key, input=text, **(values | options))


def forged(claim: Claim) -> Claim:
    """Return a claim on the same job under a token that nobody was given."""
    return Claim(claim.id, uuid4())


def claims(jobs: Sequence[ClaimedJob]) -> list[Claim]:
    """Return the claims of claimed jobs."""
    return [job.claim for job in jobs]


def keys(jobs: Sequence[ClaimedJob]) -> list[str]:
    """Return the keys of claimed jobs whose inputs are those of `request`."""
    return [msgspec.json.decode(job.input)["key"] for job in jobs]


class _TakenBackError(Exception):
    """Rolls a transaction back."""


class Harness(ABC):
    """One queue under test. A driver's test implements `driver` and `advance`, the rest is for the rules."""

    @abstractmethod
    def driver(self) -> Driver:
        """Return the driver, as the calling thread is to use it."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Where the queue's clock cannot be moved, make all that it holds older by as much."""

    def transaction(self) -> AbstractContextManager[object]:
        """Open a transaction that the driver's writes of this thread join. Needed for JOINS_TRANSACTION."""
        raise NotImplementedError

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """Open a transaction that is rolled back at the end of the block."""
        with suppress(_TakenBackError), self.transaction():
            yield
            raise _TakenBackError

    def waits(self) -> bool:
        """Whether another thread's write waits for a transaction now; true where that cannot be seen."""
        return True

    def enqueue(self, *keys: str, **options: Any) -> list[Receipt]:
        """Queue one job for each key, in one batch."""
        return self.driver().enqueue([request(key, **options) for key in keys])

    def enqueue_one(self, key: str, **options: Any) -> Receipt:
        """Queue one job."""
        return self.enqueue(key, **options)[0]

    def claim(
        self,
        limit: int = 100,
        *,
        worker: str = "worker",
        lease: float = LEASE,
        only: Sequence[str] = (),
        excluded: Sequence[str] = (),
        lapsed: int = 100,
        begun: bool = True,
    ) -> list[ClaimedJob]:
        """Claim due jobs, and begin those that are on their last attempt unless told not to."""
        jobs = self.driver().claim(
            worker=worker,
            limit=limit,
            lease=timedelta(seconds=lease),
            queues=QueueSelection(only=tuple(only), excluded=tuple(excluded)),
            lapsed=lapsed,
        )
        last = [job.claim for job in jobs if job.attempt >= job.max_attempts]
        if begun and last:
            assert all(self.driver().begin(last))
        return jobs

    def running(self, *keys: str, **options: Any) -> list[Claim]:
        """Queue one job for each key and claim them all; return the claims in the order of the keys."""
        begun = options.pop("begun", True)
        receipts = self.enqueue(*keys, **options)
        by_id = {job.claim.id: job.claim for job in self.claim(len(keys), begun=begun)}
        return [by_id[receipt.id] for receipt in receipts]

    def lapse(self) -> None:
        """Let every lease run out that was taken or renewed for LEASE seconds or less."""
        self.advance(LEASE + MARGIN)

    def due(self, limit: int = 1_000) -> int:
        """Promote what has fallen due."""
        return self.driver().promote(limit=limit)

    def depth(self, queue: str = "default") -> QueueStats:
        """Return the depth of one queue; all zero where it has neither work nor dead letters."""
        nothing = QueueStats(
            queue=queue, ready=0, delayed=0, suspended=0, running=0, dead=0, oldest_ready_seconds=None, capped=False
        )
        return next((stats for stats in self.driver().stats() if stats.queue == queue), nothing)

    def buckets(self, queue: str = "default") -> dict[str, int]:
        """Return the counts of `depth` that are not zero."""
        depth = self.depth(queue)
        counts = {name: getattr(depth, name) for name in ("ready", "delayed", "suspended", "running", "dead")}
        return {name: count for name, count in counts.items() if count}

    def together(self, *callables: Callable[[], Any]) -> list[Any]:
        """Call each in a thread of its own, all at once, and return their answers in order; an error is raised."""
        start = threading.Barrier(len(callables), timeout=PATIENCE)
        answers: dict[int, Any] = {}
        errors: list[BaseException] = []

        def body(position: int) -> None:
            try:
                start.wait()
                answers[position] = callables[position]()
            except BaseException as error:  # raised in the test's own thread
                errors.append(error)
            finally:
                self.driver().close()

        threads = [threading.Thread(target=body, args=[n], daemon=True) for n in range(len(callables))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        if errors:
            raise errors[0]
        assert not any(thread.is_alive() for thread in threads), "a thread is stuck"
        return [answers[position] for position in range(len(callables))]

    def meanwhile(self, work: Callable[[], Answer]) -> Callable[[], Answer]:
        """Begin `work` in another thread, and return once it has ended or waits for the caller's transaction.

        What is returned waits for its answer: call it after the transaction.
        """
        ended = threading.Event()

        def watched() -> Answer:
            try:
                return work()
            finally:
                ended.set()

        answer = self.begun(watched)
        deadline = time.monotonic() + PATIENCE
        while not ended.is_set() and not self.waits():
            assert time.monotonic() < deadline, "the other thread neither ends nor waits"
            time.sleep(0.01)
        return answer

    def begun(self, work: Callable[[], Answer]) -> Callable[[], Answer]:
        """Begin `work` in another thread; what is returned waits for its answer."""
        started = threading.Event()
        answers: list[Answer] = []
        errors: list[BaseException] = []

        def body() -> None:
            started.set()
            try:
                answers.append(work())
            except BaseException as error:  # raised in the test's own thread
                errors.append(error)
            finally:
                self.driver().close()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        assert started.wait(PATIENCE)

        def answer() -> Answer:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the other thread is stuck"
            if errors:
                raise errors[0]
            return answers[0]

        return answer


class CapabilityRules:
    """Rules of a capability: skipped where the driver does not declare it."""

    needs: Capability

    @pytest.fixture(autouse=True)
    def _declared(self, harness: Harness) -> None:
        if self.needs not in harness.driver().capabilities:
            pytest.skip(f"the driver does not declare {self.needs.name}")
