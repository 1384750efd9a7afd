"""`manage.py jobs_relay`: move committed outbox rows into the queue."""

from __future__ import annotations

import queue
import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import BackgroundLoop
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.settings import get_settings

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Command(BaseCommand):
    help = "Relays the outbox until it gets SIGTERM or SIGINT. A jobs_worker does this too, unless told not to."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--burst", action="store_true", help="relay what is committed, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["burst"]:
            self.stdout.write(f"relayed {relay_all()} outbox rows")
            return
        settings = get_settings()
        stop: queue.SimpleQueue[None] = queue.SimpleQueue()
        for number in SIGNALS:
            signal.signal(number, lambda *_: stop.put(None))
        loop = BackgroundLoop(
            "relay",
            interval=settings.poll.total_seconds(),
            step=lambda: relay_once() >= settings.outbox.batch,
        )
        loop.start()
        emit("jobs.relay.started", batch=settings.outbox.batch, poll_seconds=settings.poll.total_seconds())
        stop.get()
        emit("jobs.relay.stopping")
        loop.stop()
        emit("jobs.relay.stopped")
        for number in SIGNALS:
            # One that comes again while the interpreter shuts down would end the process as if it had been killed.
            signal.signal(number, signal.SIG_IGN)
