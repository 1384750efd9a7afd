"""What a worker sees of a run while its body works: how far it says it is, and how long its steps take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from ultimat3_jobs.cancellation import Cancellation
from ultimat3_jobs.errors import InputInvalid

MOST = 2**63
"""What a number of progress stays under: every database and every reader of JSON takes it."""


class Vitals:
    """Shared by a run, as its body has it, and the worker that watches it.

    Attributes:
        step_limit: gives what is entered around each call of a step, by its name. The worker that watches the time
            sets it; without one a step may take as long as it takes.
        winding_down: set where the worker is to stop: a body that can go on elsewhere should let go of it.
        in_transaction: whether a transaction of the body, of a step or of a page is open on the queue's database. Where
            writers take turns, all others wait for it.
        may_wait: whether a body may spend its worker's time waiting, as a sweep does for its rate. Not in a test.
    """

    def __init__(self) -> None:
        self.step_limit: Callable[[str], AbstractContextManager[None]] = _no_limit
        self.winding_down = Cancellation()
        self.in_transaction = False
        self.may_wait = True
        self._told: tuple[float, float | None] | None = None

    def tell(self, done: float, total: float | None) -> None:
        """Note how far the run is. One assignment: any thread may do so, and nobody waits.

        Raises:
            InputInvalid: where one of them is no number of 0 or more.
        """
        self._told = _checked("done", done), None if total is None else _checked("total", total)

    @property
    def progress(self) -> str | None:
        """What was told last, as the JSON that is stored; None where nothing was."""
        if (told := self._told) is None:
            return None
        return msgspec.json.encode({"done": told[0], "total": told[1]}).decode()


def _checked(name: str, value: float) -> float:
    # As the plain number that it is: an encoder takes no kind of its own (numpy's float64), and what cannot be encoded
    # would keep the job from being settled.
    if isinstance(value, int) and not isinstance(value, bool):
        value = int.__index__(value)
    elif isinstance(value, float):
        value = float.__float__(value)
    # NaN is in no range.
    if type(value) in (int, float) and 0 <= value < MOST:
        return value
    raise InputInvalid(
        f"progress was told {name}={value!r}, which is no number from 0 up",
        fix="run.progress(len(finished), len(items))",
    )


def _no_limit(_name: str) -> AbstractContextManager[None]:
    return nullcontext()
