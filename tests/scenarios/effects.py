"""What the bodies of `tests.app.working_jobs` did, and what they wait for."""

from __future__ import annotations

from tests.app.models import Effect
from tests.processes import wait_for

# Sweeps come as often as renewals.
SHORT = {"LEASE": "1500ms", "RENEWAL": "400ms", "POLL": "50ms"}


def starts(label: str) -> list[tuple[int, int]]:
    """Return the attempt and the process of each start, in order."""
    return list(Effect.objects.filter(label=label, detail="start").order_by("id").values_list("attempt", "pid"))


def ends(label: str) -> list[tuple[int, int]]:
    """Return the attempt and the process of each end, in order."""
    return list(Effect.objects.filter(label=label, detail="end").order_by("id").values_list("attempt", "pid"))


def wait_for_starts(label: str, count: int) -> list[tuple[int, int]]:
    """Wait until a body has started that often."""
    return wait_for(lambda: starts(label) if len(starts(label)) >= count else [], f"start {count} of {label}")


def let_go(label: str) -> None:
    """Let the bodies of a label end."""
    Effect.objects.create(label=label, detail="go")
