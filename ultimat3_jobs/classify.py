"""What a failed attempt means for its job: pure decisions from the error, the policy and the count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ultimat3_jobs.durations import format_duration, parse_duration
from ultimat3_jobs.error_registry import ErrorRetry, find_by_class, find_by_code
from ultimat3_jobs.errors import JobTimeout
from ultimat3_jobs.retry import Retry
from ultimat3_jobs.retry_after import read_retry_after
from ultimat3_jobs.states import Stop
from ultimat3_jobs.traces import class_name


@dataclass(frozen=True)
class Decision:
    """What follows a failed attempt: another after `delay`, or the end for the reason `stop`."""

    verdict: str
    stop: Stop | None = None
    delay: timedelta = timedelta(0)
    rule: str = ""
    """What classified the error; empty where nothing did and the attempt count alone decides."""


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
    answer, rule = (ErrorRetry.TERMINAL, hopeless) if hopeless else _classify(error, retry)
    if answer is ErrorRetry.TERMINAL:
        verdict = f"{ending} ({Stop.TERMINAL}): {rule}; attempt {attempt} of {max_attempts}"
        return Decision(verdict, stop=Stop.TERMINAL, rule=rule)
    if attempt >= max_attempts:
        last = f"attempt {attempt} of {max_attempts} was the last"
        if _matching(error, (JobTimeout,)):
            return Decision(f"{ending} ({Stop.TIMEOUT}): {last}, and ran out of time", stop=Stop.TIMEOUT, rule=rule)
        return Decision(f"{ending} ({Stop.EXHAUSTED}): {last}", stop=Stop.EXHAUSTED, rule=rule)
    said = read_retry_after(error) if answer is ErrorRetry.RETRY_AFTER else None
    failed = f"attempt {attempt} of {max_attempts} failed"
    if said is not None:
        delay = min(said, parse_duration(retry.max_delay))
        return Decision(f"retry in {format_duration(delay)}, as the error says: {failed}", delay=delay, rule=rule)
    delay = retry.delay_after(attempt)
    return Decision(f"retry in {format_duration(delay)}: {failed}", delay=delay, rule=rule)


def _classify(error: BaseException, retry: Retry) -> tuple[ErrorRetry | None, str]:
    """Return the answer and the rule that gave it: the job's own first, then the nearest class, then the code."""
    own = _matching(error, retry.terminal)
    if own:
        return ErrorRetry.TERMINAL, f"{class_name(own)} is terminal for this job"
    by_class = find_by_class(type(error))
    if by_class:
        return by_class[1], f"{class_name(by_class[0])} is {by_class[1]}"
    by_code = find_by_code(error)
    if by_code:
        return by_code[1], f"code {by_code[0]} is {by_code[1]}"
    return None, ""


def _matching(error: BaseException, kinds: tuple[type[BaseException], ...]) -> type[BaseException] | None:
    # Not isinstance: an exception can lie about its class, or raise where it is asked.
    classes = type.mro(type(error))
    return next((kind for kind in kinds if any(one is kind for one in classes)), None)
