"""Declarations of backfills as values, for tests of what is decided from them."""

from __future__ import annotations

from typing import Any

from ultimat3_jobs.backfills.definition import BackfillDefinition


def definition(**changes: Any) -> BackfillDefinition:
    """Return a declaration that asks for nothing, with these changes."""
    values: dict[str, Any] = {
        "name": "rewrite-slugs",
        "aliases": (),
        "handler": lambda run, rows: None,
        "source": lambda: None,
        "batch": 1_000,
        "rate": 5.0,
        "throttle": None,
        "signals": (),
        "window": None,
        "requires": None,
        "environments": None,
        "count": None,
        "lock": True,
        "atomic": True,
        "exclusive": True,
    }
    return BackfillDefinition(**values | changes)
