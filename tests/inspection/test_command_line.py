"""`manage.py jobs` from a shell: exit statuses, JSON, and a queue that cannot be read."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.processes import Processes

pytestmark = pytest.mark.django_db


def test_the_exit_status_and_the_json_hold_from_the_shell(processes: Processes) -> None:
    for arguments, status, code in (
        (["show", "00000000", "--json"], 1, "X_JOB_UNKNOWN"),
        (["retry", "--json"], 2, "X_USAGE"),
        (["ls", "--limit", "many", "--json"], 2, "X_USAGE"),
    ):
        child = processes.manage("jobs", *arguments, env={"TEST_LOG_LEVEL": "ERROR"})
        assert child.wait() == status, child.output()
        found = json.loads(child.output())
        assert (found["version"], found["error"]["code"]) == (1, code)


def shell(processes: Processes, command: str, url: str) -> tuple[int, str]:
    """Run a command line on a database of its own, and return its exit status and what it printed."""
    environment = {"DATABASE_URL": url, "TEST_LOG_LEVEL": "ERROR"}
    child = processes.manage(*shlex.split(command)[2:], env=environment)
    return child.wait(), child.output()


def test_missing_tables_are_mended(processes: Processes, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.sqlite3"

    status, told = shell(processes, "python manage.py jobs ls --json", url)
    error = json.loads(told)["error"]

    assert (status, error["code"]) == (1, "X_MIGRATION_MISSING")
    assert shell(processes, error["fix"], url)[0] == 0
    assert shell(processes, "python manage.py jobs ls", url) == (0, "no job was found\n")


def test_a_database_that_is_away(processes: Processes, tmp_path: Path) -> None:
    url = f"postgresql://postgres@:5432/postgres?host={tmp_path}"  # no server's socket is there

    status, told = shell(processes, "python manage.py jobs ls --json", url)
    error = json.loads(told)["error"]

    assert (status, error["code"]) == (1, "X_DRIVER_UNAVAILABLE")
    status, told = shell(processes, error["fix"], url)
    assert status == 1
    assert "ultimat3_jobs.E007" in told
