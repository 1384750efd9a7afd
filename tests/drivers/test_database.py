"""The conformance suite on the database driver."""

from __future__ import annotations

from ultimat3_jobs.testing.conformance import *  # noqa: F403 - the rules
