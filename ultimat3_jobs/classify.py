"""What a failed attempt means for its job: pure decisions from the error, the policy and the count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ultimat3_jobs.durations import format_duration
from ultimat3_jobs.failures import class_name
from ultimat3_jobs.retry import Retry
from ultimat3_jobs.states import Stop


@dataclass(frozen=True)
class Decision:
    """What follows a failed attempt: another after `delay`, or the end for the reason `stop`."""

    verdict: str
    stop: Stop | None = None
    delay: timedelta = timedelta(0)


def decide(error: BaseException, *, attempt: int, max_attempts: int, retry: Retry, hopeless: str = "") -> Decision:
    """Return what follows. Never raises.

    Args:
        error: what the attempt raised.
        attempt: its number; 1 is the first.
        max_attempts: attempts at most, as stored with the job.
        retry: the job's policy.
        hopeless: why a further attempt would end the same way whatever the policy says; empty where it may not.
    """
    ending = "dead" if retry.dead_letter else "failed"
    rule = hopeless
    if not rule and (kind := _matching(error, retry.terminal)):
        rule = f"{class_name(kind)} is terminal for this job"
    if rule:
        return Decision(f"{ending} ({Stop.TERMINAL}): {rule}; attempt {attempt} of {max_attempts}", stop=Stop.TERMINAL)
    if attempt >= max_attempts:
        return Decision(
            f"{ending} ({Stop.EXHAUSTED}): attempt {attempt} of {max_attempts} was the last", stop=Stop.EXHAUSTED
        )
    delay = retry.delay_after(attempt)
    return Decision(f"retry in {format_duration(delay)}: attempt {attempt} of {max_attempts} failed", delay=delay)


def _matching(error: BaseException, kinds: tuple[type[BaseException], ...]) -> type[BaseException] | None:
    # Not isinstance: an exception can lie about its class, or raise where it is asked.
    classes = type.mro(type(error))
    return next((kind for kind in kinds if any(one is kind for one in classes)), None)
