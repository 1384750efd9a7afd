"""Workers that are killed: no attempt is lost, none is made for ever, and no job runs twice at once."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.app.jobs import dying, once, waiting
from tests.app.models import Effect
from tests.processes import Processes, wait_for
from tests.scenarios.effects import SHORT, let_go, starts, wait_for_starts
from tests.working import age, history, row, states

pytestmark = pytest.mark.usefixtures("queue")


def test_a_job_whose_worker_is_killed_starts_again_and_is_dead_after_its_last_attempt(processes: Processes) -> None:
    queued = waiting.enqueue("killed")
    for attempt in (1, 2):
        worker = processes.manage("jobs_worker", jobs=SHORT)
        assert wait_for_starts("killed", attempt)[-1] == (attempt, worker.pid)
        assert (row(queued).state, row(queued).attempt) == ("running", attempt)
        worker.kill(signal.SIGKILL)
        assert worker.wait() == -signal.SIGKILL

    # Whoever comes next finds it lapsed on its last attempt.
    processes.manage("jobs_worker", jobs=SHORT)
    wait_for(lambda: row(queued).state == "dead", "the job is dead")

    job_row = row(queued)
    assert (job_row.stop, job_row.attempt, job_row.lapses) == ("worker-lost", 2, 2)
    assert job_row.last_error.endswith("verdict: dead (worker-lost): worker lost on the final attempt")
    assert [(kept.attempt, kept.decision) for kept in history(queued)] == [(1, "retry"), (2, "worker-lost")]
    assert [attempt for attempt, _ in starts("killed")] == [1, 2]


def test_a_body_that_kills_its_process_starts_as_often_as_it_may_and_holds_up_no_other(processes: Processes) -> None:
    deadly, harmless = dying.enqueue("deadly"), once.using(priority=-1).enqueue("harmless")
    for attempt in (1, 2):
        worker = processes.manage("jobs_worker", "--concurrency", "1", jobs=SHORT)
        assert worker.wait() == -signal.SIGKILL
        assert starts("deadly")[-1] == (attempt, worker.pid)
        age(60, "visible_at")  # the lease need not be waited for

    assert "jobs.lease.swept" in processes.run("jobs_worker", "--burst", jobs=SHORT)

    assert (row(deadly).state, row(deadly).stop, row(deadly).attempt) == ("dead", "worker-lost", 2)
    assert len(starts("deadly")) == 2
    assert row(harmless).state == "done"
    assert len(starts("harmless")) == 1


def test_two_worker_processes_run_each_of_500_jobs_once(processes: Processes) -> None:
    once.enqueue_many([{"label": f"job {n}"} for n in range(500)])
    workers = [processes.manage("jobs_worker", "--burst", env={"TEST_LOG_LEVEL": "WARNING"}) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]

    assert states() == {"done": 500}
    runs = Counter(Effect.objects.values_list("label", flat=True))
    assert len(runs) == 500
    assert set(runs.values()) == {1}
    assert set(Effect.objects.values_list("pid", flat=True)) <= {worker.pid for worker in workers}


@pytest.mark.sqlite_only(reason="one file with one writer at a time is what can fail")
def test_four_worker_processes_and_two_writers_on_one_file_run_each_of_500_jobs_once(processes: Processes) -> None:
    quiet = {"TEST_LOG_LEVEL": "WARNING"}
    writers = [
        processes.django(
            "import sys\n"
            "from django.db import transaction\n"
            "from tests.app.jobs import once\n"
            "for n in range(50):\n"
            "    with transaction.atomic():\n"
            "        once.enqueue_many([{'label': f'{sys.argv[1]} {n} {m}'} for m in range(5)])\n",
            name,
            env=quiet,
        )
        for name in ("first", "second")
    ]
    workers = [processes.manage("jobs_worker", env={"TEST_LOG_LEVEL": "INFO"}) for _ in range(4)]
    assert [writer.wait() for writer in writers] == [0, 0]
    wait_for(lambda: states() == {"done": 500}, "all 500 are done")
    for worker in workers:
        worker.wait_for_output("jobs.worker.started")
        worker.kill(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0, 0, 0]

    runs = Counter(Effect.objects.values_list("label", flat=True))
    assert (len(runs), set(runs.values())) == (500, {1})
    assert not any("locked" in child.output() for child in processes.children)


def test_a_worker_that_is_killed_takes_no_neighbour_along(processes: Processes) -> None:
    """Only the jobs of the killed worker start again."""
    doomed = processes.manage("jobs_worker", "--concurrency", "1", jobs=SHORT)
    queued = [waiting.enqueue(label) for label in ("one", "two")]
    wait_for(lambda: starts("one") or starts("two"), "the first worker has one of them")
    (hit,) = [label for label in ("one", "two") if starts(label)]
    other = "two" if hit == "one" else "one"
    processes.manage("jobs_worker", "--concurrency", "2", jobs=SHORT)
    wait_for_starts(other, 1)
    doomed.kill(signal.SIGKILL)
    wait_for_starts(hit, 2)
    let_go(hit), let_go(other)
    wait_for(lambda: [row(one).state for one in queued] == ["done", "done"], "both are done")

    assert [attempt for attempt, _ in starts(hit)] == [1, 2]
    assert [attempt for attempt, _ in starts(other)] == [1]
