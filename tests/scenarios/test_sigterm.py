"""Deploys: a worker that is told to stop keeps its jobs until they end, or gives them back."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest
from django.db import connection, transaction

from tests.app.jobs import once, waiting
from tests.processes import Child, Processes, wait_for
from tests.scenarios.effects import SHORT, ends, let_go, starts, wait_for_starts
from tests.working import history, row, states
from ultimat3_jobs import EnqueueResult

# Of a worker, the claim and the housekeeping.
BOTH_WAIT = (
    "SELECT count(*) >= 2 FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%x_jobs%'"
)

pytestmark = pytest.mark.usefixtures("queue")


def started(processes: Processes, label: str, **settings: str) -> Child:
    """Start a worker and wait until it runs the job."""
    worker = processes.manage("jobs_worker", jobs={**SHORT, **settings})
    assert wait_for_starts(label, 1) == [(1, worker.pid)]
    return worker


def renewed(queued: EnqueueResult, times: int) -> None:
    """Wait until a job's lease has been renewed that often."""
    seen = set()

    def enough() -> bool:
        seen.add(row(queued).visible_at)
        return len(seen) > times

    wait_for(enough, f"{times} renewals")


def test_a_job_that_runs_for_longer_than_its_lease_after_sigterm_runs_once(processes: Processes) -> None:
    queued = waiting.enqueue("deployed")
    first = started(processes, "deployed")
    second = processes.manage("jobs_worker", jobs=SHORT)
    second.wait_for_output("jobs.worker.started")

    first.kill(signal.SIGTERM)
    first.wait_for_output("jobs.worker.draining")
    renewed(queued, 8)  # two leases
    assert first.running
    let_go("deployed")

    assert first.wait() == 0
    assert (row(queued).state, row(queued).attempt, row(queued).lapses) == ("done", 1, 0)
    assert starts("deployed") == ends("deployed") == [(1, first.pid)]
    assert "jobs.lease.swept" not in second.output()
    assert "ending=drained" in first.output()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_outlives_the_drain_is_handed_back_and_its_late_end_is_refused(
    processes: Processes, number: signal.Signals
) -> None:
    queued = waiting.enqueue("outlives")
    worker = started(processes, "outlives", DRAIN_TIMEOUT="200ms")

    worker.kill(number)

    assert worker.wait() == 3
    job_row = row(queued)
    assert (job_row.state, job_row.attempt, job_row.claim_token) == ("ready", 0, None)
    assert history(queued) == []
    assert "jobs.worker.handed-back" in worker.output()
    # It starts again elsewhere, as its first attempt.
    let_go("outlives")
    processes.run("jobs_worker", "--burst", jobs=SHORT)
    assert [attempt for attempt, _ in starts("outlives")] == [1, 1]
    assert (row(queued).state, row(queued).attempt) == ("done", 1)


def test_a_second_signal_ends_the_worker_at_once(processes: Processes) -> None:
    queued = waiting.enqueue("cut off")
    worker = started(processes, "cut off", DRAIN_TIMEOUT="1h")

    worker.kill(signal.SIGTERM)
    worker.wait_for_output("jobs.worker.draining")
    worker.kill(signal.SIGTERM)

    assert worker.wait() == 4
    # The attempt was made: the sweep counts it.
    assert (row(queued).state, row(queued).attempt) == ("running", 1)


@pytest.mark.postgresql_only(
    reason="SQLite waits for its lock where no signal is heard, for as long as its timeout says"
)
def test_a_second_signal_ends_a_worker_that_hangs_in_the_database(processes: Processes) -> None:
    worker = processes.manage("jobs_worker", jobs=SHORT)
    worker.wait_for_output("jobs.worker.started")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE x_jobs IN ACCESS EXCLUSIVE MODE")
        with psycopg.connect(processes.url, autocommit=True) as outside:
            wait_for(lambda: outside.execute(BOTH_WAIT).fetchone() == (True,), "the claim hangs")
        worker.kill(signal.SIGTERM)
        worker.kill(signal.SIGINT)

        assert worker.wait() == 4


def test_sigterm_in_the_middle_of_claims_loses_nothing(processes: Processes) -> None:
    once.enqueue_many([{"label": f"job {n}"} for n in range(200)])
    for _ in range(2):
        worker = processes.manage("jobs_worker", env={"TEST_LOG_LEVEL": "INFO"})
        before = states().get("done", 0)
        worker.wait_for_output("jobs.worker.started")
        wait_for(lambda: states().get("done", 0) > before or not states().get("ready"), "it has begun")  # noqa: B023
        worker.kill(signal.SIGTERM)
        assert worker.wait() == 0
        # Whatever was claimed has ended; nothing is left to the sweep.
        assert set(states()) <= {"done", "ready"}

    processes.run("jobs_worker", "--burst", env={"TEST_LOG_LEVEL": "INFO"})
    assert states() == {"done": 200}
    assert all(len(starts(f"job {n}")) == 1 for n in range(200))


def test_a_signal_that_comes_again_while_the_interpreter_shuts_down_changes_nothing(
    processes: Processes, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    worker = processes.django(
        "import atexit, pathlib, sys, time\n"
        "from django.core.management import execute_from_command_line\n"
        "def last():\n"
        "    print('shuts down', flush=True)\n"
        "    while not pathlib.Path(sys.argv[1]).exists():\n"
        "        time.sleep(0.01)\n"
        "atexit.register(last)\n"
        "execute_from_command_line(['manage.py', 'jobs_worker'])\n",
        str(told),
    )
    worker.wait_for_output("jobs.worker.started")
    worker.kill(signal.SIGTERM)
    worker.wait_for_output("shuts down")
    worker.kill(signal.SIGTERM)
    worker.kill(signal.SIGINT)
    told.touch()

    assert worker.wait() == 0


def test_a_thread_that_a_body_left_behind_does_not_keep_a_worker_that_was_told_to_stop(processes: Processes) -> None:
    worker = processes.django(
        "import threading\n"
        "from django.core.management import execute_from_command_line\n"
        "from ultimat3_jobs.management.commands import jobs_worker\n"
        "jobs_worker.LAST_STEPS = 0.1\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "execute_from_command_line(['manage.py', 'jobs_worker'])\n"
    )
    worker.wait_for_output("jobs.worker.started")
    worker.kill(signal.SIGTERM)

    assert worker.wait() == 0
