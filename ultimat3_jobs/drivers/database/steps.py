"""What runs have recorded, in `x_job_steps`: each write fenced on the claim, one read for a whole run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.records import Claim, StepRecord, StoredStep
from ultimat3_jobs.sql import run

_CURSOR = ("run_id", "name", "seq", "kind", "state", "attempt", "output")


def read(alias: str, run_id: UUID, *, budget: int) -> list[StoredStep]:
    """Read all that a run has recorded; outputs beyond `budget` bytes are left out."""
    return [_stored(row) for row in run(alias, "steps", {"run_id": run_id.hex, "budget": budget})]


def output(alias: str, run_id: UUID, name: str) -> str | None:
    """Read one output."""
    found = run(alias, "step_output", {"run_id": run_id.hex, "name": name})
    return found[0][0] if found else None


def record(alias: str, claim: Claim, one: StepRecord) -> StoredStep | None:
    """Record a step; None where the claim owns its job no longer."""
    landed = run(alias, "record_step", record_values(claim, one))
    return _stored(landed[0]) if landed else None


def checkpoint(alias: str, claim: Claim, one: StepRecord) -> bool:
    """Write a record anew and let the attempts count anew; tell whether the claim owned its job."""
    values = record_values(claim, one)
    # Where it is refused, a transaction that is open can no longer commit either.
    with transaction.atomic(using=alias, savepoint=False):
        run(alias, "move_cursor", {key: values[key] for key in _CURSOR})
        # Last: what follows the lock on the job's row keeps its lease from being renewed.
        landed = bool(run(alias, "count_anew", {"id": values["id"], "token": values["token"]}))
        if not landed:
            transaction.set_rollback(True, using=alias)
    return landed


def recorded(alias: str, claim: Claim, name: str) -> bool:
    """Whether the claim still owns its job and the step is there."""
    return bool(run(alias, "recorded", {"id": claim.id.hex, "token": claim.token.hex, "name": name}))


def record_values(claim: Claim, one: StepRecord) -> dict[str, Any]:
    """A claim and a record as parameters of the statements that write one."""
    return {
        "id": claim.id.hex,
        "token": claim.token.hex,
        "run_id": one.run_id.hex,
        "name": one.name,
        "seq": one.seq,
        "kind": one.kind.value,
        "state": one.state.value,
        "attempt": one.attempt,
        "output": one.output,
        "delay": one.delay,
        "took": one.took,
    }


def _stored(row: tuple[Any, ...]) -> StoredStep:
    name, seq, kind, state, text, left_out, until, is_over = row
    return StoredStep(
        name=name,
        seq=seq,
        kind=kind,
        state=state,
        output=text,
        left_out=bool(left_out),
        until=None if until is None else rows.parse_instant(until),
        is_over=bool(is_over),
    )
