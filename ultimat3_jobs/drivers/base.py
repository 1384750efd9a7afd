"""The driver contract (flow 4/7): what every queue promises, whatever it is made of.

Each method takes a batch. Every write by a worker is fenced on the token of its claim and is answered row by row:
whether it landed. State alone is no fence: the late write of a worker whose job was claimed again would otherwise
finish the other worker's run. Time is the queue's own, never the caller's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from enum import Flag, auto
from typing import ClassVar
from uuid import UUID

from ultimat3_jobs.records import (
    Ack,
    Claim,
    ClaimedJob,
    EnqueueRequest,
    Lapse,
    Nack,
    QueueSelection,
    QueueStats,
    Receipt,
    Renewal,
    RetryVerdict,
    Swept,
)


class Capability(Flag):
    """What a driver can do beyond the core."""

    PRIORITIES = auto()  # claims in the order of priority
    INTROSPECT = auto()  # finds the holder of a key, retries dead letters
    JOINS_TRANSACTION = auto()  # its writes can share the caller's database transaction


class Driver(ABC):
    """A queue. One instance serves one process and is safe to use from several threads."""

    capabilities: ClassVar[Capability]

    @abstractmethod
    def enqueue(self, requests: Sequence[EnqueueRequest]) -> list[Receipt]:
        """Queue jobs; where a live or holding row has the key already, join it.

        Returns:
            One receipt for each request, in their order.

        Raises:
            DriverUnavailable: where the queue cannot be reached or a key kept changing hands.
        """

    @abstractmethod
    def claim(
        self, *, worker: str, limit: int, lease: timedelta, queues: QueueSelection, lapsed: int = 1
    ) -> list[ClaimedJob]:
        """Take due jobs in the order (priority, run_at, id), each under a fresh token.

        Counts the attempt. Two claimers never get one job, and nobody gets more than `limit`.

        Args:
            worker: identity of the claiming process, kept on the rows.
            limit: jobs at most; 1 or more.
            lease: how long the claims hold without a heartbeat.
            queues: the queues to serve.
            lapsed: jobs at most, among them, whose earlier worker went silent. One of them may be what ended it, and
                whatever runs beside it would be ended with it once more.
        """

    @abstractmethod
    def ack(self, acks: Sequence[Ack]) -> list[bool]:
        """End jobs as done; tell for each whether its claim still owned the row, or had already ended it.

        Lands past the lease as long as no sweep has taken the token. A job that was asked again while it ran is
        followed by its successor in the same transaction.
        """

    @abstractmethod
    def nack(self, nacks: Sequence[Nack]) -> list[bool]:
        """Settle jobs that did not end well or did not run; tell for each whether it landed."""

    @abstractmethod
    def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewal]:
        """Renew leases; tell for each claim what was learnt. Never waits for a row that another writer has locked."""

    @abstractmethod
    def settled(self, claims: Sequence[Claim]) -> list[bool]:
        """Tell for each claim whether it has ended its job: the answer to a commit may have been lost."""

    @abstractmethod
    def begin(self, claims: Sequence[Claim]) -> list[bool]:
        """Mark last attempts as begun, before their bodies; tell for each whether its claim still owned the row.

        A last attempt that lapses without this mark did nothing and is given back.
        """

    def take_turn(self) -> None:  # noqa: B027 - most queues let writers work side by side
        """Where writers take turns, wait for it now: a transaction that has read may not write any more.

        Called in the open transaction of an atomic job. Needs JOINS_TRANSACTION.
        """

    @abstractmethod
    def promote(self, *, limit: int) -> int:
        """Make ready at most `limit` waiting jobs whose time has come; return how many."""

    @property
    @abstractmethod
    def one_writer(self) -> bool:
        """Whether writers take turns, so that one long transaction keeps every worker from renewing its leases."""

    @abstractmethod
    def lapsed(self, *, limit: int) -> list[Lapse]:
        """Look up at most `limit` running jobs whose leases have lapsed. Takes nothing and waits for nobody."""

    @abstractmethod
    def sweep(self, *, limit: int, seen: Sequence[Lapse] | None = None) -> list[Swept]:
        """Take at most `limit` jobs whose leases lapsed from their workers.

        They go back to their place in the order, or end dead where their attempts are used: a job that kills its
        process is not started for ever.

        Args:
            limit: jobs at most.
            seen: take of these alone, and not where a lease was renewed since it was seen. None: all that lapsed.
        """

    @abstractmethod
    def stats(self) -> list[QueueStats]:
        """Return the depth of every queue that has work or dead letters, sorted by name, without counting millions."""

    def find_holders(self, requests: Sequence[EnqueueRequest]) -> list[Receipt | None]:
        """Look up who holds each request's key, without waiting or writing. Needs INTROSPECT.

        Returns:
            For each request the receipt that joining would give now, or None where its key is free.
        """
        raise NotImplementedError

    def retry(self, ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[RetryVerdict]:
        """Start dead letters again, their attempts anew, history kept; one verdict each. Needs INTROSPECT.

        Args:
            ids: of the dead letters.
            by: who asked.
            reason: why.
        """
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - a driver without connections has nothing to let go
        """Let go of what the calling thread holds."""
