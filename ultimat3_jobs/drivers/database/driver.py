"""The driver contract over named statements on the project's own database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

from django.db import connections

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.drivers.base import Driver
from ultimat3_jobs.drivers.database import events, repairs, rows, settlements, steps
from ultimat3_jobs.drivers.database.enqueue import enqueue, find_holders
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
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import State

STATS_CAP = 10_000


class DatabaseDriver(Driver):
    """The queue in `x_jobs`: SKIP LOCKED on PostgreSQL, one writer at a time on SQLite."""

    capabilities: ClassVar[Capability] = (
        Capability.PRIORITIES
        | Capability.INTROSPECT
        | Capability.STEPS
        | Capability.EVENTS
        | Capability.JOINS_TRANSACTION
    )

    def enqueue(self, requests: Sequence[EnqueueRequest]) -> list[Receipt]:
        return enqueue(queue_alias(), requests) if requests else []

    def find_holders(self, requests: Sequence[EnqueueRequest]) -> list[Receipt | None]:
        return find_holders(queue_alias(), requests) if requests else []

    def claim(
        self, *, worker: str, limit: int, lease: timedelta, queues: QueueSelection, lapsed: int = 1
    ) -> list[ClaimedJob]:
        claimed = run(
            queue_alias(),
            "claim",
            {
                "worker": worker,
                "limit": limit,
                "lease": lease.total_seconds(),
                "only": rows.encode_names(queues.only),
                "excluded": rows.encode_names(queues.excluded),
                "lapsed": lapsed,
            },
        )
        # RETURNING gives rows in no order of its own.
        claimed.sort(key=lambda row: (-row[13], row[14], rows.uuid(row[0])))
        return [rows.claimed_job(row) for row in claimed]

    def ack(self, acks: Sequence[Ack]) -> list[bool]:
        return settlements.ack(queue_alias(), acks) if acks else []

    def nack(self, nacks: Sequence[Nack]) -> list[bool]:
        return settlements.nack(queue_alias(), nacks) if nacks else []

    def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewal]:
        if not claims:
            return []
        alias = queue_alias()
        batch = rows.encode(map(rows.claim_row, claims))
        renewed = set(map(rows.claim_of, run(alias, "heartbeat", {"rows": batch, "lease": lease.total_seconds()})))
        others = self._others(alias, [claim for claim in claims if claim not in renewed])
        return [Renewal.RENEWED if claim in renewed else others.get(claim, Renewal.LOST) for claim in claims]

    def progress(self, batch: Sequence[Progress]) -> list[bool]:
        if not batch:
            return []
        written = run(queue_alias(), "progress", {"rows": rows.encode(map(rows.progress_row, batch))})
        landed = set(map(rows.claim_of, written))
        return [one.claim in landed for one in batch]

    def settled(self, claims: Sequence[Claim]) -> list[bool]:
        return settlements.settled(queue_alias(), claims) if claims else []

    def begin(self, claims: Sequence[Claim]) -> list[bool]:
        if not claims:
            return []
        batch = rows.encode(map(rows.claim_row, claims))
        begun = set(map(rows.claim_of, run(queue_alias(), "begin", {"rows": batch})))
        return [claim in begun for claim in claims]

    def take_turn(self) -> None:
        if self.one_writer:
            run(queue_alias(), "begin", {"rows": rows.encode([])})

    def promote(self, *, limit: int) -> int:
        return events.promote(queue_alias(), limit=limit)

    @property
    def one_writer(self) -> bool:
        return bool(connections[queue_alias()].vendor == "sqlite")

    def lapsed(self, *, limit: int) -> list[Lapse]:
        return [rows.lapse(row) for row in run(queue_alias(), "lapsed", {"limit": limit})]

    def sweep(self, *, limit: int, seen: Sequence[Lapse] | None = None) -> list[Swept]:
        return settlements.sweep(queue_alias(), limit=limit, seen=seen)

    def stats(self) -> list[QueueStats]:
        found = []
        for queue, ready, delayed, suspended, running, dead, age in run(queue_alias(), "stats", {"cap": STATS_CAP}):
            found.append(
                QueueStats(
                    queue=queue,
                    ready=ready,
                    delayed=delayed,
                    suspended=suspended,
                    running=running,
                    dead=dead,
                    oldest_ready_seconds=None if age is None else float(age),
                    capped=STATS_CAP in (ready, delayed + suspended, running, dead),
                )
            )
        return found

    def retry(
        self, ids: Sequence[UUID], *, by: str = "", reason: str = "", from_step: str | None = None
    ) -> list[RetryVerdict]:
        return repairs.retry(queue_alias(), ids, by=by, reason=reason, from_step=from_step) if ids else []

    def cancel(self, ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[CancelVerdict]:
        return repairs.cancel(queue_alias(), ids, by=by, reason=reason) if ids else []

    def steps(self, run_id: UUID, *, budget: int) -> list[StoredStep]:
        return steps.read(queue_alias(), run_id, budget=budget)

    def step_output(self, run_id: UUID, name: str) -> str | None:
        return steps.output(queue_alias(), run_id, name)

    def record_step(self, claim: Claim, record: StepRecord) -> StoredStep | None:
        return steps.record(queue_alias(), claim, record)

    def checkpoint(self, claim: Claim, record: StepRecord) -> bool:
        return steps.checkpoint(queue_alias(), claim, record)

    def recorded(self, claim: Claim, name: str) -> bool:
        return steps.recorded(queue_alias(), claim, name)

    def publish(self, published: Sequence[Event]) -> None:
        if published:
            events.publish(queue_alias(), published)

    def wake(self, published: Sequence[Event], *, limit: int) -> int:
        return events.wake(queue_alias(), published, limit=limit) if published else 0

    def look_again(self, job_ids: Sequence[UUID]) -> int:
        return events.look_again(queue_alias(), job_ids) if job_ids else 0

    def wait(self, claim: Claim, wait: Wait) -> WaitAnswer | None:
        return events.wait(queue_alias(), claim, wait)

    def prune_events(self, *, limit: int) -> int:
        return len(run(queue_alias(), "prune_events", {"limit": limit}))

    def close(self) -> None:
        connections[queue_alias()].close()

    def _others(self, alias: str, claims: Sequence[Claim]) -> dict[Claim, Renewal]:
        """Tell of claims that were not renewed which are still held, and which were cancelled."""
        if not claims:
            return {}
        found = run(alias, "held", {"rows": rows.encode(map(rows.claim_row, claims))})
        return {rows.claim_of(row): Renewal.CANCELLED if row[2] == State.CANCELLED else Renewal.BUSY for row in found}
