"""Passes to steer, in the states that several tests need, and what is done to them beside their run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connections

from tests.app.models import Item
from tests.backfills.sweeping import declare
from tests.working import row, run_due
from ultimat3_jobs.backfills import controls
from ultimat3_jobs.backfills.pending import PassStatus
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.inspection.passes import tell_pass
from ultimat3_jobs.records import CancelVerdict


def pause(run_id: UUID) -> controls.Controlled:
    return controls.pause(run_id, by="ann", reason="too much load")


def resume(run_id: UUID) -> controls.Controlled:
    return controls.resume(run_id, by="ann")


def fast(run_id: UUID) -> controls.Controlled:
    return controls.pace(run_id, by="ann", rate=1_000, window=None)


def cancel(run_id: UUID) -> CancelVerdict:
    (verdict,) = get_driver().cancel([run_id], by="ann", reason="no more")
    return verdict


def status(run_id: UUID) -> PassStatus:
    told = tell_pass(run_id)
    assert told is not None
    return told.status


def a_ready() -> UUID:
    return declare(None, Item, batch=10).enqueue().id


def a_paused() -> UUID:
    started = a_ready()
    pause(started)
    run_due()
    assert row(started).state == "suspended"
    return started


@contextmanager
def when(event: str, do: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do something, once, in the thread that logs this event while it does so; yield what came of it."""
    came: list[Any] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "event", "") == event and not came:
                came.append(None)
                try:
                    came[0] = do()
                except Exception as error:
                    came[0] = error

    logger, handler = logging.getLogger("ultimat3_jobs"), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield came
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def beside(do: Callable[[], Any]) -> threading.Thread:
    """Do something on another connection, at the same time."""

    def body() -> None:
        try:
            do()
        finally:
            connections.close_all()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread
