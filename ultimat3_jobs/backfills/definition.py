"""What a declaration says of a backfill beside what any job says: one frozen value, checked when it is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.signals import Signal
    from ultimat3_jobs.backfills.windows import Window

Batch = int | Literal["auto"]


@dataclass(frozen=True, eq=False)
class BackfillDefinition:
    """How the rows of a backfill are found and swept."""

    name: str
    handler: Callable[..., Any]
    """Called with the run and the rows of a page (a list of model instances)."""
    source: Callable[[], Any]
    """Gives the queryset of the rows to sweep."""
    batch: Batch
    """Rows a page at most; "auto" is tuned to the time that a page takes."""
    rate: float
    """Pages a second at most."""
    throttle: Callable[[], Any] | None
    """Asked before a page whether to wait."""
    signals: Sequence[Signal]
    """Built-in reasons to wait."""
    window: Window | None
    """Hours in which it may sweep, in the project's time zone; None: always."""
    requires: tuple[str, str] | None
    """App label and name of the migration that must be applied."""
    environments: tuple[str, ...] | None
    """Names of the environments that it is meant for; None: all."""
    count: Callable[[], Any] | None
    """Counts the rows that are left; it must answer 0 after the last page."""
    lock: bool
    """Whether the rows of a page are locked."""
    atomic: bool
    """Whether a page and the cursor commit together where the rows are in the queue's database."""
    exclusive: bool
    """Whether it waits for another pass over the same table to end."""
