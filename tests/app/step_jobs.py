"""Jobs of several steps whose runs come together, each at a point of its own, before a signal ends or stops them."""

from __future__ import annotations

import os
import signal
import threading

from tests.app.models import Effect
from tests.processes import wait_for
from ultimat3_jobs import NO_TENANT, Retry, Run, job

FIVE = {"charge": True, "mail": False, "ship": True, "call": False, "close": True}
"""The steps in their order, and whether each is atomic."""
_arrived: set[str] = set()
_go_on = threading.Event()


@job(idempotency_key="{at}", tenant=NO_TENANT, retry=Retry(attempts=2, delay=0))
def stepping(run: Run, at: str, others: int = -1) -> list[str]:
    """Do five steps; the first attempt comes to the point `at` ("before charge") and waits there for a signal.

    The one that knows how many `others` there are goes there when they have arrived, and sends it: SIGKILL.
    """

    def reach(here: str) -> None:
        if run.attempt == 1 and here == at:
            meet(at, others, signal.SIGKILL)

    def work(step: str) -> str:
        Effect.objects.create(label=at, attempt=run.attempt, pid=os.getpid(), detail=step)
        reach(f"inside {step}")
        return step

    if others >= 0 and run.attempt == 1:
        wait_for(lambda: len(_arrived) >= others, "the others are where they are to be killed")
    done = []
    for step, atomic in FIVE.items():
        reach(f"before {step}")
        done.append(run.step(step, work, step, atomic=atomic))
        reach(f"after {step}")
    reach("before the ack")
    return done


@job(idempotency_key="{at}", tenant=NO_TENANT, retry=Retry(attempts=3, delay=0))
def stopped(run: Run, at: str, others: int = -1) -> None:
    """Do a plain step, an atomic one and a sleep; the first attempt stops `at` one of them, and goes on later."""

    def reach(here: str) -> None:
        if run.attempt == 1 and here == at and not _go_on.is_set():
            meet(at, others, signal.SIGSTOP)

    def work(step: str) -> None:
        Effect.objects.create(label=at, attempt=run.attempt, pid=os.getpid(), detail=step)
        reach(step)

    if others >= 0 and run.attempt == 1:
        wait_for(lambda: len(_arrived) >= others, "the others are where they are to be stopped")
    run.step("plain", work, "plain")
    reach("before atomic")
    run.step("atomic", work, "atomic", atomic=True)
    try:
        run.sleep("1h")
    except BaseException:
        reach("sleep")
        raise
    run.step("last", work, "last")


def meet(at: str, others: int, number: signal.Signals) -> None:
    """Wait for the signal, or be the one that sends it to the process; go on where that went on."""
    if others >= 0:
        print("reached", at, flush=True)
        # To this thread: what is sent to the process may stop it a little later.
        signal.pthread_kill(threading.get_ident(), number)
        _go_on.set()
        return
    _arrived.add(at)
    _go_on.wait()
