"""What a run has recorded: read once, given out name by name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from uuid import UUID

from ultimat3_jobs.errors import StepChanged, StepDuplicate
from ultimat3_jobs.records import StepKind, StoredStep

if TYPE_CHECKING:
    from ultimat3_jobs.drivers import Driver

BUDGET = 8 * 1024 * 1024
"""Bytes of recorded outputs that are read at once and kept; the others are read when their step is met."""


class Trace:
    """The recorded steps of one attempt's run.

    Nothing is read before the first step is asked for. What was given out is let go, so that a long run does not keep
    what it has replayed; of each step its name stays, which must not come twice.
    """

    def __init__(self, driver: Driver, run_id: UUID, *, job: str) -> None:
        self._driver = driver
        self._run_id = run_id
        self._job = job
        self._lock = threading.Lock()  # steps may be asked for in several threads of a body
        self._recorded: dict[str, StoredStep] | None = None
        self._last = 0
        self._met: set[str] = set()
        self._unnamed: dict[str, int] = {}

    def take(self, name: str, kind: StepKind) -> StoredStep | None:
        """Return what is recorded under a name, once; None where nothing is.

        Raises:
            StepDuplicate: where this attempt has asked for the name before.
            StepChanged: where it was recorded as something else.
        """
        with self._lock:
            recorded = self._read()
            if name in self._met:
                raise StepDuplicate(
                    f"{self._job} has two steps named {name!r} in one run",
                    fix='run.step(f"charge-{order_id}", ...)  # in a loop a name for each turn, the same on every try',
                )
            self._met.add(name)
            stored = recorded.pop(name, None)
        if stored is not None and stored.kind != kind:
            raise StepChanged(
                f"run {self._run_id} recorded {name!r} as a {stored.kind}, and the code of {self._job} now asks for a "
                f"{kind} of that name",
                fix="give what is new a name of its own; or deploy the code that recorded it and let such runs end",
            )
        if stored is not None and stored.left_out:
            output = self._driver.step_output(self._run_id, name)
            return StoredStep(name=name, seq=stored.seq, kind=stored.kind, state=stored.state, output=output)
        return stored

    def unnamed(self, kind: StepKind) -> str:
        """Return the name of the next step of a kind that the body gave none: they are counted in their order."""
        with self._lock:
            number = self._unnamed[kind] = self._unnamed.get(kind, 0) + 1
        return f"{kind}-{number}"

    def next_seq(self) -> int:
        """Return the number in the order of recording for a step that is about to be recorded."""
        with self._lock:
            self._read()
            self._last += 1
            return self._last

    def _read(self) -> dict[str, StoredStep]:
        if self._recorded is None:
            stored = self._driver.steps(self._run_id, budget=BUDGET)
            self._last = stored[-1].seq if stored else 0
            self._recorded = {one.name: one for one in stored}
        return self._recorded
