"""The queue behind the contract: enqueue, relay and worker ask here for it and never name a driver."""

from __future__ import annotations

from functools import cache

from ultimat3_jobs.drivers.base import Driver
from ultimat3_jobs.records import Capability

__all__ = ["Capability", "Driver", "get_driver"]


@cache
def get_driver() -> Driver:
    """Return the process's driver."""
    from ultimat3_jobs.drivers.database.driver import DatabaseDriver  # noqa: PLC0415 - needs loaded apps

    return DatabaseDriver()
