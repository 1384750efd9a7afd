"""`python -m tests [ARGUMENT ...]`: the whole suite on SQLite, then on a real PostgreSQL.

That is the PostgreSQL of `DATABASE_URL` where it names one, otherwise the embedded server. The arguments are
pytest's. What opens no database is run once, beside SQLite. The exit status is 0 where both runs passed and ran tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

from tests.embedded_postgres import embedded_postgres
from tests.selection import ELSEWHERE, PLAIN_TESTS
from tests.warm import SERVED, warm_process

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent
SQLITE = "sqlite://:memory:"  # the test database itself is a file, made by the suite
NO_TESTS_COLLECTED = 5  # pytest's exit status
PYTEST_ENDS = 120  # seconds for pytest to clean up after an interrupt


def main(arguments: list[str]) -> int:
    """Run the suite on both databases and return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A shell starts what it puts in the background with interrupts ignored, and pytest would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tests-")))
        url = os.environ.get("DATABASE_URL", "")
        if url.split(":")[0] in {"postgres", "postgresql", "psql", "pgsql"}:
            server = "the PostgreSQL of DATABASE_URL"
        else:
            server, url = "an embedded PostgreSQL", stack.enter_context(embedded_postgres())
        os.environ[SERVED] = stack.enter_context(warm_process(folder))
        runs = [("SQLite", SQLITE, {}), (server, url, {PLAIN_TESTS: ELSEWHERE})]
        print("The suite runs on both databases side by side; PostgreSQL's output follows SQLite's.", flush=True)
        statuses = run_side_by_side(runs, folder, arguments)
        totals = sum((count(folder / f"{number}.xml") for number in range(len(runs))), Counter[str]())
    failed = totals["failures"] + totals["errors"]
    skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
    print()
    if totals["tests"]:
        # What was chosen may all belong to the other database: nothing to run is no failure then.
        statuses = [0 if status == NO_TESTS_COLLECTED else status for status in statuses]
    for (name, *_), status in zip(runs, statuses, strict=True):
        print(f"{name}: {'passed' if status == 0 else f'FAILED (pytest ended with {status})'}")
    print(f"{totals['tests'] - failed - totals['skipped']} passed, {failed} failed{skipped}", flush=True)
    return max(abs(status) for status in statuses)


def run_side_by_side(runs: list[tuple[str, str, dict[str, str]]], folder: Path, arguments: list[str]) -> list[int]:
    """Run pytest on each database in a process of its own, and print what they say one after the other.

    The processes are waited for until they have cleaned up, also where they are interrupted.
    """
    started: list[tuple[str, subprocess.Popen[bytes], Path]] = []
    for number, (name, database_url, variables) in enumerate(runs):
        log = folder / f"{number}.log"
        command = [sys.executable, "-m", "pytest", f"--junit-xml={folder / f'{number}.xml'}", *arguments]
        environment = {**os.environ, "DATABASE_URL": database_url, **variables}
        with log.open("wb") as output:
            target = None if number == 0 else output
            process = subprocess.Popen(command, cwd=ROOT_DIRECTORY, env=environment, stdout=target, stderr=target)
        started.append((name, process, log))
    try:
        for number, (name, process, log) in enumerate(started):
            print(f"\n== The suite on {name}", flush=True)
            process.wait()
            if number:
                print(log.read_text(errors="replace"), flush=True)
    except (KeyboardInterrupt, SystemExit) as stopped:
        for _, process, _ in started:
            # A Ctrl-C has reached pytest as well; a SIGTERM has not.
            if isinstance(stopped, SystemExit) and process.poll() is None:
                process.send_signal(signal.SIGINT)
        for _, process, _ in started:
            process.wait(PYTEST_ENDS)
        raise
    return [process.returncode for _, process, _ in started]


def count(report: Path) -> Counter[str]:
    """Return the number of tests, failures, errors and skipped of pytest's report."""
    if not report.exists():
        return Counter()
    kinds = ("tests", "failures", "errors", "skipped")
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    return Counter({kind: sum(int(suite.get(kind, 0)) for suite in suites) for kind in kinds})


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
