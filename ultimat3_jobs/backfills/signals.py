"""Built-in reasons for a pass to wait."""

from __future__ import annotations

from typing import Protocol


class Signal(Protocol):
    """A condition of the database under which a pass should wait."""

    def ask(self, alias: str, table: str) -> str | None:
        """Return why to wait, or None."""
