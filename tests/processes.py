"""Real child processes on the test database, and a bounded wait for what they do.

    def test_a_job_runs(processes):
        worker = processes.manage("jobs_worker", jobs={"LEASE": "3s", "RENEWAL": "1s"})
        wait_for(lambda: Effect.objects.filter(label="ran").exists(), "the job ran")
        worker.kill(signal.SIGTERM)
        assert worker.wait() == 0

The fixture `processes` ends what a test leaves running, and shows the logs of a test that failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from django.db import connections

from tests.warm import WarmChild, warm

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent
# Seconds that anything may take before its test has failed.
TIMEOUT = float(os.environ.get("TEST_TIMEOUT", "60"))
INTERVAL = 0.02  # seconds between two looks

Found = TypeVar("Found")


def wait_for(
    condition: Callable[[], Found], what: str = "", *, timeout: float = TIMEOUT, interval: float = INTERVAL
) -> Found:
    """Call `condition` until its answer is true, and return that answer.

    Call it outside a transaction, or it looks at one snapshot for ever.

    Raises:
        AssertionError: where that has not come about within `timeout` seconds; it says `what` was waited for.
    """
    deadline = time.monotonic() + timeout
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or 'the condition that was waited for'}")
        time.sleep(interval)


def database_url(alias: str = "default") -> str:
    """Return the `DATABASE_URL` that leads a child process to the test database of this run."""
    name = str(connections[alias].settings_dict["NAME"])
    if connections[alias].vendor == "sqlite":
        return f"sqlite:///{quote(name)}"
    url = urlsplit(os.environ["DATABASE_URL"])
    # All but the last part of a path names the folder of a Unix socket.
    return url._replace(path=f"{url.path.rpartition('/')[0]}/{quote(name)}").geturl()


class Child:
    """One child process. Its standard output and error are in the file `log`."""

    def __init__(self, popen: WarmChild, command: str, log: Path) -> None:
        self.popen = popen
        self.command = command
        self.log = log

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def output(self) -> str:
        """Return all that it has printed and logged so far."""
        return self.log.read_text(errors="replace")

    def wait_for_output(self, text: str, *, timeout: float = TIMEOUT) -> str:
        """Wait until `text` is in the output, and return the output.

        Raises:
            AssertionError: where it does not come within `timeout` seconds, or the process ends without it.
        """

        def seen() -> str:
            ended = not self.running
            output = self.output()
            assert text in output or not ended, f"{self.command} ended without {text!r}:\n{output}"
            return output if text in output else ""

        return wait_for(seen, f"{text!r} in the output of {self.command}", timeout=timeout)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal; one that has ended is left in peace."""
        self.popen.send_signal(number)

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Wait until it ends and return its exit status, which is negative where a signal ended it.

        Raises:
            AssertionError: where it goes on for more than `timeout` seconds.
        """
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s: {self.command}") from None

    def end(self) -> None:
        """Kill it, and what it started and left in its process group, if it is still running."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


class Processes:
    """Starts child processes and ends them all; a context manager."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.children: list[Child] = []
        # Held open by this process alone: children see it close, whatever ends this process.
        self._lifeline, self._held = os.pipe()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.end()
        os.close(self._lifeline)
        os.close(self._held)

    def manage(self, *arguments: str, **options: Any) -> Child:
        """Start `manage.py` with these arguments; the options are those of `start`."""
        return self.start("manage.py", *arguments, **options)

    def django(self, code: str, *arguments: str, **options: Any) -> Child:
        """Start Python code with Django set up; `arguments` are its `sys.argv[1:]`, options as in `start`."""
        return self.start("-c", f"import django\ndjango.setup()\n{code}", *arguments, **options)

    def start(
        self,
        *arguments: str,
        jobs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        clock_offset: float = 0.0,
    ) -> Child:
        """Start `python SCRIPT [ARGUMENT ...]` or `python -c CODE [ARGUMENT ...]`.

        Args:
            jobs: laid over `ULTIMAT3_JOBS` in the child, key by key.
            env: environment variables, beside those of this process.
            clock_offset: seconds that the child's own clock is off.
        """
        log = self.folder / f"child-{len(self.children) + 1}.log"
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": self.url,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            "TEST_CLOCK_OFFSET": str(clock_offset),
            "TEST_JOBS_SETTINGS": json.dumps(dict(jobs or {})),
            "TEST_LOG_LEVEL": "DEBUG",
            **(env or {}),
        }
        with log.open("wb") as output:
            popen = warm().start(
                arguments, folder=ROOT_DIRECTORY, environment=environment, output=output, lifeline=self._lifeline
            )
        child = Child(popen, shlex.join(arguments), log)
        self.children.append(child)
        return child

    def run(self, *arguments: str, status: int = 0, **options: Any) -> str:
        """Run `manage.py` with these arguments to its end, and return its output.

        Raises:
            AssertionError: where its exit status is not `status`.
        """
        child = self.manage(*arguments, **options)
        ended_with = child.wait()
        assert ended_with == status, f"{child.command} ended with {ended_with}:\n{child.output()}"
        return child.output()
