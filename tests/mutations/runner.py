"""Runs pytest again and again, each time in a fork of one process that has loaded everything but the project.

Started by `tests.mutations` in a copy of the project. A line of JSON on standard input asks for a run; a line of
JSON on standard output answers with pytest's exit status. What the project's own modules say is read anew each time.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

# Loaded before the first fork: most of a run's time would go into importing them. Not pytest's plugins, which pytest
# wants to load itself.
PRELOADED = (
    "asgiref.sync",
    "django.contrib.admin.utils",
    "django.core.management.commands.migrate",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.executor",
    "django.template",
    "django.test",
    "django.urls",
    "environ",
    "msgspec",
    "polib",
    "psycopg",
    "pytest",
)
TIMED_OUT = -1


def serve() -> None:
    """Answer requests until standard input ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


def _run(request: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        os.setsid()  # so that its own children end with it where it does not end in time
        os._exit(_pytest(request))
    deadline = time.monotonic() + request["timeout"]
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


def _pytest(request: dict[str, Any]) -> int:
    with open(request["log"], "wb") as log, open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.update(request["environment"])
    import pytest

    try:
        return int(pytest.main(request["arguments"]))
    except BaseException as error:
        print(repr(error))
        return 3
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    serve()
