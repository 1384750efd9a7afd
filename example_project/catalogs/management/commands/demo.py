"""`manage.py demo`: the whole way of a job, on real input."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from tqdm import tqdm

from example_project.catalogs.counting import migrate_to_expanded
from example_project.catalogs.rendering import as_document, as_text
from example_project.catalogs.running import run_demo
from example_project.catalogs.watching import NothingMoves, Standing
from example_project.catalogs.worker_process import WorkerFailed
from ultimat3_jobs.errors import BackfillPending


class Command(BaseCommand):
    """Scans every catalog in the installed Django, publishes a few of them, and says what the tables hold."""

    help = (
        "Scan the message catalogs of the installed Django, and publish a few, with the outbox, the queue and a worker."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take --json."""
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the demo, print its outcome on standard output and its progress on standard error."""
        if ":memory:" in str(connection.settings_dict["NAME"]):
            raise CommandError(
                "the worker is a process of its own and cannot open this one's memory: unset DATABASE_URL"
            )
        migrate_to_expanded()
        try:
            with _terminated_in_good_order(), _progress_bar() as bar:
                outcome = run_demo(lambda standing: _show(bar, standing), lambda line: self._say(bar, line))
        except (WorkerFailed, NothingMoves, BackfillPending) as error:
            raise CommandError(f"{error}\nRun the demo again: it goes on from where it is.") from error
        except KeyboardInterrupt:
            raise CommandError(
                "interrupted; run the demo again and it goes on from where it is", returncode=130
            ) from None
        self.stdout.write(json.dumps(as_document(outcome), indent=2) if options["json"] else as_text(outcome))

    def _say(self, bar: tqdm, line: str) -> None:
        bar.clear()
        self.stderr.write(line, str)  # as it is: not in the colour of an error


@contextmanager
def _progress_bar() -> Iterator[tqdm]:
    # Left out where standard error is no terminal.
    with tqdm(desc="jobs", unit=" jobs", disable=None, leave=False, dynamic_ncols=True) as bar:
        yield bar


def _show(bar: tqdm, standing: Standing) -> None:
    bar.total = standing.total
    bar.n = standing.final
    bar.refresh()


@contextmanager
def _terminated_in_good_order() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that the worker is drained."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
