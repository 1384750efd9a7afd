"""No host's clock decides anything: one that is an hour off steals nothing, delays nothing, and is not asked for."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests.app.jobs import waiting
from tests.processes import ROOT_DIRECTORY, Processes, wait_for
from tests.scenarios.effects import SHORT, let_go, starts, wait_for_starts
from tests.working import row
from ultimat3_jobs.models import Job as JobRow

ENQUEUE = """
from django.db import transaction
from tests.app.jobs import once, waiting

waiting.enqueue("of the child")
with transaction.atomic():
    once.enqueue("now")
    once.using(run_after="1h").enqueue("later")
once.using(run_after="1h").enqueue("later, straight")
"""


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("offset", [-3600, 3600], ids=["an hour slow", "an hour fast"])
def test_processes_whose_clocks_are_off_steal_nothing_and_delay_nothing(processes: Processes, offset: int) -> None:
    held = waiting.enqueue("of the test")
    right = processes.manage("jobs_worker", "--concurrency", "1", jobs=SHORT)
    wait_for_starts("of the test", 1)
    enqueuer = processes.django(ENQUEUE, clock_offset=offset)
    wrong = processes.manage("jobs_worker", "--concurrency", "2", jobs=SHORT, clock_offset=offset)
    assert enqueuer.wait() == 0, enqueuer.output()

    # What is due runs at once, what is due in an hour does not.
    wait_for(lambda: JobRow.objects.filter(idempotency_key="now", state="done").exists(), "what was due is done")
    wait_for_starts("of the child", 1)
    for label in ("later", "later, straight"):
        later = JobRow.objects.get(idempotency_key=label)
        assert later.state == "delayed"
        assert timedelta(minutes=55) < later.run_at - datetime.now(UTC) <= timedelta(hours=1)

    # Each worker sweeps again and again, and leaves the other's job where it is.
    seen: dict[UUID, set[object]] = {
        held.id: set(),
        JobRow.objects.get(idempotency_key="of the child").id: set(),
    }

    def renewed() -> bool:
        for job_id, moments in seen.items():
            moments.add(row(job_id).visible_at)
        return all(len(moments) > 6 for moments in seen.values())

    wait_for(renewed, "both leases are renewed past their first length")
    let_go("of the test"), let_go("of the child")
    wait_for(lambda: all(row(job_id).state == "done" for job_id in seen), "both are done")

    assert [(row(job_id).attempt, row(job_id).lapses) for job_id in seen] == [(1, 0), (1, 0)]
    assert starts("of the test") == [(1, right.pid)]
    assert starts("of the child") == [(1, wrong.pid)]
    assert "jobs.lease" not in right.output() + wrong.output()


READS_THE_CLOCK = [
    "import time\ntime.time()",
    "import time\ntime.time_ns()",
    "import time\nclock = time.time\nclock()",
    "from time import time\ntime()",
    "import datetime\ndatetime.datetime.now(datetime.UTC)",
    "from datetime import datetime\ndatetime.now()",
    "from datetime import datetime\ndatetime.utcnow()",
    "from datetime import datetime\ndatetime.today()",
    "from datetime import date\ndate.today()",
    "from django.utils import timezone\ntimezone.now()",
    "from django.utils.timezone import now\nnow()",
    "from django.utils import timezone\ntimezone.localtime()",
    "from django.utils import timezone\ntimezone.localdate()",
    "from django.db.models.functions import Now\nNow()",
]


def lint(source: str, name: str) -> str:
    """Return what the project's lint has to say of a file of this name that may read the clock."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", "--select=TID251"]
    done = subprocess.run(
        [*command, f"--stdin-filename={name}", "-"],
        cwd=ROOT_DIRECTORY,
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("source", READS_THE_CLOCK, ids=lambda source: source.splitlines()[-1])
def test_the_lint_forbids_to_read_the_hosts_clock_anywhere_in_the_package(source: str) -> None:
    assert "TID251" in lint(source, "ultimat3_jobs/worker/new.py")


def test_the_lint_knows_every_part_of_the_package() -> None:
    for name in ("ultimat3_jobs/new.py", "ultimat3_jobs/management/commands/new.py", "ultimat3_jobs/a/b/c.py"):
        assert "TID251" in lint(READS_THE_CLOCK[0], name)


def test_spans_may_be_measured() -> None:
    assert lint("import time\ntime.monotonic()\ntime.sleep(1)\n", "ultimat3_jobs/worker/new.py").startswith(
        "All checks passed"
    )


def test_the_exceptions_are_named() -> None:
    settings = tomllib.loads((ROOT_DIRECTORY / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    excepted = {path for path, codes in settings["per-file-ignores"].items() if {"TID251", "TID"} & {*codes}}
    assert {path for path in excepted if path.startswith("ultimat3_jobs")} == {"ultimat3_jobs/ids.py"}

    waived = [
        f"{path.relative_to(ROOT_DIRECTORY)}: {line}"
        for path in Path(ROOT_DIRECTORY / "ultimat3_jobs").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"noqa(?!:)|noqa:.*(TID251|DTZ)|ruff: noqa", line)
    ]
    assert waived == []
