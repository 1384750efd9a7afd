"""Signals that steer a run from outside its body.

They derive from BaseException, so that a body's `except Exception` does not swallow them.
"""

from __future__ import annotations


class Aborted(BaseException):
    """The run is over for its body: it was cancelled, or its lease was lost.

    Raised by `run.check_cancelled()`. Whatever the body writes through the package afterwards is refused.
    """

    code = "X_ABORTED"
