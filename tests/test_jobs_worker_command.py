"""`manage.py jobs_worker`: its options, what it refuses, and its exit codes."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from tests.processes import Processes, wait_for
from tests.working import row, states
from ultimat3_jobs import NO_TENANT, Run, job
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.loop import Worker

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options of the workers that the command makes; none of them works."""
    made: list[Any] = []

    class Idle(Worker):
        def run(self) -> Ending:
            made.append(self._options)
            return Ending.DRAINED

    monkeypatch.setattr("ultimat3_jobs.management.commands.jobs_worker.Worker", Idle)
    return made


def test_it_serves_all_queues_with_a_relay_until_it_is_told_to_stop(options: list[Any]) -> None:
    call_command("jobs_worker")

    (made,) = options
    assert made.queues == QueueSelection()
    assert (made.concurrency, made.relay, made.burst) == (None, True, False)


def test_its_options_are_the_workers(options: list[Any]) -> None:
    call_command("jobs_worker", "--queues", "a, b,a", "--concurrency", "3", "--no-relay", "--burst")
    call_command("jobs_worker", "--exclude-queues", "c,d", "--max-jobs", "1000000")

    first, second = options
    assert (first.queues, second.queues) == (QueueSelection(only=("a", "b")), QueueSelection(excluded=("c", "d")))
    assert (first.concurrency, first.relay, first.burst) == (3, False, True)
    assert (first.max_jobs, second.max_jobs) == (None, 1_000_000)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--queues", ""], "name at least one queue"),
        (["--queues", " , "], "name at least one queue"),
        (["--exclude-queues", ""], "name at least one queue"),
        (["--queues", "a,b", "--exclude-queues", "b"], "--queues and --exclude-queues both name b"),
        (["--concurrency", "0"], "'0' is not a whole number from 1"),
        (["--concurrency", "-1"], "'-1' is not a whole number from 1"),
        (["--concurrency", "many"], "'many' is not a whole number from 1"),
        (["--concurrency", "1001"], "'1001' is not a whole number from 1 to 1000"),
        (["--concurrency", "9" * 5_000], "is not a whole number from 1 to 1000"),
        (["--max-jobs", "0"], "'0' is not a whole number from 1"),
        (["--concurrency", "1.5"], "'1.5' is not a whole number from 1"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: list[Any], arguments: list[str], reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("jobs_worker", *arguments)
    assert options == []


def test_a_burst_from_other_code_leaves_its_signals_as_they_were() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    @job(name="t.called", idempotency_key="key", tenant=NO_TENANT)
    def called(run: Run) -> None: ...

    queued = called.enqueue()
    call_command("jobs_worker", "--burst", "--concurrency", "1")

    assert row(queued).state == "done"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_it_runs_until_sigterm_and_then_ends_with_0(processes: Processes) -> None:
    from tests.app.jobs import once

    with transaction.atomic():
        staged = [once.using(queue=name).enqueue(name) for name in ("a", "b", "c")]
    worker = processes.manage("jobs_worker", "--exclude-queues", "c", "--concurrency", "2")
    wait_for(lambda: states() == {"done": 2, "ready": 1}, "what it serves is done")
    idle = processes.manage("jobs_worker", jobs={"POLL": "1h", "LEASE": "1h", "RENEWAL": "1m"})
    wait_for(lambda: states() == {"done": 3}, "the other serves all")

    for child in (worker, idle):
        child.kill(signal.SIGTERM)

    assert (worker.wait(), idle.wait()) == (0, 0)
    assert {entry.outcome for entry in OutboxEntry.objects.all()} == {"published"}
    assert len(staged) == 3


def test_a_worker_that_cannot_keep_its_leases_is_refused_at_the_start(processes: Processes) -> None:
    refusal = processes.run("jobs_worker", "--burst", jobs={"LEASE": "3s", "RENEWAL": "2s"}, status=1)

    assert "ultimat3_jobs.E002" in refusal
    assert 'set ULTIMAT3_JOBS["RENEWAL"] to "1s" or less' in refusal
