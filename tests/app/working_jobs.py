"""Jobs that worker processes of the tests run. Their bodies leave an `Effect` for each start, in its own commit."""

from __future__ import annotations

import os
import signal

from tests.app.models import Effect
from tests.processes import wait_for
from ultimat3_jobs import NO_TENANT, Retry, Run, job

AT_ONCE = Retry(attempts=2, delay=0)


def _start(run: Run, label: str) -> None:
    Effect.objects.create(label=label, attempt=run.attempt, pid=os.getpid(), detail="start")


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=AT_ONCE)
def once(run: Run, label: str) -> str:
    """Start, and end."""
    _start(run, label)
    return "worked"


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=AT_ONCE)
def waiting(run: Run, label: str, obedient: bool = False) -> str:
    """Start, wait until a test says `go`, and end; an obedient one stops where its run is cancelled."""
    _start(run, label)

    def told() -> bool:
        if obedient:
            run.check_cancelled()
        return Effect.objects.filter(label=label, detail="go").exists()

    wait_for(told, f"the test lets {label} go")
    Effect.objects.create(label=label, attempt=run.attempt, pid=os.getpid(), detail="end")
    return "worked"


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=AT_ONCE, atomic=True)
def atomically(run: Run, label: str) -> str:
    """Leave one effect, which commits with the ack."""
    Effect.objects.create(label=label, attempt=run.attempt, pid=os.getpid(), detail="atomic")
    return "worked"


@job(idempotency_key="{label}", tenant=NO_TENANT, retry=AT_ONCE)
def dying(run: Run, label: str) -> None:
    """Start, and take the process along."""
    _start(run, label)
    os.kill(os.getpid(), signal.SIGKILL)
