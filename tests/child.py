"""What a child process of a test runs first: `python -m tests.child manage.py jobs_worker`, or `... -c CODE
[ARGUMENT]`.

It ties the child's life to the test run: `TEST_LIFELINE` is the descriptor of a pipe that the run keeps open,
and once it closes, however the run ended, the child is killed. `TEST_CLOCK_OFFSET` (seconds, may be negative)
sets the clock that Python code reads through `time`, `datetime` and `django.utils.timezone` off by that much;
the database's clock, SQLite's too, stays right.
"""

from __future__ import annotations

import ctypes
import gc
import os
import runpy
import signal
import sys
import threading
import time
from datetime import UTC, datetime, timedelta


def main() -> None:
    """Run the script or the code that the arguments name, as `__main__`."""
    if lifeline := os.environ.pop("TEST_LIFELINE", ""):
        threading.Thread(target=_die_with_the_run, args=[int(lifeline)], daemon=True).start()
    if offset := float(os.environ.get("TEST_CLOCK_OFFSET", "0")):
        _shift_clock(offset)
    script, *arguments = sys.argv[1:]
    if script == "-c":
        code, *arguments = arguments
        sys.argv = ["-c", *arguments]
        exec(compile(code, "<child>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")


def _die_with_the_run(descriptor: int) -> None:
    # Signals are the main thread's: one that landed here would not wake what the main thread waits in.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _shift_clock(offset: float) -> None:
    by = timedelta(seconds=offset)
    real_time, real_time_ns, real_now = time.time, time.time_ns, datetime.now
    time.time = lambda: real_time() + offset
    time.time_ns = lambda: real_time_ns() + int(offset * 1e9)
    # A class of C takes no new attributes; its namespace does. `django.utils.timezone.now` asks it too.
    namespace = gc.get_referents(datetime.__dict__)[0]
    namespace["now"] = classmethod(lambda cls, tz=None: real_now(tz) + by)
    namespace["utcnow"] = classmethod(lambda cls: real_now(UTC).replace(tzinfo=None) + by)
    namespace["today"] = classmethod(lambda cls: real_now() + by)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))


if __name__ == "__main__":
    main()
