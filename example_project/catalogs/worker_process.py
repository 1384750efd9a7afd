"""Runs `jobs_worker` as a child process that never outlives its parent.

The child is the command itself: `python manage.py jobs_worker` in a process of its own, told to drain by
SIGTERM. What is added is a pipe from the parent. However the parent ends, also by SIGKILL, the pipe then
closes, and the child sends itself the SIGTERM that the parent no longer can.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from django.conf import settings

DRAIN_SECONDS = 60.0
"""How long a worker may take to drain before it is killed: longer than it gives its own jobs."""


class WorkerFailed(Exception):
    """The worker ended by itself, or did not end as it should."""


class WorkerProcess:
    """A worker for the length of a `with` block.

    Args:
        log: the file that takes what the worker prints; written anew.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._running().pid

    def __enter__(self) -> WorkerProcess:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")]))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of this project
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
                # Ctrl-C reaches the parent alone, which then drains the worker in good order.
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._stop()
        except WorkerFailed:
            if error is None:
                raise

    def check(self) -> None:
        """Raise WorkerFailed if the worker has ended."""
        code = self._running().poll()
        if code is not None:
            raise WorkerFailed(
                f"the worker ended by itself with exit code {code}; its last words:\n{self.last_words()}"
            )

    def last_words(self, lines: int = 20) -> str:
        """Return the last lines of the worker's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _stop(self) -> None:
        process = self._running()
        try:
            process.terminate()
            # The pipe stays open until the worker has ended: its closing would be a second signal, which cuts
            # the drain short.
            code = process.wait(DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            raise WorkerFailed(f"the worker did not drain within {DRAIN_SECONDS:.0f} s and was killed") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        # SIGTERM as such ends a worker that is still starting: it has claimed nothing yet.
        if code not in (0, -signal.SIGTERM):
            raise WorkerFailed(f"the worker ended with exit code {code}; its last words:\n{self.last_words()}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise WorkerFailed("the worker was not started")
        return self._process


def main() -> None:
    """Be the worker: `manage.py jobs_worker`, drained when the pipe on standard input closes."""
    arguments = [threading.get_ident()]
    threading.Thread(target=_drain_when_parent_ends, args=arguments, name="parent-watch", daemon=True).start()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - after the settings are named

    execute_from_command_line(["manage.py", "jobs_worker"])


def _drain_when_parent_ends(main_thread: int) -> None:
    # Read without Python's buffer, whose lock a thread must not hold when the interpreter ends.
    while os.read(0, 1024):
        pass
    # To the main thread itself: a signal that lands elsewhere does not wake what that one waits in.
    signal.pthread_kill(main_thread, signal.SIGTERM)


if __name__ == "__main__":
    main()
