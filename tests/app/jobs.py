"""The test app's jobs, found when Django starts: one module for each part of the package that needs some."""

from __future__ import annotations

from tests.app.runtime_jobs import (
    forking,
    forking_after_the_commit,
    forking_async,
    forking_in_a_step,
    pooling,
    steady,
    terminating,
    waiting_async,
)
from tests.app.step_jobs import stepping, stopped
from tests.app.working_jobs import atomically, dying, once, waiting
from tests.chaos.jobs import atomic, doomed, flaky, plain, steps

__all__ = [
    "atomic", "atomically", "doomed", "dying", "flaky", "forking", "forking_after_the_commit", "forking_async",
    "forking_in_a_step", "once",
    "plain", "pooling", "steady", "stepping", "steps", "stopped", "terminating", "waiting", "waiting_async",
]  # fmt: skip
