"""Frozen values that cross the driver contract.

Each is what one side tells the other and nothing more; drivers turn them into rows and back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Flag, StrEnum, auto
from uuid import UUID

import msgspec

from ultimat3_jobs.states import Stop


class Capability(Flag):
    """What a driver can do beyond the core."""

    PRIORITIES = auto()  # claims in the order of priority
    INTROSPECT = auto()  # finds the holder of a key, retries dead letters, cancels
    STEPS = auto()  # records the steps of runs
    EVENTS = auto()  # stores events and wakes the runs that wait for them
    JOINS_TRANSACTION = auto()  # its writes can share the caller's database transaction


class EnqueueRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One job to be queued: all that a row needs, complete without the code that declared it."""

    id: UUID
    name: str
    queue: str
    input: str  # canonical JSON of the typed input
    fingerprint: str  # digest of `input`
    idempotency_key: str
    tenant_id: str | None
    max_attempts: int
    priority: int
    run_at: datetime | None = None  # None: `delay` after the moment the database takes it
    delay: float = 0.0  # seconds
    dedupe_for: float | None = None  # seconds from the enqueue for which a done row goes on holding the key
    while_running: str = "join"
    on_key_reuse: str = "error"
    enqueued_by: str = ""
    traceparent: str = ""
    requested_at: datetime | None = None  # when it was staged; None: now, by the database's clock

    @property
    def namespace(self) -> tuple[str, str, str]:
        """What must be unique among the rows that hold their key."""
        return (self.name, self.tenant_id or "", self.idempotency_key)


class Receipt(msgspec.Struct, frozen=True):
    """What became of one EnqueueRequest."""

    id: UUID  # of the row that represents the work
    run_id: UUID
    joined: bool = False  # a row already held the key
    reused: bool = False  # and that row has another input
    asked_again: bool = False  # and that row will be followed by a new one when it ends

    @property
    def refused(self) -> bool:
        """Whether nothing represents this work: its key is held by a row with another input."""
        return self.reused and not self.joined


class QueueSelection(msgspec.Struct, frozen=True):
    """The queues a worker serves: all, or `only` these; never the `excluded`."""

    only: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """The right to write for one attempt of one job. Every claim has a token of its own."""

    id: UUID
    token: UUID


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its worker gets it."""

    claim: Claim
    run_id: UUID
    name: str
    queue: str
    input: str
    tenant_id: str | None
    attempt: int  # this one included
    max_attempts: int
    lapses: int  # times in a row that its worker went silent
    parks: int  # times it was parked because no running code knew its name
    enqueued_by: str
    traceparent: str


class Ack(msgspec.Struct, frozen=True):
    """The body ended well."""

    claim: Claim
    result: str | None = None  # JSON
    progress: str | None = None  # JSON of the last one that the body told; None leaves the row's


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt ended badly, in bounded text that every database takes."""

    error_class: str
    error_place: str
    cause: str  # groups failures of one class at one place of one job
    text: str  # all of it and, last, the verdict: kept on the job
    # Kept apart in the history.
    message: str = ""
    traceback: str = ""  # with its causes and the members of a group
    rule: str = ""  # what classified the error


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run lets go of its worker, and when it is to be looked at again. Times are the queue's."""

    reason: str  # for people
    delay: float = 0.0  # seconds, where `until` is None
    until: datetime | None = None  # of a wait: when it is over without its event; None waits for ever
    event: str = ""  # what it waits for; empty where it merely sleeps
    match: str = ""  # what the event must match; empty takes every event of the name
    poll: float | None = None  # seconds between two looks for the event, should no publication wake it


class NackKind(StrEnum):
    """What a nack asks for. Parking and counting are two facts, and each kind settles both."""

    RETRY = "retry"  # the attempt counts; delayed until it is due
    BURY = "bury"  # the attempt counts and was the last; dead, or failed without a dead letter
    PARK = "park"  # does not count; suspended until it is due
    HAND_BACK = "hand-back"  # does not count; ready at once
    SUSPEND = "suspend"  # does not count; suspended until it is due, or until an event wakes it


class Nack(msgspec.Struct, frozen=True, kw_only=True):
    """The body did not end well, or did not run. Build it with the constructor of its kind."""

    claim: Claim
    kind: NackKind
    delay: float = 0.0  # seconds
    failure: Failure | None = None
    stop: Stop | None = None
    dead_letter: bool = True
    park_reason: str = ""
    suspension: Suspension | None = None
    progress: str | None = None  # JSON of the last one that the body told; None leaves the row's

    @classmethod
    def retry(cls, claim: Claim, *, delay: timedelta, failure: Failure) -> Nack:
        """The attempt failed and counts; another follows after `delay`."""
        return cls(claim=claim, kind=NackKind.RETRY, delay=delay.total_seconds(), failure=failure)

    @classmethod
    def bury(cls, claim: Claim, *, stop: Stop, failure: Failure, dead_letter: bool = True) -> Nack:
        """The attempt failed and no other follows, for the reason `stop`."""
        return cls(claim=claim, kind=NackKind.BURY, stop=stop, failure=failure, dead_letter=dead_letter)

    @classmethod
    def park(cls, claim: Claim, *, delay: timedelta, reason: str) -> Nack:
        """Look again after `delay`; nothing ran, so no attempt is burnt."""
        return cls(claim=claim, kind=NackKind.PARK, delay=delay.total_seconds(), park_reason=reason)

    @classmethod
    def suspend(cls, claim: Claim, suspension: Suspension) -> Nack:
        """The body suspended itself; no attempt is burnt."""
        return cls(claim=claim, kind=NackKind.SUSPEND, park_reason=suspension.reason, suspension=suspension)

    @classmethod
    def hand_back(cls, claim: Claim) -> Nack:
        """Give the job back as it was claimed, without burning an attempt."""
        return cls(claim=claim, kind=NackKind.HAND_BACK)


