"""`python -m tests.mutations [WORD ...]`: take each guard away in turn; the test named for it must then fail.

Each mutation of `tests.mutations.table` is applied to a copy of the project, and its test is run there on the
databases it is about. Every named test must pass on the unchanged copy. Words choose the mutations whose
guard or file holds one of them. The exit status is 0 where every mutation was caught.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from py_compile import PycInvalidationMode

from tests.embedded_postgres import embedded_postgres
from tests.emptying import LEFT, MADE
from tests.mutations.mutation import BOTH, Mutation
from tests.mutations.runner import TIMED_OUT
from tests.mutations.table import MUTATIONS
from tests.warm import SERVED, warm_process

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent.parent
COPIED = ("ultimat3_jobs", "tests", "example_project", "pyproject.toml", "manage.py")
VENDORS = BOTH  # a baseline on SQLite takes longer, and begins first
SIDE_BY_SIDE = 3  # many tests wait for what a process does more than they work
TIMEOUT = 30  # seconds for one test; a guard's absence may also show as a test that never ends
# Seconds that a test waits for what should come: it comes much sooner, or the guard is missing. The unchanged copy has
# to do with them too.
PATIENCE = 10
BASELINE_TIMEOUT = 900
# Nobody reads how an assertion of a mutated run failed. To rewrite assertions, or to look for the source of each line
# that a failure came through, takes longer than most tests.
PYTEST_ARGUMENTS = ["-x", "-q", "--reuse-db", "--assert=plain", "--tb=native", "--capture=no", "-p", "no:cacheprovider"]
# A mutated run may leave a connection open, which must not stand in the way of its exit status.
PYTEST_ARGUMENTS += ["-p", "no:unraisableexception"]
TESTS_FAILED = 1  # pytest's exit status; others say that nothing was tested
CAUGHT = (TESTS_FAILED, TIMED_OUT)
OPENS_THE_DATABASE = "tests/test_harness.py::test_a_new_connection_does_not_see_an_open_transaction"


@dataclass(frozen=True)
class Case:
    """One mutation on one database."""

    mutation: Mutation
    vendor: str

    def __str__(self) -> str:
        return f"{self.mutation.guard} [{self.vendor}] {self.mutation.file}"


@dataclass(frozen=True)
class Changed:
    """A file in which a guard is missing."""

    path: Path
    old: str
    new: str


@dataclass
class Tried:
    """What was found: where the unchanged project fails its tests, and what was not caught."""

    failed: list[tuple[str, str]] = field(default_factory=list)
    missed: list[tuple[Case, str]] = field(default_factory=list)


Ended = tuple[int, str]  # pytest's exit status and output


class Copy:
    """A copy of the project in which one guard at a time is missing, with databases of its own."""

    def __init__(self, folder: Path, url: str, cases: list[Case], *, like: Copy | None) -> None:
        folder.mkdir()
        self._made: set[str] = set()
        self._left: set[str] = set()  # databases whose last test may not have cleaned up
        self._tests = {
            vendor: sorted({OPENS_THE_DATABASE} | {case.mutation.test for case in cases if case.vendor == vendor})
            for vendor in VENDORS
        }
        self._folder = folder
        self._urls = {"sqlite": "sqlite://:memory:", "postgresql": url}
        for name in COPIED:
            source = (like._folder if like else ROOT_DIRECTORY) / name
            if source.is_dir():
                ignored = [".demo*"] if like else ["__pycache__", ".demo*"]
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns(*ignored))
            else:
                shutil.copy(source, folder / name)
        if like is None:
            # Checked by content: what is mutated is compiled anew, the rest is not.
            compile_dir(folder, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        # The copy comes first on the path, before an installed or linked package.
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self._runner = subprocess.Popen(
            [sys.executable, "-m", "tests.mutations.runner"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process that runs the tests."""
        self._runner.communicate()

    def test(
        self, vendor: str, *tests: str, timeout: float, changed: Changed | None = None, anew: bool = False
    ) -> Ended:
        """Run tests on one database; return pytest's exit status and output.

        Args:
            changed: the file in which a guard is missing.
            anew: import everything, in place of a session that has collected all tests of the database.
        """
        log = self._folder / "log"
        # The database is made once and used again: each test leaves it empty.
        request = {
            "arguments": [*PYTEST_ARGUMENTS, *tests],
            "collected": None if anew else [*PYTEST_ARGUMENTS, *self._tests[vendor]],
            "tests": tests,
            "environment": {
                "DATABASE_URL": self._urls[vendor],
                "TEST_SQLITE_FILE": str(self._folder / "test.sqlite3"),
                "TEST_TIMEOUT": str(PATIENCE),
                MADE: "" if anew and tests == (OPENS_THE_DATABASE,) else LEFT if vendor in self._left else "1",
            },
            "log": str(log),
            "timeout": timeout,
            "file": str(changed.path) if changed else None,
            "old": changed.old if changed else None,
            "new": changed.new if changed else None,
        }
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        self._runner.stdin.write(json.dumps(request) + "\n")
        self._runner.stdin.flush()
        status = int(json.loads(self._runner.stdout.readline()))
        (self._left.add if status == TIMED_OUT else self._left.discard)(vendor)
        return status, log.read_text(errors="replace")

    def make_ready(self, vendor: str) -> None:
        """Make the database, and collect its tests while no guard is missing."""
        if vendor not in self._made:
            self._made.add(vendor)
            for anew in (True, False):
                status, output = self.test(vendor, OPENS_THE_DATABASE, timeout=TIMEOUT, anew=anew)
                assert status == 0, output

    def try_mutation(self, case: Case) -> str | None:
        """Return None where the mutation was caught, otherwise what happened."""
        self.make_ready(case.vendor)
        path = self._folder / case.mutation.file
        text = path.read_text()
        if text.count(case.mutation.old) != case.mutation.places:
            found = text.count(case.mutation.old)
            return f"the guard's text stands in {found} places, not {case.mutation.places}: {case.mutation.old!r}"
        changed = Changed(path, text, text.replace(case.mutation.old, case.mutation.new))
        path.write_text(changed.new)
        try:
            status, output = self.test(case.vendor, case.mutation.test, timeout=TIMEOUT, changed=changed)
            if status not in CAUGHT:  # it may show in what is imported
                status, output = self.test(case.vendor, case.mutation.test, timeout=TIMEOUT, anew=True)
        finally:
            path.write_text(text)
        if status in CAUGHT:
            return None
        what = "the test still passed" if status == 0 else f"pytest ended with {status}"
        return f"{what}: {case.mutation.test}\n{output[-3000:] if status else ''}"


