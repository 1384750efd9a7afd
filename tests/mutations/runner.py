"""Runs tests again and again, each time in a fork of a process that has done before what every run would do.

Started by `tests.mutations` in a copy of the project. A line of JSON on standard input asks for a run; a line of
JSON on standard output answers with pytest's exit status. There are two ways to run. An anew one forks the process that
has loaded everything but the project, whose modules are read again. A collected one forks a pytest session that has
collected the tests of a database, and puts the mutated function bodies into the functions that are loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from tests.mutations.bodies import Functions, loaded_functions, replace_bodies
from tests.warm import PRELOADED

TIMED_OUT = -1
NOT_SO = -2  # the change is one that a collected session cannot take over
WORKS = 8  # seconds of a processor after which a run goes round in circles
CLEANS_UP = 5  # seconds in which a test that has failed may clean up: what it waits for may be what it missed
ENDED_HERE = {-signal.SIGXCPU, -signal.SIGALRM}  # by those two


def serve() -> None:
    """Answer requests until standard input ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    sessions: dict[str, Session] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["collected"] is None:
            status = _fork(request, lambda request=request: int(pytest.main(request["arguments"])))
        else:
            session = sessions.setdefault(request["environment"]["DATABASE_URL"], Session(request))
            status = session.ask(request)
        print(json.dumps(status), flush=True)


class Session:
    """A pytest session in a process of its own that stops once it has collected the tests, and forks for each request."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._started = False

    def ask(self, request: dict[str, Any]) -> int:
        """Run tests in a fork of the session, and return the exit status."""
        if not self._started:
            self._start()
        self._to.write(json.dumps(request) + "\n")
        self._to.flush()
        answer = self._from.readline()
        return int(json.loads(answer)) if answer else pytest.ExitCode.INTERNAL_ERROR

    def _start(self) -> None:
        self._started = True
        requests, to = os.pipe()
        from_, answers = os.pipe()
        if os.fork() == 0:
            os.close(to)
            os.close(from_)
            with os.fdopen(requests) as reading, os.fdopen(answers, "w") as writing:
                plugin = Serving(reading, writing)
                _settle_in(self._request)
                _leave(lambda: int(pytest.main(self._request["collected"], plugins=[plugin])))
        os.close(requests)
        os.close(answers)
        self._to, self._from = os.fdopen(to, "w"), os.fdopen(from_)


class Serving:
    """A pytest plugin that runs what it is asked to in place of all that was collected."""

    def __init__(self, requests: Any, answers: Any) -> None:
        self._requests = requests
        self._answers = answers
        self._functions: Functions = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until they end."""
        self._functions = loaded_functions()
        gc.freeze()  # no fork looks through all of this, and copies it by doing so
        for line in self._requests:
            request = json.loads(line)
            status = _fork(request, lambda request=request: self._run(session, request))
            print(json.dumps(status), file=self._answers, flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print why a test failed: the session's own summary never comes."""
        if report.failed:
            print(report.nodeid, report.longreprtext, sep="\n", flush=True)
            signal.alarm(CLEANS_UP)

    def _run(self, session: pytest.Session, request: dict[str, Any]) -> int:
        change = (request["file"], request["old"], request["new"])
        if request["old"] is not None and not replace_bodies(*change, self._functions):
            return NOT_SO
        tests = request["tests"]
        items = [item for item in session.items if any(_names(test, item.nodeid) for test in tests)]
        if not items:
            return pytest.ExitCode.NO_TESTS_COLLECTED
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return pytest.ExitCode.TESTS_FAILED
        return pytest.ExitCode.OK


def _names(test: str, nodeid: str) -> bool:
    return nodeid == test or nodeid.startswith((f"{test}[", f"{test}::"))


def _fork(request: dict[str, Any], run: Callable[[], int]) -> int:
    """Run something in a fork and return its exit status; it is killed with its children where it takes too long."""
    child = os.fork()
    if child == 0:
        os.setsid()  # so that its own children end with it where it does not end in time
        if request["old"] is not None or request["collected"] is None:
            resource.setrlimit(resource.RLIMIT_CPU, (WORKS, WORKS + 5))
        _settle_in(request)
        _leave(run)
    deadline = time.monotonic() + request["timeout"]
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(status)
            if status not in ENDED_HERE:
                return NOT_SO if status == NOT_SO % 256 else status
            break
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return TIMED_OUT


def _settle_in(request: dict[str, Any]) -> None:
    with open(request["log"], "wb") as log, open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.update(request["environment"])


def _leave(run: Callable[[], int]) -> NoReturn:
    status = 3
    try:
        status = run()
    except BaseException as error:
        print(repr(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status % 256)


if __name__ == "__main__":
    serve()
