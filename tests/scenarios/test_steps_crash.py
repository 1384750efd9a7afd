"""Processes that are killed or stopped at any point of a job with steps: atomic effects once, others at least once."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from django.db import connection

from tests.app.jobs import stepping, stopped
from tests.app.models import Effect
from tests.app.step_jobs import FIVE
from tests.processes import Processes, wait_for
from tests.scenarios.test_atomic import stopped as stands_still
from tests.working import age, row, run_due, states
from ultimat3_jobs.models import JobStep

pytestmark = pytest.mark.usefixtures("queue")

# Nobody renews a lease or takes a job before the test says so.
LONG = {"LEASE": "10m", "RENEWAL": "3m", "POLL": "50ms"}
ATOMIC = [step for step, atomic in FIVE.items() if atomic]
AMONG_OTHERS = ["before the ack"] + [
    f"{where} {step}"
    for step, atomic in FIVE.items()
    for where in ("before", "inside", "after")
    if where != "inside" or not atomic
]

# The worker dies once the record of an atomic step is written and before its commit, or right after it.
AT_THE_COMMIT = """
import os, signal, sys
from django.core.management import call_command
from django.db.backends.base.base import BaseDatabaseWrapper
from ultimat3_jobs.drivers.database.driver import DatabaseDriver

record, commit = DatabaseDriver.record_step, BaseDatabaseWrapper._commit
recorded = []

def recording(driver, claim, step):
    stored = record(driver, claim, step)
    recorded.append(step.name)
    return stored

def committing(connection):
    if sys.argv[1] == "committed":
        commit(connection)
    if recorded == ["charge"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] != "committed":
        commit(connection)

DatabaseDriver.record_step, BaseDatabaseWrapper._commit = recording, committing
call_command("jobs_worker", concurrency=1)
"""


def effects(at: str) -> dict[str, int]:
    """Return how often each step of a job was done."""
    return dict(Counter(Effect.objects.filter(label=at).values_list("detail", flat=True)))


def everything() -> dict[str, list[object]]:
    """Return all rows of all tables in which a worker writes."""
    tables = ("x_jobs", "x_job_steps", "x_job_events", "x_job_attempts", "x_outbox", Effect._meta.db_table)
    found: dict[str, list[object]] = {}
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = sorted(map(repr, cursor.fetchall()))
    return found


def test_a_process_that_is_killed_at_each_point_of_five_steps(processes: Processes) -> None:
    """Many runs die in one process: one kill for each atomic step, which on SQLite has the only write lock."""
    share = -(-len(AMONG_OTHERS) // len(ATOMIC))
    points = []
    for number, step in enumerate(ATOMIC):
        others = AMONG_OTHERS[number * share : (number + 1) * share]
        killer = f"inside {step}"
        for at in others:
            stepping.enqueue(at)
        stepping.enqueue(killer, others=len(others))
        worker = processes.manage("jobs_worker", "--concurrency", str(len(others) + 1), jobs=LONG)
        assert worker.wait() == -signal.SIGKILL
        assert f"reached {killer}" in worker.output()
        points += [*others, killer]
    assert len(points) == len(FIVE) * 3 + 1
    assert states() == {"running": len(points)}

    age(700, "visible_at")
    run_due()

    assert states() == {"done": len(points)}
    for at in points:
        done = effects(at)
        assert [done[step] for step in ATOMIC] == [1, 1, 1], at
        assert {step: done[step] for step in FIVE if step not in ATOMIC} == {
            step: 2 if at == f"inside {step}" else 1 for step in FIVE if step not in ATOMIC
        }, at
    assert sorted(JobStep.objects.values_list("name", flat=True)) == sorted([*FIVE] * len(points))
    assert Counter(JobStep.objects.values_list("run_id", flat=True)).most_common(1)[0][1] == len(FIVE)


@pytest.mark.parametrize("point", ["recorded", "committed"])
def test_a_process_that_is_killed_at_the_commit_of_an_atomic_step(processes: Processes, point: str) -> None:
    queued = stepping.enqueue("nowhere")
    worker = processes.django(AT_THE_COMMIT, point, jobs=LONG)
    assert worker.wait() == -signal.SIGKILL
    assert effects("nowhere") == ({"charge": 1} if point == "committed" else {})
    age(700, "visible_at")
    run_due()

    assert row(queued).state == "done"
    assert effects("nowhere") == dict.fromkeys(FIVE, 1)
    attempts = list(JobStep.objects.order_by("seq").values_list("name", "attempt"))
    assert attempts == [(step, 1 if step == "charge" and point == "committed" else 2) for step in FIVE]


def test_a_worker_that_was_stopped_past_its_leases_changes_no_row_by_its_steps(
    processes: Processes, vendor: str
) -> None:
    """One run stands in a plain step, one at its sleep, one in an atomic step: on SQLite before it, since whoever is
    stopped in a transaction has the only lock."""
    last = "atomic" if vendor == "postgresql" else "before atomic"
    queued = {at: stopped.enqueue(at) for at in ("plain", "sleep")}
    queued[last] = stopped.enqueue(last, others=2)
    worker = processes.manage("jobs_worker", "--concurrency", "3", jobs=LONG)
    worker.wait_for_output(f"reached {last}")
    wait_for(lambda: stands_still(worker), "it has stopped")
    assert effects("plain") == {"plain": 1}

    age(700, "visible_at")
    run_due()
    assert states() == {"suspended": 3}
    age(7_200, "run_at")
    with connection.cursor() as cursor:
        past = {"sqlite": "'2001-01-01 00:00:00.000000'", "postgresql": "'2001-01-01+00'"}[vendor]
        cursor.execute(f"UPDATE x_job_steps SET until = {past} WHERE kind = 'sleep'")
    run_due()
    assert states() == {"done": 3}
    before = everything()

    worker.kill(signal.SIGCONT)
    wait_for(lambda: worker.output().count("jobs.job.given-up") == 2, "both steps were refused")
    worker.wait_for_output("jobs.lease.lost")
    worker.kill(signal.SIGTERM)
    assert worker.wait() == 0

    assert everything() == before
    assert [effects(at)["plain"] for at in queued] == [2, 1, 1]
    assert [(effects(at)["atomic"], effects(at)["last"]) for at in queued] == [(1, 1)] * 3
