"""How a run lets go of its worker: it sleeps, waits for an event, or comes back later."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ultimat3_jobs.durations import Duration
from ultimat3_jobs.errors import EventTimeout, StepInvalid
from ultimat3_jobs.event_checks import MatchValue, check_event_name, match_text
from ultimat3_jobs.moments import instant
from ultimat3_jobs.outputs import OutputCodec
from ultimat3_jobs.records import Capability, StepKind, StepState, StoredStep, Suspension, Wait, WaitAnswer
from ultimat3_jobs.steps.asked import check_length, check_name

if TYPE_CHECKING:
    from ultimat3_jobs.steps.steps import Steps

Payload = TypeVar("Payload")


class ReceivedEvent(msgspec.Struct, Generic[Payload], frozen=True):
    """An event that a run waited for.

    Attributes:
        name: of the event.
        payload: what was published with it, in the type that the wait declares.
        published_at: when it was published.
    """

    name: str
    payload: Payload
    published_at: datetime


_WITH_TIMEOUT = 'run.wait_for_event(..., timeout="3d")'


class _Stored(msgspec.Struct, frozen=True):
    payload: msgspec.Raw
    published_at: str


def sleep(steps: Steps, first: Any, second: Any) -> None:
    """Return where the time is over; otherwise record until when the run sleeps, and suspend it.

    Args:
        steps: of the run.
        first: the name of the sleep; its duration where that is all that was given.
        second: its duration, or None.
    """
    name, duration = (None, first) if second is None else (first, second)
    length = check_length("sleep", duration, fix='run.sleep("3d")')
    steps.check()
    name = steps.name_of(name, StepKind.SLEEP)
    steps.require(Capability.STEPS, f"sleep {name!r}")
    steps.require_a_place(f"sleep {name!r}")
    stored: StoredStep | None = steps.take(name, StepKind.SLEEP)
    if stored is None:
        record = steps.record(name, StepKind.SLEEP, state=StepState.WAITING, delay=max(0.0, length.total_seconds()))
        stored = steps.landed(steps.driver.record_step(steps.job.claim, record))
        if length <= timedelta(0):
            return
    if stored.is_over:
        return
    steps.suspend(Suspension(reason=f"asleep until {instant(stored.until)} ({name})", until=stored.until))


def snooze(steps: Steps, duration: Duration) -> None:
    """Suspend the run for a while; nothing is recorded of it."""
    length = check_length("snooze", duration, fix='run.snooze("5m")')
    steps.check()
    steps.require_a_place("a snooze")
    steps.suspend(Suspension(reason="snoozing: it asked to come back later", delay=max(0.0, length.total_seconds())))


def wait_for_event(
    steps: Steps,
    name: str,
    event: str,
    *,
    match: Mapping[str, MatchValue] | None,
    timeout: Duration | None,
    required: bool,
    returns: Any,
) -> ReceivedEvent[Any] | None:
    """Return the event, or None where the wait timed out; otherwise suspend the run until one of the two.

    Raises:
        EventTimeout: where the event is required and the wait timed out.
    """
    name = check_name(name)
    event, matched = check_event_name(event), match_text(match)
    longest = None if timeout is None else check_length("timeout", timeout, fix=_WITH_TIMEOUT)
    if longest is not None and longest <= timedelta(0):
        raise StepInvalid(f"the wait {name!r} has a timeout of zero or less", fix=_WITH_TIMEOUT)
    codec = OutputCodec(Any if returns is None else returns)
    steps.check()
    steps.require(Capability.STEPS | Capability.EVENTS, f"wait {name!r}")
    steps.require_a_place(f"wait {name!r}")
    answer = _ask(steps, name, event, matched, longest)
    if answer.state == StepState.DONE:
        return _received(steps, name, event, answer.output, codec)
    if answer.state == StepState.TIMED_OUT:
        if required:
            raise EventTimeout(
                f"the event {event!r} did not come until {instant(answer.until)}, and {steps.job.name} requires it",
                fix=f"python manage.py jobs retry {steps.job.claim.id} --from-step {shlex.quote(name)}  # waits anew",
            )
        return None
    return steps.suspend(
        Suspension(
            reason=_waiting(name, event, answer.until),
            until=answer.until,
            event=event,
            match=matched,
            poll=steps.event_poll.total_seconds(),
        )
    )


def _ask(steps: Steps, name: str, event: str, match: str, timeout: timedelta | None) -> WaitAnswer:
    """Return how a wait stands: as it is recorded where it has ended, otherwise as the queue says now."""
    stored = steps.take(name, StepKind.WAIT)
    if stored is not None and stored.state != StepState.WAITING:
        return WaitAnswer(state=stored.state, output=stored.output, until=stored.until)
    delay = None if timeout is None else timeout.total_seconds()
    seq = None if stored is None else stored.seq
    record = steps.record(name, StepKind.WAIT, state=StepState.WAITING, delay=delay, seq=seq)
    return steps.landed(steps.driver.wait(steps.job.claim, Wait(record=record, event=event, match=match)))


def _waiting(name: str, event: str, until: datetime | None) -> str:
    # Without the match, which may hold what no list and no log should show.
    end = f", until {instant(until)}" if until else ""
    return f"waits for the event {event!r}{end} ({name})"


def _received(steps: Steps, name: str, event: str, output: str | None, codec: OutputCodec) -> ReceivedEvent[Any]:
    held = msgspec.json.decode(output or "{}", type=_Stored)
    stored = StoredStep(name=name, seq=0, kind=StepKind.WAIT, state=StepState.DONE, output=bytes(held.payload).decode())
    published_at = datetime.fromisoformat(held.published_at).replace(tzinfo=UTC)
    return ReceivedEvent(event, steps.decode(codec, stored), published_at)
