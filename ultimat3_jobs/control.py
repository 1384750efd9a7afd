"""Signals that steer a run from outside its body.

They derive from BaseException, so that a body's `except Exception` does not swallow them.
"""

from __future__ import annotations

from ultimat3_jobs.records import Suspension


class Aborted(BaseException):
    """The run is over for its body: it was cancelled, or its lease was lost.

    Raised by `run.check_cancelled()`. Whatever the body writes through the package afterwards is refused.
    """

    code = "X_ABORTED"


class Suspended(BaseException):
    """The run lets go of its worker: it sleeps, waits for an event, or comes back later.

    Raised by `run.sleep()`, `run.wait_for_event()` and `run.snooze()`. The body is called again from its start when the
    time has come; what its steps recorded is not done again.
    """

    def __init__(self, suspension: Suspension) -> None:
        super().__init__(suspension.reason)
        self.suspension = suspension
