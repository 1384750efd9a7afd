"""The states of a job and the legal moves between them: the one place that says so.

Models, statements and decoding derive from this table; a test walks every edge.
"""

from __future__ import annotations

from enum import StrEnum

from ultimat3_jobs.errors import RowStatusUnknown


class State(StrEnum):
    """Where a job is."""

    READY = "ready"  # due, waiting for a worker
    DELAYED = "delayed"  # due later: asked for later, or waiting for its next attempt
    RUNNING = "running"  # claimed, under a lease
    SUSPENDED = "suspended"  # parked: asleep, waiting, or of a name that no running code knows
    DONE = "done"  # the body ended well
    FAILED = "failed"  # exhausted, and its policy keeps no dead letter
    DEAD = "dead"  # a dead letter: failed work that can be retried
    CANCELLED = "cancelled"  # stopped by a person; no bulk retry brings it back


class Stop(StrEnum):
    """Why a job ended without being done."""

    TERMINAL = "terminal"
    EXHAUSTED = "attempts-exhausted"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker-lost"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """What moves a job from one state to another."""

    PROMOTION = "its time came"
    EVENT = "the event came that it waits for"
    CLAIM = "a worker claimed it"
    SUCCESS = "its body ended well"
    FAILURE = "its body failed and may try again"
    EXHAUSTION = "its body failed for the last time"
    SUSPENSION = "its body suspended, or no running code knows its name"
    HAND_BACK = "its worker gave it back unstarted or unfinished"
    LAPSE = "its lease lapsed"
    CANCEL = "a person cancelled it"
    RETRY = "a person retried it"


LIVE = (State.READY, State.DELAYED, State.RUNNING, State.SUSPENDED)
FINAL = (State.DONE, State.FAILED, State.DEAD, State.CANCELLED)
WAITING = (State.DELAYED, State.SUSPENDED)
RETRYABLE = (State.DEAD, State.FAILED)

MOVES: dict[tuple[State, State], frozenset[Cause]] = {
    (State.DELAYED, State.READY): frozenset({Cause.PROMOTION}),
    (State.SUSPENDED, State.READY): frozenset({Cause.PROMOTION, Cause.EVENT}),
    (State.READY, State.RUNNING): frozenset({Cause.CLAIM}),
    (State.RUNNING, State.DONE): frozenset({Cause.SUCCESS}),
    (State.RUNNING, State.DELAYED): frozenset({Cause.FAILURE}),
    (State.RUNNING, State.SUSPENDED): frozenset({Cause.SUSPENSION}),
    (State.RUNNING, State.READY): frozenset({Cause.HAND_BACK, Cause.LAPSE}),
    (State.RUNNING, State.DEAD): frozenset({Cause.EXHAUSTION, Cause.LAPSE}),
    (State.RUNNING, State.FAILED): frozenset({Cause.EXHAUSTION}),
    (State.RUNNING, State.CANCELLED): frozenset({Cause.CANCEL}),
    (State.READY, State.CANCELLED): frozenset({Cause.CANCEL}),
    (State.DELAYED, State.CANCELLED): frozenset({Cause.CANCEL}),
    (State.SUSPENDED, State.CANCELLED): frozenset({Cause.CANCEL}),
    (State.DEAD, State.READY): frozenset({Cause.RETRY}),
    (State.FAILED, State.READY): frozenset({Cause.RETRY}),
}
"""Every legal move with what may cause it. A move that is not here does not happen."""


def may_move(before: State, after: State) -> bool:
    """Whether a job may go from `before` to `after`."""
    return (before, after) in MOVES


def parse_state(text: str) -> State:
    """Return the state that a row carries.

    Raises:
        RowStatusUnknown: where a newer or a foreign build wrote a state that this one does not know.
    """
    try:
        return State(text)
    except ValueError:
        raise RowStatusUnknown(
            f"a row carries the state {text!r}, which this build does not know; it knows {', '.join(State)}",
            fix="deploy the release of ultimat3_jobs that wrote the row, or set the row's state to one of these",
        ) from None
