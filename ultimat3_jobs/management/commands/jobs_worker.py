"""`manage.py jobs_worker`: run jobs, and relay the outbox beside."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import signal
import sys
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from ultimat3_jobs.errors import DriverUnavailable
from ultimat3_jobs.management.os_signals import handling
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.settings import MAX_CONCURRENCY
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.loop import Worker, WorkerOptions
from ultimat3_jobs.worker.readiness import await_queue, require_queue
from ultimat3_jobs.worker.reload import CodeWatch, start_again
from ultimat3_jobs.worker.stacks import StackWriter

LAST_SECONDS = 2.0
"""What a worker that got a second signal has before its process ends."""
LAST_STEPS = 10.0
"""Seconds that the interpreter has to shut down once a worker that was told to stop has drained."""
MOST_JOBS = 999_999_999


class Command(BaseCommand):
    help = (
        "Runs background jobs until it gets SIGTERM or SIGINT, then lets running jobs end. "
        "Exit codes: 0 all ended; 3 some were handed back; 4 ended at once by a second signal. "
        "SIGUSR1 writes the stacks of the running bodies to the log."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", type=_queue_names, default=(), help="serve only these queues: a,b")
        parser.add_argument("--exclude-queues", type=_queue_names, default=(), help="serve all queues but these: c,d")
        parser.add_argument("--concurrency", type=_count, help="jobs at once (default: the CONCURRENCY setting)")
        parser.add_argument("--no-relay", action="store_true", help="do not relay the outbox")
        parser.add_argument("--burst", action="store_true", help="run what is due, then exit")
        parser.add_argument("--max-jobs", type=_number, help="claim so many jobs at most, let them end, then exit")
        parser.add_argument("--reload", action="store_true", help="for development: start again when code changes")

    def execute(self, *args: Any, **options: Any) -> str | None:
        # From here on, so that a signal which comes while the settings are checked ends the worker as any other does.
        self._stops, self._burst = _Stops(), options["burst"]
        with handling({signal.SIGTERM: self._stops.stop, signal.SIGINT: self._stops.stop}) as afterwards:
            output = super().execute(*args, **options)
            if self._stops.asked and _from_the_shell(self):
                # One that comes again while the interpreter shuts down would end the process as if it had been killed.
                afterwards.update(dict.fromkeys(afterwards, signal.SIG_IGN))
            return output

    def handle(self, *args: Any, **options: Any) -> None:
        if both := sorted({*options["queues"]} & {*options["exclude_queues"]}):
            raise CommandError(f"--queues and --exclude-queues both name {', '.join(both)}")
        worker = Worker(
            WorkerOptions(
                queues=QueueSelection(options["queues"], options["exclude_queues"]),
                concurrency=options["concurrency"],
                relay=not options["no_relay"],
                burst=options["burst"],
                max_jobs=options["max_jobs"],
            )
        )
        self._stops.of(worker)
        if not self._is_ready():
            return
        code = CodeWatch(worker.finish)
        if options["reload"]:
            code.start()
        stacks = StackWriter()
        try:
            with handling({signal.SIGUSR1: stacks.ask}):
                ending = worker.run()
        finally:
            stacks.close()
            if options["reload"]:
                code.stop()
        if ending is not Ending.DRAINED:
            # Bodies still run in threads that nothing can end; their writes are refused, and the process goes.
            _flush()
            os._exit(ending)
        if code.changed and not self._stops.asked:
            _flush()
            start_again()
        if self._stops.asked and _from_the_shell(self):
            # A thread that a body left behind and that does not end would keep the process for ever.
            _exit_in(LAST_STEPS, ending)

    def check(self, *args: Any, **options: Any) -> None:
        try:
            super().check(*args, **options)
        except Error:  # some of Django's checks of models ask the databases
            if self._is_ready():
                super().check(*args, **options)

    def _is_ready(self) -> bool:
        """Wait for the queue; a burst, which nobody may be there to stop, ends without it."""
        if not self._burst:
            return await_queue(is_stopped=lambda: self._stops.asked)
        try:
            require_queue()
        except DriverUnavailable as error:
            raise CommandError(str(error)) from error
        return True


class _Stops:
    """What SIGTERM and SIGINT ask for: of the worker, or of the one that is still to be made."""

    def __init__(self) -> None:
        self._signals = itertools.count(1)
        self._worker: Worker | None = None
        self.asked = False

    def stop(self) -> None:
        self.asked = True
        if self._worker is not None:
            self._worker.stop()
        if next(self._signals) > 1:
            # The main thread may hang in the database: the process ends all the same.
            _exit_in(LAST_SECONDS, Ending.AT_ONCE)

    def of(self, worker: Worker) -> None:
        self._worker = worker
        if self.asked:
            worker.stop()


def _from_the_shell(command: BaseCommand) -> bool:
    """Whether the process is the command's own, and ends with it."""
    return bool(getattr(command, "_called_from_command_line", False))


def _exit_in(seconds: float, ending: Ending) -> None:
    watchdog = threading.Timer(seconds, os._exit, [ending])
    watchdog.daemon = True
    watchdog.start()


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


def _queue_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        # Not "all": an empty variable in a deploy would then serve every queue, or leave none out.
        raise argparse.ArgumentTypeError("name at least one queue, such as a,b; leave the option out for all")
    return names


def _count(text: str) -> int:
    return _number(text, most=MAX_CONCURRENCY)


def _number(text: str, most: int = MOST_JOBS) -> int:
    # Longer text than this is no number that could be meant, and may be too long for int().
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)
