"""The time of the queue's database, by which everything is due."""

from __future__ import annotations

from datetime import datetime

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.drivers.database.rows import parse_instant
from ultimat3_jobs.sql import run


def clock() -> datetime:
    """Return the time of the queue's database."""
    ((text,),) = run(queue_alias(), "clock", {})
    return parse_instant(text)
