"""`python -m tests.mutations [WORD ...]`: take each guard away in turn; the test named for it must then fail.

Each mutation of `tests.mutations.table` is applied to a copy of the project, and its test is run there on the
databases it is about. First every named test must pass on the unchanged copy. Words choose the mutations whose
guard or file holds one of them. The exit status is 0 where every mutation was caught.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.embedded_postgres import embedded_postgres
from tests.mutations.table import MUTATIONS, Mutation

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent.parent
COPIED = ("ultimat3_jobs", "tests", "example_project", "pyproject.toml", "manage.py")
SIDE_BY_SIDE = 2
TIMEOUT = 180  # seconds for one test; a guard's absence may also show as a test that never ends
TESTS_FAILED = 1  # pytest's exit status; others say that nothing was tested


@dataclass(frozen=True)
class Case:
    """One mutation on one database."""

    mutation: Mutation
    vendor: str

    def __str__(self) -> str:
        return f"{self.mutation.guard} [{self.vendor}] {self.mutation.file}"


class Copy:
    """A copy of the project in which one guard at a time is missing."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        for name in COPIED:
            source = ROOT_DIRECTORY / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".demo*"))
            else:
                shutil.copy(source, folder / name)

    def test(self, vendor: str, *tests: str) -> tuple[int, str]:
        """Run tests on one database; return pytest's exit status and output."""
        url = "sqlite://:memory:" if vendor == "sqlite" else self._url
        # The copy comes first on the path, before an installed or linked package.
        environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(self._folder)}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--create-db", *tests]
        try:
            done = subprocess.run(
                command, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired as stuck:
            return TESTS_FAILED, f"did not end within {TIMEOUT} s\n{stuck.stdout!r}"
        return done.returncode, done.stdout + done.stderr

    def try_mutation(self, case: Case) -> str | None:
        """Return None where the mutation was caught, otherwise what happened."""
        path = self._folder / case.mutation.file
        text = path.read_text()
        if text.count(case.mutation.old) != case.mutation.places:
            found = text.count(case.mutation.old)
            return f"the guard's text stands in {found} places, not {case.mutation.places}: {case.mutation.old!r}"
        path.write_text(text.replace(case.mutation.old, case.mutation.new))
        try:
            status, output = self.test(case.vendor, case.mutation.test)
        finally:
            path.write_text(text)
        if status == TESTS_FAILED:
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
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, embedded_postgres() as url:
        copies = [Copy(_made(Path(folder) / str(number)), _own(url, number)) for number in range(SIDE_BY_SIDE)]
        if not _baseline(copies, cases):
            return 1
        missed = _try_all(copies, cases)
    for case, what in missed:
        print(f"\nNOT CAUGHT: {case}\n{what}")
    print(f"\n{len(cases) - len(missed)} passed, {len(missed)} failed")
    return 1 if missed else 0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _own(url: str, number: int) -> str:
    """Give each copy a test database of its own on the server."""
    return url.replace("/postgres?", f"/mutations_{number}?")


def _baseline(copies: list[Copy], cases: list[Case]) -> bool:
    """Whether every named test passes where no guard is missing."""
    results: list[tuple[str, int, str]] = []

    def run(copy: Copy, vendor: str) -> None:
        tests = sorted({case.mutation.test for case in cases if case.vendor == vendor})
        if tests:
            results.append((vendor, *copy.test(vendor, *tests)))

    threads = [
        threading.Thread(target=run, args=(copy, vendor))
        for copy, vendor in zip(copies, ("sqlite", "postgresql"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [(vendor, output) for vendor, status, output in results if status]
    for vendor, output in failed:
        print(f"with all guards in place the named tests do not pass on {vendor}:\n{output[-6000:]}")
    return not failed


def _try_all(copies: list[Copy], cases: list[Case]) -> list[tuple[Case, str]]:
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    missed: list[tuple[Case, str]] = []

    def work(copy: Copy) -> None:
        while True:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                return
            what = copy.try_mutation(case)
            print(f"{'caught' if what is None else 'MISSED'}  {case}", flush=True)
            if what is not None:
                missed.append((case, what))

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
