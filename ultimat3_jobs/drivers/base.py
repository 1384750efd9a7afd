"""The driver contract (flow 4/7): what every queue promises, whatever it is made of.

Each method takes a batch. Every write by a worker is fenced on the token of its claim and is answered row by row:
whether it landed. State alone is no fence: the late write of a worker whose job was claimed again would otherwise
finish the other worker's run. Time is the queue's own, never the caller's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

from ultimat3_jobs.records import (
    Ack,
    CancelVerdict,
    Capability,
    Claim,
    ClaimedJob,
    EnqueueRequest,
    Event,
    Lapse,
    Nack,
    Progress,
    QueueSelection,
    QueueStats,
    Receipt,
    Renewal,
    RetryVerdict,
    StepRecord,
    StoredStep,
    Swept,
    Wait,
    WaitAnswer,
)


class Driver(ABC):
    """A queue. One instance serves one process and is safe to use from several threads."""

    capabilities: ClassVar[Capability]

    @abstractmethod
    def enqueue(self, requests: Sequence[EnqueueRequest]) -> list[Receipt]:
        """Queue jobs; where a live or holding row has the key already, join it.

        A request whose id was queued before and whose key is held is answered as queued, whatever has become of it:
        a relay that cannot know whether it published may do so again. One whose key is free fails then, and
        `find_holders` tells it from others.

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
    def progress(self, batch: Sequence[Progress]) -> list[bool]:
        """Keep how far runs are; tell for each whether it landed.

        Never waits for a row that another writer has locked: what did not land is told again by the next batch. It
        renews no lease.
        """

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
        """Make ready at most `limit` waiting jobs whose time has come; return how many.

        A run that waits for an event becomes ready where the event is there or the wait is over, and is otherwise
        looked at again after its `poll`.
        """

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
            For each request the receipt that joining would give now, or None where its key is free. A request that was
            queued before gets its own job's.
        """
        raise NotImplementedError

    def retry(
        self, ids: Sequence[UUID], *, by: str = "", reason: str = "", from_step: str | None = None
    ) -> list[RetryVerdict]:
        """Start dead letters again, their attempts anew, history kept; one verdict each. Needs INTROSPECT.

        What they recorded is kept and not done again, but for what `from_step` names. The history says so.

        Of several dead letters of one key the newest (by id) is started. A key that is held, or taken meanwhile, keeps
        its dead letter from starting and no other.

        Args:
            ids: of the dead letters.
            by: who asked; longer text than 255 characters is cut, as `reason` is.
            reason: why.
            from_step: forget the recorded step of this name and all that was recorded after it, in the same
                transaction: they are done again. A letter that has not recorded it is not started. Needs STEPS.
        """
        raise NotImplementedError

    def cancel(self, ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[CancelVerdict]:
        """End live jobs as cancelled at once, and free their keys; one verdict each. Needs INTROSPECT.

        The claim of a running job is taken from its worker: its next heartbeat answers CANCELLED, and it can settle
        nothing, although its body may still be unwinding. What a job was asked to run again for is dropped.

        Args:
            ids: of the jobs.
            by: who asked; longer text than 255 characters is cut, as `reason` is.
            reason: why.
        """
        raise NotImplementedError

    def steps(self, run_id: UUID, *, budget: int) -> list[StoredStep]:
        """Read all that a run has recorded, in its order, in one go. Needs STEPS.

        Args:
            run_id: the run.
            budget: bytes of outputs at most; those behind are left out, and `step_output` reads each.
        """
        raise NotImplementedError

    def step_output(self, run_id: UUID, name: str) -> str | None:
        """Read the output (JSON) of one recorded step. Needs STEPS."""
        raise NotImplementedError

    def record_step(self, claim: Claim, record: StepRecord) -> StoredStep | None:
        """Record a step, fenced on the claim; return it as stored, or None where the claim owns its job no longer.

        Needs STEPS. In an open transaction it is the fence of all that was written there: no sweep takes the job
        before the transaction ends, so it must be the last statement. To record a step again changes nothing.
        """
        raise NotImplementedError

    def checkpoint(self, claim: Claim, record: StepRecord) -> bool:
        """Write a record anew and count the job's attempts anew: it has got on. Tell whether it landed. Needs STEPS.

        Fenced on the claim, and nothing is written where it is refused; but in an open transaction it is the fence of
        all that was written there: it must be the last statement, and where it did not land the transaction must be
        rolled back.
        """
        raise NotImplementedError

    def recorded(self, claim: Claim, name: str) -> bool:
        """Whether the claim still owns its job and this step is recorded: the answer to a commit may have been lost.

        Needs STEPS.
        """
        raise NotImplementedError

    def publish(self, events: Sequence[Event]) -> None:
        """Store events in their order; one that is stored already changes nothing. Needs EVENTS."""
        raise NotImplementedError

    def wake(self, events: Sequence[Event], *, limit: int) -> int:
        """Make ready at most `limit` suspended runs that wait for these events; return how many. Needs EVENTS.

        Called when the events are committed, so that a run which is just parking sees them or is seen here.
        """
        raise NotImplementedError

    def look_again(self, job_ids: Sequence[UUID]) -> int:
        """Make ready those of these suspended runs whose event is there by now; return how many. Needs EVENTS.

        Called when their suspension is committed: the other half of what `wake` does.
        """
        raise NotImplementedError

    def wait(self, claim: Claim, wait: Wait) -> WaitAnswer | None:
        """Record a wait and give it the first event that it may have, fenced on the claim. Needs EVENTS.

        That is the first in the order of publication that matches, was published after the job was enqueued, has not
        expired and was not given to this run before. Without one the wait times out where its time has passed.

        Returns:
            How the wait stands, or None where the claim owns its job no longer.
        """
        raise NotImplementedError

    def prune_events(self, *, limit: int) -> int:
        """Delete at most `limit` events that have expired; return how many. Needs EVENTS."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - a driver without connections has nothing to let go
        """Let go of what the calling thread holds."""