def main(words: list[str]) -> int:
    """Run the chosen mutations; return the exit status."""
    chosen = [one for one in MUTATIONS if not words or any(word in f"{one.guard} {one.file}" for word in words)]
    cases = [Case(one, vendor) for one in chosen for vendor in one.vendors]
    if not cases:
        print("no mutation is named so")
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="mutations-") as folder,
        embedded_postgres() as url,
        warm_process(Path(folder)) as served,
    ):
        os.environ[SERVED] = served
        copies: list[Copy] = []
        try:
            for number in range(SIDE_BY_SIDE):
                first = copies[0] if copies else None
                copies.append(Copy(Path(folder) / str(number), _own(url, number), cases, like=first))
            tried = Tried()
            _try_all(copies, cases, tried)
        finally:
            for copy in copies:
                copy.close()
    for vendor, output in tried.failed:
        print(f"with all guards in place the named tests do not pass on {vendor}:\n{output[-6000:]}")
    if tried.failed:
        return 1
    for case, what in tried.missed:
        print(f"\nNOT CAUGHT: {case}\n{what}")
    print(f"\n{len(cases) - len(tried.missed)} passed, {len(tried.missed)} failed")
    return 1 if tried.missed else 0


def _own(url: str, number: int) -> str:
    """Give each copy a test database of its own on the server."""
    return url.replace("/postgres?", f"/mutations_{number}?")


def _try_all(copies: list[Copy], cases: list[Case], tried: Tried) -> None:
    """Try every case, and beside that whether each test passes where no guard is missing."""
    unchanged: queue.SimpleQueue[str] = queue.SimpleQueue()
    for vendor in sorted({case.vendor for case in cases}, key=VENDORS.index):
        unchanged.put(vendor)
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)

    def work(copy: Copy) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                vendor = unchanged.get_nowait()
                copy.make_ready(vendor)
                tests = sorted({case.mutation.test for case in cases if case.vendor == vendor})
                status, output = copy.test(vendor, *tests, timeout=BASELINE_TIMEOUT)
                if status:
                    tried.failed.append((vendor, output))
        with contextlib.suppress(queue.Empty):
            while not tried.failed:
                case = waiting.get_nowait()
                what = copy.try_mutation(case)
                print(f"{'caught' if what is None else 'MISSED'}  {case}", flush=True)
                if what is not None:
                    tried.missed.append((case, what))

    with ThreadPoolExecutor(len(copies)) as threads:
        for done in [threads.submit(work, copy) for copy in copies]:
            done.result()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
