"""Follows a pass from a terminal: how far it is, what it waits for, how it ended. The pass needs nobody to do so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import DatabaseError, connections

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.pending import PassStatus
from ultimat3_jobs.errors import BackfillNotLive
from ultimat3_jobs.inspection.backfill_texts import attempts_text, left_text, paused_text, progress_text, speed_text
from ultimat3_jobs.inspection.masking import printable
from ultimat3_jobs.inspection.passes import PassReport, tell_pass
from ultimat3_jobs.inspection.workers import alive_workers, worker_command
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.text import command_line

LOOK = 0.5
"""Seconds between two looks at the pass."""
PLAIN = 5.0
"""Seconds between two lines where they cannot be drawn over."""
WIDTH = 30  # characters of a bar


@dataclass(frozen=True)
class Screen:
    """Where a pass that is followed is shown.

    Attributes:
        say: prints a line.
        draw: draws a line over the one that it drew before; None where that is not possible.
        only_notices: whether it is told what keeps the pass, and not how far that is.
    """

    say: Callable[[str], None]
    draw: Callable[[str], None] | None
    only_notices: bool = False


class Follower:
    """Follows one pass.

    Args:
        name: of the backfill.
        run_id: of the pass.
        screen: where to show it.
    """

    def __init__(self, name: str, run_id: UUID, screen: Screen) -> None:
        self._name = name
        self._run_id = run_id
        self._screen = screen
        self._said = self._plain = ""
        self._is_alone = self._is_cut_off = False
        self._plain_at: float | None = None
        self._drawn = False

    def follow(self) -> PassReport:
        """Return how the pass ended, once it has.

        Raises:
            BackfillNotLive: where it and its job have been deleted.
        """
        told = self._look()
        while told.is_live:
            self._show(told)
            time.sleep(LOOK)
            told = self._look_again(told)
        self._show(told)
        self.let_go()
        return told

    def let_go(self) -> None:
        """Leave the line that is drawn over."""
        if self._drawn:
            self._screen.say("")
            self._drawn = False

    def _look(self) -> PassReport:
        told = tell_pass(self._run_id)
        if told is None:
            raise BackfillNotLive(
                f"the pass {self._run_id} of backfill {self._name!r} has been deleted",
                fix=command_line("backfill", "--list"),
            )
        return told

    def _look_again(self, told: PassReport) -> PassReport:
        """Look, or keep what was seen where the database is away for a while: the pass may go on without us."""
        try:
            told = self._look()
        except DatabaseError as error:
            connections[queue_alias()].close()
            if not self._is_cut_off:
                self._say(f"the queue's database cannot be asked, and is asked again: {str(error).strip()}")
            self._is_cut_off = True
        else:
            self._is_cut_off = False
        return told

    def _show(self, told: PassReport) -> None:
        if told.is_live and not self._is_cut_off:
            self._notice(told)
        if self._screen.only_notices:
            return
        line = bar(told)
        if self._screen.draw is not None:
            self._screen.draw(line)
            self._drawn = True
        elif self._plain_at is None or not told.is_live or time.monotonic() - self._plain_at >= PLAIN:
            if line != self._plain:
                self._screen.say(line)
            self._plain, self._plain_at = line, time.monotonic()

    def _notice(self, told: PassReport) -> None:
        """Say once what keeps the pass, and that nobody is there to sweep it."""
        queue = told.job.queue if told.job is not None else get_settings().default_queue
        is_alone = not alive_workers(queue)
        if is_alone and not self._is_alone:
            self._say(f"no worker that serves the queue {queue!r} is alive; to start one:")
            self._say(f"    {worker_command(queue)}")
        self._is_alone = is_alone
        why = _why(told)
        if why and why != self._said:
            self._say(why)
        self._said = why

    def _say(self, text: str) -> None:
        self.let_go()
        self._screen.say(printable(text))


def bar(told: PassReport) -> str:
    """Return how far a pass is, in a line: a bar, rows, rows a second and time left."""
    done = WIDTH * (told.percent or 0) // 100
    parts = [f"[{'#' * done}{'.' * (WIDTH - done)}]", progress_text(told)]
    if told.rows_per_second is not None:
        parts.append(speed_text(told))
    if told.seconds_left is not None:
        parts.append(f"{left_text(told)} left")
    return printable("  ".join(parts))


def _why(told: PassReport) -> str:
    """Return what the pass waits for. That a worker is about to take it is not worth a word, and that none is there
    is said by itself.
    """
    if told.status is PassStatus.PAUSED:
        return paused_text(told)
    if attempts := attempts_text(replace(told, is_due=False)):  # the same while it is delayed, to be said once
        return attempts
    return "" if told.is_due or not told.waits_for else f"it waits for: {told.waits_for}"
