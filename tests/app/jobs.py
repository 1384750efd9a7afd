"""The test app's jobs, found when Django starts: one module for each part of the package that needs some."""

from __future__ import annotations

from tests.app.working_jobs import atomically, dying, once, waiting
from tests.chaos.jobs import atomic, doomed, flaky, plain

__all__ = ["atomic", "atomically", "doomed", "dying", "flaky", "once", "plain", "waiting"]
