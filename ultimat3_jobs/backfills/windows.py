"""The hours in which a pass may sweep, in the project's time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time


@dataclass(frozen=True)
class Window:
    """From `start` until `end`, over midnight where `end` is the earlier of the two."""

    start: time
    end: time