class Renewal(StrEnum):
    """What a heartbeat learnt of one claim."""

    RENEWED = "renewed"
    BUSY = "busy"  # still ours; its row was locked and will be renewed by the next heartbeat
    LOST = "lost"  # another claim, a sweep or a settlement owns the row now
    CANCELLED = "cancelled"  # a person has ended the job; nobody runs it again


class Progress(msgspec.Struct, frozen=True):
    """How far a run says it is."""

    claim: Claim
    text: str  # JSON: {"done": number, "total": number or null}


class Lapse(msgspec.Struct, frozen=True):
    """A running job whose lease had lapsed when it was looked at."""

    id: UUID
    visible_at: str  # when the lease ended, as the queue writes it


class LapseKind(StrEnum):
    """What a sweep makes of a lapsed job."""

    AGAIN = "again"  # the attempt counts, and another follows
    UNBEGUN = "unbegun"  # it was the last attempt, and its body had not begun: given back
    LOST = "lost"  # it was the last attempt: dead


class Swept(msgspec.Struct, frozen=True):
    """A job whose lease had lapsed, and where the sweep put it."""

    id: UUID
    name: str
    worker: str
    state: str


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The depth of one queue. Every row is in exactly one bucket; counts stop at the driver's cap."""

    queue: str
    ready: int
    delayed: int
    suspended: int
    running: int
    dead: int
    oldest_ready_seconds: float | None
    capped: bool  # at least one count stopped at the cap: there are at least that many


class RetryVerdict(StrEnum):
    """What became of one request to start a finished job again."""

    RETRIED = "retried"
    NOT_FOUND = "not-found"
    NOT_RETRYABLE = "not-retryable"  # live, done, cancelled, or in a state that this build does not know
    KEY_HELD = "key-held"  # another row has taken its key since
    SUPERSEDED = "superseded"  # a newer dead letter of its key was retried by the same call
    NO_STEP = "no-step"  # it has not recorded the step from which it was to start again


class CancelVerdict(StrEnum):
    """What became of one request to cancel a job."""

    CANCELLED = "cancelled"
    NOT_FOUND = "not-found"
    NOT_CANCELLABLE = "not-cancellable"  # it has ended, or is in a state that this build does not know


class StepKind(StrEnum):
    """What a recorded step of a run is."""

    STEP = "step"  # a call whose result is recorded
    SLEEP = "sleep"
    WAIT = "wait"  # for an event
    CURSOR = "cursor"  # how far a sweep is; the one record that is written again and again


class StepState(StrEnum):
    """How far a recorded step is."""

    DONE = "done"
    WAITING = "waiting"  # a sleep until its time, a wait until its event or its time-out
    TIMED_OUT = "timed-out"  # a wait whose event did not come in time


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it is recorded."""

    run_id: UUID
    name: str
    seq: int  # order of recording in the run; 1 is the first
    kind: StepKind
    state: StepState
    attempt: int  # of the job
    output: str | None = None  # JSON
    delay: float | None = None  # seconds from now at which a sleep or a wait is over
    took: float = 0.0  # seconds that the call took


class StoredStep(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded step as a run reads it back."""

    name: str
    seq: int
    kind: str  # a StepKind, or one that a newer build wrote
    state: str  # a StepState, or one that a newer build wrote
    output: str | None  # JSON
    left_out: bool = False  # the output is there, and was left out of this reading for its size
    until: datetime | None = None
    is_over: bool = False  # whether `until` has passed


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is published."""

    staged_id: UUID  # a second publication of it changes nothing
    name: str
    match: str  # canonical JSON of flat scalars; empty matches waits that ask for nothing alone
    payload: str | None  # JSON
    ttl: float  # seconds from its publication
    requested_at: datetime | None = None  # when it was staged; None: now, by the queue's clock

    @property
    def id(self) -> UUID:
        """What it is known by until it is stored, as a request is."""
        return self.staged_id


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A run's wait for an event, as it is looked up and recorded."""

    record: StepRecord
    event: str
    match: str


class WaitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a wait came to."""

    state: str  # a StepState
    output: str | None  # JSON of the event: its payload and when it was published
    until: datetime | None
