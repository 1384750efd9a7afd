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

from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.settings import MAX_CONCURRENCY
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.loop import Worker, WorkerOptions

LAST_SECONDS = 2.0
"""What a worker that got a second signal has before its process ends."""


class Command(BaseCommand):
    help = (
        "Runs background jobs until it gets SIGTERM or SIGINT, then lets running jobs end. "
        "Exit codes: 0 all ended; 3 some were handed back; 4 ended at once by a second signal."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", type=_queue_names, default=(), help="serve only these queues: a,b")
        parser.add_argument("--exclude-queues", type=_queue_names, default=(), help="serve all queues but these: c,d")
        parser.add_argument("--concurrency", type=_count, help="jobs at once (default: the CONCURRENCY setting)")
        parser.add_argument("--no-relay", action="store_true", help="do not relay the outbox")
        parser.add_argument("--burst", action="store_true", help="run what is due, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        if both := sorted({*options["queues"]} & {*options["exclude_queues"]}):
            raise CommandError(f"--queues and --exclude-queues both name {', '.join(both)}")
        worker = Worker(
            WorkerOptions(
                queues=QueueSelection(options["queues"], options["exclude_queues"]),
                concurrency=options["concurrency"],
                relay=not options["no_relay"],
                burst=options["burst"],
            )
        )
        signals = itertools.count(1)

        def stop(*_: object) -> None:
            worker.stop()
            if next(signals) > 1:
                # The main thread may hang in the database: the process ends all the same.
                watchdog = threading.Timer(LAST_SECONDS, os._exit, [Ending.AT_ONCE])
                watchdog.daemon = True
                watchdog.start()

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            ending = worker.run()
        finally:
            # Called from other code, a burst must leave Ctrl-C as it was.
            for number, handler in before.items():
                signal.signal(number, handler)
        if ending is not Ending.DRAINED:
            # Bodies still run in threads that nothing can end; their writes are refused, and the process goes.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ending)


def _queue_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        # Not "all": an empty variable in a deploy would then serve every queue, or leave none out.
        raise argparse.ArgumentTypeError("name at least one queue, such as a,b; leave the option out for all")
    return names


def _count(text: str) -> int:
    # Longer text than this is no number that could be meant, and may be too long for int().
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MAX_CONCURRENCY:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MAX_CONCURRENCY}")
    return int(text)
