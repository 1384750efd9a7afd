"""Instants and lengths of time as people read them."""

from __future__ import annotations

from datetime import datetime


def instant(moment: datetime | None) -> str:
    """Return an instant: UTC, to the second."""
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    """Return a length of time in the largest unit of which there are two."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{int(seconds) // unit} {name}"
    return f"{int(seconds)} s"
