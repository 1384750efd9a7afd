"""`manage.py jobs_worker`: run jobs, and relay the outbox beside."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.worker.drain import Ending
from ultimat3_jobs.worker.loop import Worker, WorkerOptions


class Command(BaseCommand):
    help = (
        "Runs background jobs until it gets SIGTERM or SIGINT, then lets running jobs end. "
        "Exit codes: 0 all ended; 3 some were handed back; 4 ended at once by a second signal."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", type=_names, default=(), help="serve only these queues: a,b")
        parser.add_argument("--exclude-queues", type=_names, default=(), help="serve all queues but these: c,d")
        parser.add_argument("--concurrency", type=_positive, help="jobs at once (default: the CONCURRENCY setting)")
        parser.add_argument("--no-relay", action="store_true", help="do not relay the outbox")
        parser.add_argument("--burst", action="store_true", help="run what is due, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        if set(options["queues"]) & set(options["exclude_queues"]):
            raise CommandError("--queues and --exclude-queues name the same queue")
        worker = Worker(
            WorkerOptions(
                queues=QueueSelection(options["queues"], options["exclude_queues"]),
                concurrency=options["concurrency"],
                relay=not options["no_relay"],
                burst=options["burst"],
            )
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        ending = worker.run()
        if ending is not Ending.DRAINED:
            # Bodies still run in threads that nothing can end; their writes are refused, and the process goes.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ending)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value
