"""One guard, what takes it away, and the test that must then fail."""

from __future__ import annotations

from dataclasses import dataclass

BOTH = ("sqlite", "postgresql")
POSTGRESQL = ("postgresql",)
SQLITE = ("sqlite",)


@dataclass(frozen=True)
class Mutation:
    """One guard taken away.

    Attributes:
        guard: what the guard is for.
        file: where it stands, from the project's root.
        old: its text.
        new: what stands there instead.
        test: the node id of the test named for it.
        vendors: the databases on which that test must fail.
        places: how often the text stands in the file; all are replaced.
    """

    guard: str
    file: str
    old: str
    new: str
    test: str
    vendors: tuple[str, ...] = BOTH
    places: int = 1
