"""The jobs whose way is measured."""

from __future__ import annotations

import inspect
import os
import time
from typing import Any

from benchmarks.models import Line
from ultimat3_jobs import NO_TENANT, Job, Run, job


@job(idempotency_key="{number}", tenant=NO_TENANT)
def nothing(run: Run, number: int) -> None:
    """Do nothing."""


@job(idempotency_key="{number}", tenant=NO_TENANT)
def one_write(run: Run, number: int) -> None:
    """Write one row by the ORM."""
    Line.objects.create(number=number)


@job(idempotency_key="{number}", tenant=NO_TENANT)
def clocked(run: Run, number: int, file: str) -> None:
    """Write down when the body starts, on the clock that all processes of a machine share."""
    now = time.monotonic()
    with open(file, "a") as opened:  # noqa: PTH123
        print(number, now, os.getpid(), file=opened)


_ATOMIC: dict[str, Any] = {"atomic": True}


def _declare_atomic() -> Job[..., Any] | None:
    if "atomic" not in inspect.signature(job).parameters:
        return None

    def atomic_write(run: Run, number: int) -> None:
        Line.objects.create(number=number)

    return job(idempotency_key="{number}", tenant=NO_TENANT, **_ATOMIC)(atomic_write)


atomic_write = _declare_atomic()
