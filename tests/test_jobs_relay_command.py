"""`manage.py jobs_relay`: moves what is committed, and ends when it is told to."""

from __future__ import annotations

import signal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.app.models import Effect
from tests.missing_table import without_table
from tests.outbox.support import labels, outcomes, stage
from tests.processes import Processes, wait_for
from ultimat3_jobs.models import Job

RELAY_AND_STOP = """
import sys
from django.core.management import call_command
from tests.outbox.support import stop_after

stop_after("enqueue", until=sys.argv[1])
call_command("jobs_relay")
"""
MIGRATE = "python manage.py migrate --database default"
SELDOM = {"POLL": "1h", "OUTBOX": {"BATCH": 2}}


@pytest.mark.django_db(transaction=True)
def test_a_burst_moves_what_is_committed_and_says_how_much() -> None:
    stage("a", "b", "c")
    for count in (3, 0):
        output = StringIO()
        call_command("jobs_relay", "--burst", stdout=output)
        assert output.getvalue() == f"relayed {count} outbox rows\n"

    assert labels() == ["a", "b", "c"]


def test_a_burst_ends_by_itself_and_runs_no_job(processes: Processes) -> None:
    stage("a", "b", "c")

    assert "relayed 3 outbox rows" in processes.run("jobs_relay", "--burst", jobs=SELDOM)
    assert labels() == ["a", "b", "c"]
    assert set(Job.objects.values_list("state", "attempt")) == {("ready", 0)}
    assert not Effect.objects.exists()


@pytest.mark.parametrize("table", ["x_jobs", "x_outbox"])
def test_a_burst_without_tables_says_what_to_run(processes: Processes, table: str) -> None:
    stage("a")
    with without_table(table):
        output = processes.run("jobs_relay", "--burst", status=1)

    assert f"CommandError: X_MIGRATION_MISSING: 'default' lacks {table} of ultimat3_jobs" in output
    assert MIGRATE in output
    assert outcomes() == {"a": None}


@pytest.mark.parametrize("table", ["x_jobs", "x_outbox"])
def test_without_tables_it_says_what_to_run_and_goes_on_once_they_are_there(processes: Processes, table: str) -> None:
    stage("a")
    with without_table(table):
        relay = processes.manage("jobs_relay")
        told = f"error=MigrationMissing cause='default' lacks {table} of ultimat3_jobs fix={MIGRATE}"
        relay.wait_for_output(told)
    wait_for(lambda: labels() == ["a"], "it is relayed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_moves_what_is_committed_until_it_is_told_to_stop(processes: Processes, number: int) -> None:
    stage("before")
    relay = processes.manage("jobs_relay")
    wait_for(lambda: outcomes() == {"before": "published"}, "what was there is moved")
    for label in ("while", "it", "runs"):
        stage(label)
        wait_for(lambda staged=label: staged in labels(), "what is committed is moved")  # type: ignore[misc]
    relay.kill(number)

    assert relay.wait() == 0
    assert "jobs.relay.stopped" in relay.output()
    assert "Traceback" not in relay.output()
    stage("after")
    assert outcomes()["after"] is None


def test_it_does_not_wait_between_the_batches_of_a_backlog(processes: Processes) -> None:
    stage(*"abcde")
    relay = processes.manage("jobs_relay", jobs=SELDOM)
    wait_for(lambda: None not in outcomes().values(), "all is moved")
    relay.kill(signal.SIGTERM)

    assert relay.wait() == 0
    assert labels() == list("abcde")


def test_it_ends_after_the_move_on_its_way(processes: Processes, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    stage(*"abcde")
    relay = processes.django(RELAY_AND_STOP, str(go_on), jobs=SELDOM)
    relay.wait_for_output("stopped after enqueue")
    relay.kill(signal.SIGTERM)
    relay.wait_for_output("jobs.relay.stopping")
    assert relay.running
    assert set(outcomes().values()) == {None}
    go_on.touch()

    assert relay.wait() == 0
    assert labels() == ["a", "b"]
    assert sorted(label for label, outcome in outcomes().items() if outcome) == ["a", "b"]


def test_a_second_signal_ends_it_at_once(processes: Processes, tmp_path: Path) -> None:
    stage("a")
    relay = processes.django(RELAY_AND_STOP, str(tmp_path / "never"), jobs=SELDOM)
    relay.wait_for_output("stopped after enqueue")
    relay.kill(signal.SIGTERM)
    relay.wait_for_output("jobs.relay.stopping")
    relay.kill(signal.SIGTERM)

    assert relay.wait() == 4
    assert "Traceback" not in relay.output()
    assert outcomes() == {"a": None}
    call_command("jobs_relay", "--burst", stdout=StringIO())
    assert outcomes() == {"a": "published"}
