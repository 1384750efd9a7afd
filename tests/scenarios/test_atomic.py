"""Atomic jobs and their processes: killed or stopped at any point, what a body writes is there once."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from tests.app.jobs import atomically, dying, once
from tests.app.models import Effect
from tests.processes import Child, Processes, wait_for
from tests.working import age, declare, row, run_due, states, working
from ultimat3_jobs import EnqueueResult, Retry, Run

pytestmark = pytest.mark.usefixtures("queue")

# A worker that sends itself a signal at one point of its first job.
WORKER = """
import signal, sys, threading
from django.core.management import call_command
from django.db.backends.base.base import BaseDatabaseWrapper
from tests.app.models import Effect
from ultimat3_jobs.drivers.database.driver import DatabaseDriver

point, number = sys.argv[1], getattr(signal, sys.argv[2])
acked = False

def reach(here):
    global point
    if here == point:
        point = ""
        print("reached", here, flush=True)
        # To this thread: what is sent to the process may stop it a little later.
        signal.pthread_kill(threading.get_ident(), number)

def after(owner, name, here):
    real = getattr(owner, name)
    def wrapped(*given, **rest):
        global acked
        answer = real(*given, **rest)
        acked = acked or here == "acked"
        if answer or here == "written":
            reach(here)
        return answer
    setattr(owner, name, wrapped)

after(DatabaseDriver, "claim", "claimed")
after(Effect, "save", "written")
after(DatabaseDriver, "ack", "acked")
commit = BaseDatabaseWrapper._commit
def committed(wrapper):
    commit(wrapper)
    if acked:
        reach("committed")
