"""Child processes without the start of an interpreter: forks of a process that has loaded everything but the project.

Most of what a child of a test takes to start is the import of Django and other libraries. The warm process
(`python -m tests.warm SOCKET`, its argument the path of a socket that listens) imports them once, before there is a
thread or a connection, and forks for each child. A child differs in nothing else from one that was started anew: it has
its own session, environment, working directory and output, and reads the project's own modules itself. A test run that
asks for the same start again (the same environment, and a start that sets Django up before anything else) gets its
children from a fork that has done so: that is most of what is left.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

ROOT_DIRECTORY = Path(__file__).resolve().parent.parent
SERVED = "TEST_WARM_PROCESS"  # names the socket of a warm process that serves this one as well
PRELOADED = (
    "asgiref.sync",
    "cronsim",
    "django.contrib.admin.sites",
    "django.contrib.admin.utils",
    "django.core.management",
    "django.core.management.commands.migrate",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.executor",
    "django.template",
    "django.test",
    "django.urls",
    "django.views.debug",
    "environ",
    "msgspec",
    "polib",
    "psycopg",
    "tqdm",
)
OF_ONE_TEST = {"PYTEST_CURRENT_TEST"}  # variables that change nothing of a start
HEADER = 8  # bytes that tell the length of a message
LOOK = 0.01  # seconds between two looks at a child that is waited for


class WarmChild:
    """A child of the warm process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, warm: Warm, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._warm = warm

    def poll(self) -> int | None:
        """Return the exit status, negative where a signal ended it; None while it runs."""
        if self.returncode is None:
            # Its parent waits for it only when asked: until then nobody else can have got its id.
            self.returncode = self._warm.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: where it goes on for more than `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(LOOK)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Warm:
    """A connection to a warm process, whose children live on when it closes."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)

    def start(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        output: IO[bytes],
        lifeline: int,
    ) -> WarmChild:
        """Start `tests.child` with these arguments; see there."""
        request = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
        return WarmChild(self, self.ask(request, output.fileno(), lifeline))

    def ask(self, request: Mapping[str, Any], *descriptors: int) -> Any:
        """Send a request with descriptors, and return the answer."""
        with self._lock:
            _send(self._socket, request, *descriptors)
            answer, _ = _receive(self._socket)
            return answer["is"]


_connected: tuple[int, Warm] | None = None  # with the process that it belongs to: a fork needs one of its own


def warm() -> Warm:
    """Return this process's connection to a warm process: one that it was told of, or its own, started when needed."""
    global _connected  # noqa: PLW0603 - there is one a process
    if _connected is None or _connected[0] != os.getpid():
        path = os.environ.get(SERVED) or _started(os.getpid())
        _connected = (os.getpid(), Warm(path))
    return _connected[1]


def _started(owner: int) -> str:
    running = ExitStack()
    folder = running.enter_context(tempfile.TemporaryDirectory(prefix="warm-"))
    path = running.enter_context(warm_process(Path(folder)))

    def end() -> None:
        if os.getpid() == owner:
            running.close()

    atexit.register(end)
    return path


@contextmanager
def warm_process(folder: Path) -> Iterator[str]:
    """Keep a warm process with its socket in `folder` for the length of the block, and yield the socket's path.

    It ends with whoever started it, since its standard input does; children that still run are not its own to end.
    """
    path = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(listening.fileno())],
            cwd=ROOT_DIRECTORY,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            start_new_session=True,  # a Ctrl-C is for the tests
        )
    assert process.stdin is not None
    try:
        yield path
    finally:
        process.stdin.close()
        process.wait()


def _send(over: socket.socket, message: Mapping[str, Any], *descriptors: int) -> None:
    text = json.dumps(message).encode()
    over.sendall(len(text).to_bytes(HEADER))
    if descriptors:
        sent = socket.send_fds(over, [text], list(descriptors))
        text = text[sent:]
    over.sendall(text)


def _receive(over: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a message and its descriptors; an empty one where the other end has closed."""
    header = over.recv(HEADER, socket.MSG_WAITALL)
    if len(header) < HEADER:
        return {}, []
    left, text, descriptors = int.from_bytes(header), b"", array.array("i")
    while left:
        part, ancillary, _, _ = over.recvmsg(left, socket.CMSG_SPACE(8))
        if not part:
            return {}, []
        for level, kind, found in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(found)
        text, left = text + part, left - len(part)
    return json.loads(text), descriptors.tolist()


def serve(listening: socket.socket) -> None:
    """Fork for each child that is asked for; return in the child, and in the warm process when standard input ends."""
    assert threading.active_count() == 1, "an import has started a thread, which no fork would have"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that serve one connection are not waited for
    while True:
        readable, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in readable:
            raise SystemExit
        over, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _serve_one(over)
            return
        over.close()


def _serve_one(over: socket.socket) -> None:
    """Serve one test run until it closes the connection; return in a child of a test."""
    asked: set[str] = set()
    ready: dict[str, socket.socket] = {}  # those that have Django set up, by their environment
    whose: dict[int, socket.socket] = {}  # their children
    while True:
        request, descriptors = _receive(over)
        if not request:
            os._exit(0)
        if "poll" in request:
            _send(over, _passed_on(whose.get(request["poll"]), request) or {"is": _ended(request["poll"])})
            continue
        key = _same_start(request)
        if key and key in asked and key not in ready:
            if (setting_up := _set_up(request, [over, *ready.values()])) is None:
                return
            ready[key] = setting_up
        asked.add(key)
        if answer := _passed_on(ready.get(key), request, *descriptors):
            whose[answer["is"]] = ready[key]
            _send(over, answer)
        else:
            pid = os.fork()
            if pid == 0:
                for other in (over, *ready.values()):
                    other.close()
                _become(request)
                _begin(request, *descriptors)
                return
            _send(over, {"is": pid})
        for descriptor in descriptors:
            os.close(descriptor)


def _ended(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _passed_on(to: socket.socket | None, request: Mapping[str, Any], *descriptors: int) -> dict[str, Any]:
    """Return the answer of another process; an empty one where there is none, or it has ended."""
    if to is None:
        return {}
    with contextlib.suppress(ConnectionError):
        _send(to, request, *descriptors)
        return _receive(to)[0]
    return {}


def _same_start(request: Mapping[str, Any]) -> str:
    """Return what a start has in common with others that begin alike; nothing where it need not set Django up."""
    environment = {name: value for name, value in request["environment"].items() if name not in OF_ONE_TEST}
    script, *arguments = request["arguments"]
    sets_up = script == "manage.py" or (script == "-c" and arguments[0].startswith("import django\ndjango.setup()\n"))
    if not sets_up or environment.get("DJANGO_SETTINGS_MODULE") != "tests.settings":
        return ""
    if float(environment.get("TEST_CLOCK_OFFSET", "0")):
        return ""
    return json.dumps([request["folder"], environment], sort_keys=True)


def _set_up(request: Mapping[str, Any], others: list[socket.socket]) -> socket.socket | None:
    """Fork a process that sets Django up in this environment, and then forks for each child that begins so.

    Return its socket, and in such a child nothing.
    """
    here, there = socket.socketpair()
    if os.fork():
        there.close()
        return here
    for other in (here, *others):
        other.close()
    try:
        _become(request)
        import django

        django.setup()
    except BaseException:
        os._exit(1)  # the child itself says why
    assert threading.active_count() == 1, "to set Django up has started a thread, which no fork would have"
    gc.freeze()
    while True:
        request, descriptors = _receive(there)
        if not request:
            os._exit(0)
        if "poll" in request:
            _send(there, {"is": _ended(request["poll"])})
            continue
        pid = os.fork()
        if pid == 0:
            there.close()
            _begin(request, *descriptors)
            return None
        for descriptor in descriptors:
            os.close(descriptor)
        _send(there, {"is": pid})


def _become(request: Mapping[str, Any]) -> None:
    """Give this process the folder, the environment and the path of a new one."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    further = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [request["folder"], *(path for path in further if path and path not in sys.path)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # they may be those of another copy of the project


def _begin(request: Mapping[str, Any], output: int, lifeline: int) -> None:
    """Give this process a session, output and arguments of its own."""
    os.setsid()
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.update({name: value for name, value in request["environment"].items() if name in OF_ONE_TEST})
    os.environ["TEST_LIFELINE"] = str(lifeline)
    sys.argv[1:] = request["arguments"]


if __name__ == "__main__":
    for module in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as waiting:
        serve(waiting)
    from tests import child

    # What starts the command again, as a reload does, must start this.
    sys.modules["__main__"].__spec__ = child.__spec__
    child.main()
