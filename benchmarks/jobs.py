"""The jobs whose way is measured."""

from __future__ import annotations

import os
import time

from benchmarks.models import Line
from ultimat3_jobs import NO_TENANT, Run, job


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


@job(idempotency_key="{number}", tenant=NO_TENANT, atomic=True)
def atomic_write(run: Run, number: int) -> None:
    """Write one row in the transaction that ends the job."""
    Line.objects.create(number=number)