BaseDatabaseWrapper._commit = committed
call_command("jobs_worker", concurrency=1)
"""


def effects(label: str) -> list[int]:
    """Return the attempt of each effect of a body."""
    return list(Effect.objects.filter(label=label, detail="atomic").values_list("attempt", flat=True))


def taken_over(queued: EnqueueResult) -> None:
    """Let the lease lapse, and end the job in a worker of this process."""
    age(60, "visible_at")

    def done() -> bool:
        run_due(concurrency=1)
        return row(queued).state == "done"

    wait_for(done, "the job is done")


def stopped(worker: Child) -> bool:
    """Whether a process is stopped."""
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("point", ["claimed", "written", "acked", "committed"])
def test_a_worker_that_is_killed_leaves_what_its_body_wrote_once(processes: Processes, point: str) -> None:
    queued = atomically.enqueue("killed")
    worker = processes.django(WORKER, point, "SIGKILL")
    assert worker.wait() == -signal.SIGKILL
    assert f"reached {point}" in worker.output()

    taken_over(queued)

    assert effects("killed") == [1 if point == "committed" else 2]


@pytest.mark.parametrize(
    "point",
    [
        "claimed",
        pytest.param(
            "written",
            marks=pytest.mark.postgresql_only(reason="on SQLite whoever is stopped in a transaction has the only lock"),
        ),
    ],
)
def test_a_worker_that_was_stopped_past_its_lease_and_continued_adds_nothing(processes: Processes, point: str) -> None:
    queued = atomically.enqueue("stopped")
    worker = processes.django(WORKER, point, "SIGSTOP")
    worker.wait_for_output(f"reached {point}")
    wait_for(lambda: stopped(worker), "it has stopped")
    taken_over(queued)
    assert effects("stopped") == [2]
    ended = row(queued).updated_at

    worker.kill(signal.SIGCONT)
    worker.wait_for_output("jobs.lease.lost")
    worker.kill(signal.SIGTERM)
    assert worker.wait() == 0

    assert effects("stopped") == [2]
    assert (row(queued).updated_at, row(queued).attempt) == (ended, 2)


@pytest.mark.postgresql_only(reason="on SQLite whoever is stopped in a transaction has the only lock")
def test_a_worker_that_was_stopped_between_its_ack_and_the_commit_keeps_its_job(processes: Processes) -> None:
    """Nobody takes a row that is locked: the job waits, and is done once."""
    queued = atomically.enqueue("stopped")
    worker = processes.django(WORKER, "acked", "SIGSTOP")
    worker.wait_for_output("reached acked")
    wait_for(lambda: stopped(worker), "it has stopped")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM x_jobs WHERE visible_at > statement_timestamp()")
        assert cursor.fetchone() == (1,)
    run_due(concurrency=1)
    assert (row(queued).state, effects("stopped")) == ("running", [])

    worker.kill(signal.SIGCONT)
    wait_for(lambda: row(queued).state == "done", "it is done")
    worker.kill(signal.SIGTERM)
    assert worker.wait() == 0

    assert effects("stopped") == [1]


def test_a_long_atomic_body_costs_no_neighbour_its_lease(
    settings: Any, caplog: pytest.LogCaptureFixture, vendor: str
) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "50ms", "LEASE": "2s", "RENEWAL": "500ms"}
    wrote, over = threading.Event(), threading.Event()
    renewals: list[UUID] = []

    def long(run: Run, n: int) -> None:
        Effect.objects.create(label="long")
        wrote.set()
        # On PostgreSQL until every neighbour was renewed often enough; on SQLite, where none can be, past the lease.
        if vendor == "postgresql":
            wait_for(lambda: len(renewals) > 4 * 20, "all are renewed beyond the lease that they had")
        else:
            threading.Event().wait(2.5)
        over.set()

    def short(run: Run, n: int) -> None:
        assert over.wait(30)

    def renewed() -> bool:
        ends = {job.id: job.visible_at for job in type(row(atomic)).objects.filter(name="t.short", state="running")}
        renewals.extend(one for one, end in ends.items() if one in seen and end != seen[one])
        seen.update(ends)
        return over.is_set()

    seen: dict[Any, Any] = {}
    atomic = declare(long, name="t.long", atomic=True, priority=1).enqueue(0)
    neighbours = declare(short, name="t.short", retry=Retry(attempts=1)).enqueue_many([{"n": n} for n in range(20)])
    with working(concurrency=21), working(concurrency=1):
        assert wrote.wait(30)
        wait_for(renewed, "the long body is over")
        wait_for(lambda: states() == {"done": 21}, "all are done")

    assert [(row(one).attempt, row(one).lapses) for one in (atomic, *neighbours)] == [(1, 0)] * 21
    assert not any("jobs.lease" in record.message for record in caplog.records)


def nobody_works() -> bool:
    """Whether no other session has a statement or a transaction under way; on SQLite the dead have none."""
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
        )
        return bool(cursor.fetchone()[0] == 0)


def test_of_a_killer_and_500_innocents_only_the_killer_ends_dead(processes: Processes) -> None:
    once.enqueue_many([{"label": f"before {n}"} for n in range(250)])
    killer = dying.enqueue("killer")
    once.enqueue_many([{"label": f"after {n}"} for n in range(250)])
    for _ in range(2):
        worker = processes.manage("jobs_worker", "--concurrency", "20", env={"TEST_LOG_LEVEL": "ERROR"})
        assert worker.wait() == -signal.SIGKILL
        # The server may still carry out a claim of the dead: its jobs must not be claimed after the time has passed.
        wait_for(nobody_works, "the server has carried out what the worker asked for")
        age(60, "visible_at")

    worker = processes.manage("jobs_worker", "--concurrency", "20", "--burst", env={"TEST_LOG_LEVEL": "ERROR"})
    assert worker.wait() == 0

    assert states() == {"done": 500, "dead": 1}
    assert (row(killer).state, row(killer).stop, row(killer).attempt) == ("dead", "worker-lost", 2)
    starts = Counter(Effect.objects.filter(detail="start").values_list("label", flat=True))
    assert starts["killer"] == 2
    assert len(starts) == 501
