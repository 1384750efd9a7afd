"""How a run lets go of its worker: it sleeps, waits for an event, or comes back later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ultimat3_jobs.errors import EventTimeout, StepInvalid
from ultimat3_jobs.outputs import OutputCodec
from ultimat3_jobs.records import StepKind, StepState, StoredStep, Suspension, Wait, WaitAnswer

if TYPE_CHECKING:
    from ultimat3_jobs.steps.steps import Steps


class ReceivedEvent(msgspec.Struct, frozen=True):
    """An event that a run waited for.

    Attributes:
        name: of the event.
        payload: what was published with it, in the type that the wait declares.
        published_at: when it was published.
    """

    name: str
    payload: Any
    published_at: datetime


class _Stored(msgspec.Struct, frozen=True):
    payload: msgspec.Raw
    published_at: str


def sleep(steps: Steps, name: str | None, length: timedelta) -> None:
    """Return where the time is over; otherwise record until when the run sleeps, and suspend it."""
    steps.check()
    name = steps.name_of(name, StepKind.SLEEP)
    steps.require_a_place(f"sleep {name!r}")
    stored: StoredStep | None = steps.take(name, StepKind.SLEEP)
    if stored is None:
        record = steps.record(name, StepKind.SLEEP, state=StepState.WAITING, delay=max(0.0, length.total_seconds()))
        stored = steps.landed(steps.driver.record_step(steps.job.claim, record))
        if length <= timedelta(0):
            return
    if stored.is_over:
        return
    steps.suspend(Suspension(reason=f"asleep until {_moment(stored.until)} ({name})", until=stored.until))


def snooze(steps: Steps, length: timedelta) -> None:
    """Suspend the run for a while; nothing is recorded of it."""
    steps.check()
    steps.require_a_place("a snooze")
    steps.suspend(Suspension(reason="snoozing: it asked to come back later", delay=max(0.0, length.total_seconds())))


def wait_for_event(
    steps: Steps,
    name: str,
    event: str,
    *,
    match: str,
    timeout: timedelta | None,
    required: bool,
    returns: Any,
) -> ReceivedEvent | None:
    """Return the event, or None where the wait timed out; otherwise suspend the run until one of the two.

    Raises:
        EventTimeout: where the event is required and the wait timed out.
    """
    steps.check()
    name = steps.name_of(name, StepKind.WAIT)
    steps.require_a_place(f"wait {name!r}")
    if timeout is not None and timeout <= timedelta(0):
        raise StepInvalid(
            f"the wait {name!r} has a timeout of zero or less", fix='run.wait_for_event(..., timeout="3d")'
        )
    codec = OutputCodec(Any if returns is None else returns)
    answer = _ask(steps, name, event, match, timeout)
    if answer.state == StepState.DONE:
        return _received(steps, name, event, answer.output, codec)
    if answer.state == StepState.TIMED_OUT:
        if required:
            raise EventTimeout(
                f"the event {event!r} did not come until {_moment(answer.until)}, and {steps.job.name} requires it",
                fix=f"python manage.py jobs retry {steps.job.claim.id} --from-step {name!r}  # waits for it anew",
            )
        return None
    return steps.suspend(
        Suspension(
            reason=_waiting(name, event, answer.until),
            until=answer.until,
            event=event,
            match=match,
            poll=steps.event_poll.total_seconds(),
        )
    )


def _ask(steps: Steps, name: str, event: str, match: str, timeout: timedelta | None) -> WaitAnswer:
    """Return how a wait stands: as it is recorded where it has ended, otherwise as the queue says now."""
    stored = steps.take(name, StepKind.WAIT)
    if stored is not None and stored.state != StepState.WAITING:
        return WaitAnswer(state=stored.state, output=stored.output, until=stored.until)
    delay = None if timeout is None else timeout.total_seconds()
    record = steps.record(name, StepKind.WAIT, state=StepState.WAITING, delay=delay)
    return steps.landed(steps.driver.wait(steps.job.claim, Wait(record=record, event=event, match=match)))


def _waiting(name: str, event: str, until: datetime | None) -> str:
    # Without the match, which may hold what no list and no log should show.
    end = f", until {_moment(until)}" if until else ""
    return f"waits for the event {event!r}{end} ({name})"


def _received(steps: Steps, name: str, event: str, output: str | None, codec: OutputCodec) -> ReceivedEvent:
    held = msgspec.json.decode(output or "{}", type=_Stored)
    stored = StoredStep(name=name, seq=0, kind=StepKind.WAIT, state=StepState.DONE, output=bytes(held.payload).decode())
    published_at = datetime.fromisoformat(held.published_at).replace(tzinfo=UTC)
    return ReceivedEvent(event, steps.decode(codec, stored), published_at)


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
