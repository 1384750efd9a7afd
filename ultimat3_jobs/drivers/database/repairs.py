"""What people do to jobs: dead letters started again, live ones cancelled; who and why is kept with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import IntegrityError, transaction

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.records import CancelVerdict, RetryVerdict
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import RETRYABLE
from ultimat3_jobs.text import bounded, storable

MAX_ATTRIBUTION = 255  # characters of who and why


class Found(NamedTuple):
    """A job as it is now."""

    state: str
    namespace: tuple[str, str, str]


def retry(alias: str, ids: Sequence[UUID], *, by: str, reason: str, from_step: str | None = None) -> list[RetryVerdict]:
    """Start dead letters again; one verdict each, in their order."""
    every = list(dict.fromkeys(ids))
    step = None if from_step is None else storable(from_step)
    # Should somebody else start one of them meanwhile, and it die again without the step, there is nothing to forget.
    asked = every if step is None else _with_step(alias, every, step)
    # For itself: a row of whoever held a key until now is not kept locked while another key is waited for.
    run(alias, "release_keys_for", {"rows": rows.encode_ids(asked)})
    # The newest first: of one key it is the first to start, also where the batch has to be taken apart.
    started = _start(alias, sorted(asked, reverse=True), by=by, reason=reason, step=step)
    found = _find(alias, every)
    started_keys = {found[job_id].namespace for job_id in started if job_id in found}
    able = set(asked)
    verdicts = []
    for job_id in ids:
        if job_id in started:
            started.discard(job_id)  # asked for twice it starts once
            verdicts.append(RetryVerdict.RETRIED)
        else:
            verdicts.append(_why_not(found.get(job_id), started_keys, able=job_id in able))
    return verdicts


def cancel(alias: str, ids: Sequence[UUID], *, by: str, reason: str) -> list[CancelVerdict]:
    """Cancel live jobs; one verdict each, in their order."""
    asked = list(dict.fromkeys(ids))
    who = {"by": bounded(by, MAX_ATTRIBUTION), "reason": bounded(reason, MAX_ATTRIBUTION)}
    with transaction.atomic(using=alias):
        stopped = {rows.uuid(row[0]) for row in run(alias, "cancel", {"rows": rows.encode_ids(asked), **who})}
        log_repairs(alias, "cancel", stopped, by=by, reason=reason)
    found = _find(alias, [job_id for job_id in asked if job_id not in stopped])
    verdicts = []
    for job_id in ids:
        if job_id in stopped:
            stopped.discard(job_id)
            found[job_id] = Found("cancelled", ("", "", ""))
            verdicts.append(CancelVerdict.CANCELLED)
        else:
            verdicts.append(CancelVerdict.NOT_CANCELLABLE if job_id in found else CancelVerdict.NOT_FOUND)
    return verdicts


def _with_step(alias: str, ids: Sequence[UUID], step: str) -> list[UUID]:
    recorded = {rows.uuid(row[0]) for row in run(alias, "have_step", {"rows": rows.encode_ids(ids), "name": step})}
    return [job_id for job_id in ids if job_id in recorded]


def _start(alias: str, ids: list[UUID], *, by: str, reason: str, step: str | None) -> set[UUID]:
    """Start what can be started of `ids`, the newest first, without what they recorded from `step` on; return it.

    A key that somebody takes between the statement's look and its write fails the whole statement. The batch is then
    taken in halves, which see that key: one conflict costs a few statements and affects one row.
    """
    try:
        with transaction.atomic(using=alias):
            started = {rows.uuid(row[0]) for row in run(alias, "retry", {"rows": rows.encode_ids(ids)})}
            if step is not None:
                run(alias, "forget_steps", {"rows": rows.encode_ids(started), "name": step})
            log_repairs(alias, "retry", started, by=by, reason=reason, rule=step or "")
            return started
    except IntegrityError:
        if len(ids) == 1:
            return set()
    half = len(ids) // 2
    newer = _start(alias, ids[:half], by=by, reason=reason, step=step)
    return newer | _start(alias, ids[half:], by=by, reason=reason, step=step)


def _why_not(found: Found | None, started_keys: set[tuple[str, str, str]], *, able: bool) -> RetryVerdict:
    if found is None:
        return RetryVerdict.NOT_FOUND
    if found.state not in RETRYABLE:
        return RetryVerdict.NOT_RETRYABLE
    if not able:
        return RetryVerdict.NO_STEP
    return RetryVerdict.SUPERSEDED if found.namespace in started_keys else RetryVerdict.KEY_HELD


def _find(alias: str, ids: Sequence[UUID]) -> dict[UUID, Found]:
    if not ids:
        return {}
    return {
        rows.uuid(job_id): Found(state, (name, tenant, key))
        for job_id, state, name, tenant, key in run(alias, "found", {"rows": rows.encode_ids(ids)})
    }


def log_repairs(alias: str, kind: str, ids: Iterable[UUID], *, by: str, reason: str, rule: str = "") -> None:
    """Keep in the history of jobs what a person did to them.

    Args:
        alias: of the queue's database, in the transaction that does it.
        kind: what was done, in a word of at most 16 characters.
        ids: of the jobs.
        by: who did it.
        reason: why.
        rule: what it was done with: the step of a retry, the pace of a pass.
    """
    history = [
        {
            "id": rows.new_id(),
            "job_id": job_id.hex,
            "kind": kind,
            "by": bounded(by, MAX_ATTRIBUTION),
            "reason": bounded(reason, MAX_ATTRIBUTION),
            "rule": rule,
        }
        for job_id in ids
    ]
    if history:
        run(alias, "log_repairs", {"rows": rows.encode(history)})
