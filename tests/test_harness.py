"""What the other tests rely on: connections, threads, child processes, the embedded server, skips."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.app.models import Effect, Organization
from tests.conftest import InThreads
from tests.embedded_postgres import embedded_postgres
from tests.processes import ROOT_DIRECTORY, Processes, wait_for


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for yet does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_threads_run_at_once_on_connections_of_their_own(in_threads: InThreads) -> None:
    both = threading.Barrier(2, timeout=30)

    def insert(name: str) -> object:
        both.wait()
        Organization.objects.create(name=name)
        return connection.connection  # itself: the id of one that is gone is given to another

    first, second = in_threads(lambda: insert("one"), lambda: insert("two"))

    assert first is not second
    assert Organization.objects.count() == 2


def test_errors_of_threads_are_raised(in_threads: InThreads) -> None:
    def fail() -> None:
        raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        in_threads(fail, lambda: None)
    with pytest.raises(ExceptionGroup, match="several"):
        in_threads(fail, fail)


def test_a_new_connection_does_not_see_an_open_transaction(
    new_connection: Callable[[], BaseDatabaseWrapper],
) -> None:
    other = new_connection()

    def names() -> list[str]:
        with other.cursor() as cursor:
            cursor.execute("SELECT name FROM app_organization")
            return [row[0] for row in cursor.fetchall()]

    with transaction.atomic():
        Organization.objects.create(name="open")
        assert names() == []
    assert names() == ["open"]


def test_a_child_works_on_the_test_database_with_its_own_settings(processes: Processes) -> None:
    child = processes.django(
        "import json, os, sys, time\n"
        "from django.conf import settings\n"
        "from django.utils import timezone\n"
        "from tests.app.models import Effect\n"
        "Effect.objects.create(label=sys.argv[1], pid=os.getpid(), detail=json.dumps(\n"
        "    [settings.ULTIMAT3_JOBS, settings.USE_TZ, time.time(), timezone.now().timestamp()]))\n"
        "print('waits', flush=True)\n"
        "time.sleep(600)\n",
        "from the child",
        jobs={"LEASE": "3s"},
        env={"TEST_USE_TZ": "0"},
        clock_offset=-3600,
    )

    child.wait_for_output("waits")
    effect = Effect.objects.get(label="from the child")
    jobs, use_tz, *clocks = json.loads(effect.detail)
    assert effect.pid == child.pid
    assert jobs["LEASE"] == "3s"
    assert use_tz is False
    assert all(3000 < time.time() - clock < 4200 for clock in clocks)

    child.kill(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


def test_a_management_command_runs_to_its_end(processes: Processes) -> None:
    assert "no issues" in processes.run("check")
    assert "Unknown command" in processes.run("no_such_command", status=1)


def test_a_child_that_ends_early_says_so(processes: Processes) -> None:
    child = processes.start("-c", "raise SystemExit('gave up')")

    with pytest.raises(AssertionError, match=r"ended without 'ready'.*\n.*gave up"):
        child.wait_for_output("ready")


def test_children_die_with_the_run_that_started_them(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tests.processes import Processes\n"
        "with Processes(Path(sys.argv[1]), 'sqlite://:memory:') as processes:\n"
        "    print(processes.start('-c', 'import time; time.sleep(600)').pid, flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT_DIRECTORY, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        child = int(run.stdout.readline())
        assert alive(child)
        run.kill()

    wait_for(lambda: not alive(child), "the child is gone")


def test_the_embedded_server_dies_with_the_run_that_started_it() -> None:
    code = (
        "import time; from tests.embedded_postgres import embedded_postgres\n"
        "with embedded_postgres() as url:\n"
        "    print(url, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT_DIRECTORY, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        folder = Path(url.partition("host=")[2])
        with psycopg.connect(url) as opened:
            row = opened.execute(
                "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
                "current_setting('full_page_writes'), current_setting('listen_addresses')"
            ).fetchone()
        server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        assert alive(server)
        run.kill()

    assert row == ("on", "on", "on", "")
    wait_for(lambda: not alive(server), "the server is gone")
    wait_for(lambda: not folder.exists(), "its folder is gone")


def test_the_embedded_server_stops_where_the_block_fails() -> None:
    folders = []

    def fail() -> None:
        with embedded_postgres() as url:
            folders.append(Path(url.partition("host=")[2]))
            assert folders[0].exists()
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert not folders[0].exists()


def run_suite(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run tests of their own under the plugin, on SQLite."""
    (folder / "test_it.py").write_text(f"import pytest\n{source}")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p tests.selection\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", folder / "pytest.ini", "--ds=tests.settings", folder],
        cwd=ROOT_DIRECTORY,
        env={**os.environ, "DATABASE_URL": "sqlite://:memory:"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_skips_that_are_not_written_down_fail_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text("import pytest\npytest.skip('why', allow_module_level=True)")
    ended = run_suite(
        tmp_path,
        "def test_skip(): pytest.skip('why')\n"
        "@pytest.mark.skipif(True, reason='why')\ndef test_skipif(): pass\n"
        "@pytest.mark.xfail(reason='why')\ndef test_fails(): assert False\n"
        "@pytest.mark.xfail(reason='why')\ndef test_passes(): pass\n"
        "def test_other(): pass\n",
    )

    assert ended.returncode != 0
    for name in ("test_module.py", "::test_skip", "::test_skipif", "::test_fails", "::test_passes"):
        assert re.search(rf"{name}: .*why.*NOT in skips.txt", ended.stdout), ended.stdout
    assert "::test_other:" not in ended.stdout


def test_a_test_of_the_other_database_is_left_out_and_named(tmp_path: Path) -> None:
    ended = run_suite(
        tmp_path,
        "@pytest.mark.postgresql_only(reason='about SKIP LOCKED')\ndef test_it(): assert False\ndef test_other(): pass",
    )

    assert ended.returncode == 0, ended.stdout
    assert "1 passed, 1 deselected" in ended.stdout
    assert "test_it: postgresql_only: about SKIP LOCKED" in ended.stdout


def test_a_marker_without_a_reason_is_refused(tmp_path: Path) -> None:
    ended = run_suite(tmp_path, "@pytest.mark.postgresql_only\ndef test_it(): pass")

    assert ended.returncode != 0
    assert "needs a reason=" in ended.stdout + ended.stderr
