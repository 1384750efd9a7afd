"""A worker's process: what bodies that fork leave of it, stacks on a signal, a bound of jobs, a start again."""

from __future__ import annotations

import os
import re
import signal

import pytest
from django.db import transaction

from tests.app.jobs import (
    forking,
    forking_after_the_commit,
    forking_async,
    forking_in_a_step,
    once,
    pooling,
    terminating,
    waiting,
    waiting_async,
)
from tests.app.models import Effect
from tests.processes import Processes, wait_for
from tests.scenarios.effects import SHORT, let_go, wait_for_starts
from tests.working import history, row, states
from ultimat3_jobs.forks import leave_if_forked
from ultimat3_jobs.models import OutboxEntry

pytestmark = pytest.mark.usefixtures("queue")


def test_the_child_of_a_body_that_forks_is_no_second_worker(processes: Processes) -> None:
    queued = [
        forking.enqueue("returns"),
        forking.enqueue("raises", fails=True),
        forking_after_the_commit.enqueue("ends, in a hook"),
        forking_in_a_step.enqueue("returns, in a step", atomic=False),
        forking_in_a_step.enqueue("returns, in an atomic step", atomic=True),
        forking_async.enqueue("returns, async"),
        forking_async.enqueue("goes on in the loop", fails=True),
    ]
    child = processes.manage("jobs_worker", "--burst", "--concurrency", "1")

    assert child.wait() == 0
    assert [(row(one).state, row(one).result, history(one)) for one in queued] == [("done", "in the parent", [])] * 7
    effects = dict(Effect.objects.values_list("label", "detail"))
    assert effects == {
        "returns": "0",
        "raises": "1",
        "ends, in a hook": "7",
        "returns, in a step": "0",
        "returns, in an atomic step": "0",
        "returns, async": "0",
        "goes on in the loop": "1",
    }
    assert set(Effect.objects.values_list("pid", flat=True)) == {child.pid}
    assert child.output().count("jobs.worker.stopped") == 1


def test_the_child_of_a_body_ends_when_it_is_told_to(processes: Processes) -> None:
    """As it would outside a worker: the worker's handlers are the worker's."""
    signals = (signal.SIGTERM, signal.SIGUSR1) * 10
    queued = [terminating.enqueue(str(n), number=number) for n, number in enumerate(signals)]
    worker = processes.manage("jobs_worker", "--burst", "--concurrency", "1")

    assert worker.wait() == 0
    assert [row(one).result for one in queued] == [str(-number) for number in signals]
    assert "jobs.worker.stacks" not in worker.output()


def test_a_pool_of_processes_in_a_body_ends(processes: Processes) -> None:
    queued = [pooling.enqueue(str(number)) for number in range(10)]
    worker = processes.manage("jobs_worker", "--burst", "--concurrency", "1")

    assert worker.wait() == 0
    assert [row(one).result for one in queued] == [[1, 4, 9]] * 10


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, 0), (SystemExit(), 0), (SystemExit(7), 7), (SystemExit("text"), 1), (ValueError("x"), 1)],
    ids=repr,
)
def test_a_child_ends_with_the_code_that_it_would_have_had(error: BaseException | None, code: int) -> None:
    child = os.fork()
    if child == 0:
        leave_if_forked(os.getppid(), error)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    leave_if_forked(os.getpid(), error)


def test_sigusr1_writes_the_stack_of_each_running_body(processes: Processes) -> None:
    queued = {waiting.enqueue("plain").id: "wait_for", waiting_async.enqueue("async").id: "waited_for"}
    worker = processes.manage("jobs_worker", "--concurrency", "2")
    wait_for_starts("plain", 1), wait_for_starts("async", 1)

    def stacks() -> dict[str, str]:
        asked = worker.output().count("jobs.worker.stacks running=2") + 1
        worker.kill(signal.SIGUSR1)
        wait_for(lambda: worker.output().count("jobs.body.stack") == 2 * asked, "two stacks")
        return dict(
            re.findall(r"jobs\.body\.stack job=(\S+) name=\S+ seconds=\S+ stack=\n((?:  .*\n)+)", worker.output())
        )

    def shown() -> bool:
        # That they have begun is written a moment before they are where they wait.
        latest = stacks()
        return all(f"in {innermost}" in latest[str(job_id)] for job_id, innermost in queued.items())

    wait_for(shown, "where the bodies wait is shown")
    let_go("plain"), let_go("async")
    worker.kill(signal.SIGTERM)

    assert worker.wait() == 0


