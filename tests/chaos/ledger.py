"""What was asked for in a chaos run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Ledger:
    """What was asked for: labels by the kind of their jobs, and those whose transaction was taken back."""

    committed: dict[str, str] = field(default_factory=dict)
    taken_back: set[str] = field(default_factory=set)
