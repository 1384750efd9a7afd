"""`manage.py jobs_relay`: move committed outbox rows into the queue."""

from __future__ import annotations

import itertools
import os
import queue
import signal
from contextlib import suppress
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ultimat3_jobs.aliases import outbox_aliases
from ultimat3_jobs.errors import MigrationMissing
from ultimat3_jobs.logs import emit
from ultimat3_jobs.loops import LONGEST_DEAF, BackgroundLoop
from ultimat3_jobs.outbox.prune import Pruner
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.worker.drain import Ending

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Command(BaseCommand):
    help = (
        "Relays the outbox until it gets SIGTERM or SIGINT, then ends after the pass in flight. A jobs_worker does "
        "this too, unless told not to. Exit codes: 0 the pass has ended; 4 ended at once by a second signal."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--burst", action="store_true", help="relay what is committed, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["burst"]:
            self._burst()
            return
        settings = get_settings()
        poll = settings.poll.total_seconds()
        told: queue.SimpleQueue[None] = queue.SimpleQueue()
        signals = itertools.count(1)

        def stop(*_: object) -> None:
            if next(signals) > 1:
                # A pass may hang in the database: the process ends all the same. What was not committed never was.
                os._exit(Ending.AT_ONCE)
            told.put(None)

        for number in SIGNALS:
            signal.signal(number, stop)
        # One for each outbox: one that is down holds up no other.
        loops = [
            BackgroundLoop(f"relay-{alias}", interval=poll, step=partial(_relay, alias)) for alias in outbox_aliases()
        ]
        loops.append(BackgroundLoop("prune", interval=poll, step=Pruner().step))
        for loop in loops:
            loop.start()
        emit("jobs.relay.started", batch=settings.outbox.batch, poll_seconds=poll)
        _wait(told)
        emit("jobs.relay.stopping")
        for loop in loops:
            loop.stop(0)
        for loop in loops:
            loop.stop_and_listen()
        emit("jobs.relay.stopped")
        for number in SIGNALS:
            # One that comes again while the interpreter shuts down would end the process as if it had been killed.
            signal.signal(number, signal.SIG_IGN)

    def _burst(self) -> None:
        try:
            relayed = relay_all()
        except MigrationMissing as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"relayed {relayed} outbox rows")


def _wait(told: queue.SimpleQueue[None]) -> None:
    while told.empty():
        with suppress(queue.Empty):
            told.get(timeout=LONGEST_DEAF)
            return


def _relay(alias: str) -> bool:
    return relay_once(alias) >= get_settings().outbox.batch