def test_a_worker_with_a_bound_claims_no_more_and_lets_what_it_claimed_end(processes: Processes) -> None:
    slow = waiting.using(priority=5).enqueue("slow")
    once.enqueue_many([{"label": f"job {n}"} for n in range(5)])
    worker = processes.manage("jobs_worker", "--max-jobs", "4", "--concurrency", "3", jobs={"DRAIN_TIMEOUT": "10ms"})
    wait_for(lambda: states() == {"running": 1, "done": 3, "ready": 2}, "the bound is reached")
    let_go("slow")

    assert worker.wait() == 0
    assert row(slow).state == "done"
    assert states() == {"done": 4, "ready": 2}
    processes.run("jobs_worker", "--max-jobs", "5", "--burst")
    assert states() == {"done": 6}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_burst_that_is_interrupted_drains_and_ends_with_0(processes: Processes, number: signal.Signals) -> None:
    queued = [waiting.enqueue("first"), once.using(priority=-1).enqueue("second")]
    worker = processes.manage("jobs_worker", "--burst", "--concurrency", "1")
    wait_for_starts("first", 1)
    worker.kill(number)
    worker.wait_for_output("jobs.worker.draining")
    let_go("first")

    assert worker.wait() == 0
    assert [row(one).state for one in queued] == ["done", "ready"]


@pytest.mark.parametrize("options", [[], ["--burst"]], ids=["worker", "burst"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_worker_starts_ends_it_with_0_before_it_claims(
    processes: Processes, number: signal.Signals, options: list[str]
) -> None:
    queued = once.enqueue("not yet")
    # The checks run before the worker is made: one of them waits for the signal.
    worker = processes.django(
        "import signal, sys, time\n"
        "from django.core import checks\n"
        "from django.core.management import execute_from_command_line\n"
        "@checks.register\n"
        "def waits(app_configs, **_):\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])\n"
        "    print('checking', flush=True)\n"
        "    while not signal.sigpending():\n"
        "        time.sleep(0.01)\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT])\n"
        "    return []\n"
        f"execute_from_command_line(['manage.py', 'jobs_worker', *{options!r}])\n"
    )
    worker.wait_for_output("checking")
    worker.kill(number)

    assert worker.wait() == 0
    assert (row(queued).state, row(queued).attempt) == ("ready", 0)


def test_a_relay_pass_in_flight_ends_before_the_worker(processes: Processes) -> None:
    with transaction.atomic():
        once.enqueue_many([{"label": f"job {n}"} for n in range(300)])
    worker = processes.manage("jobs_worker", "--concurrency", "1", env={"TEST_LOG_LEVEL": "INFO"})
    worker.wait_for_output("jobs.worker.started")
    worker.kill(signal.SIGTERM)

    assert worker.wait() == 0
    moved = OutboxEntry.objects.filter(outcome="published").count()
    assert sum(states().values()) == moved
    assert not states().get("running")


def test_changed_code_starts_the_worker_again_once_its_jobs_have_ended(processes: Processes) -> None:
    module = processes.folder / "reloaded_code.py"
    module.write_text("VALUE = 1\n")
    slow = waiting.enqueue("slow")
    worker = processes.django(
        "import sys\n"
        f"sys.path.insert(0, {str(processes.folder)!r})\n"
        "import reloaded_code\n"
        "from django.core.management import execute_from_command_line\n"
        "sys.argv = ['-c', 'manage.py', 'jobs_worker', '--reload']\n"
        "execute_from_command_line(sys.argv[1:])\n",
        jobs={**SHORT, "DRAIN_TIMEOUT": "10ms"},
    )
    wait_for_starts("slow", 1)
    changes = iter(range(10**6))

    def change(text: str) -> None:
        # The watcher notes a file at its first look: until it has, a change is none.
        written = module.with_suffix(".new")
        written.write_text(text)
        os.utime(written, (10**9 * 2 + next(changes),) * 2)
        written.replace(module)

    def waits() -> bool:
        change("VALUE = (\n")
        return "jobs.worker.reload-waits" in worker.output()

    wait_for(waits, "code that cannot be compiled is left alone", interval=0.3)
    assert "jobs.worker.reloading" not in worker.output()
    change("VALUE = 2\n")
    worker.wait_for_output("jobs.worker.reloading")
    assert row(slow).state == "running"
    let_go("slow")
    wait_for(lambda: worker.output().count("jobs.worker.started") == 2, "it starts again")
    worker.kill(signal.SIGTERM)

    assert worker.wait() == 0
    assert (row(slow).state, row(slow).attempt) == ("done", 1)
    assert "jobs.worker.draining running=1" not in worker.output()
