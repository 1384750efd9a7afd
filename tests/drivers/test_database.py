"""The conformance suite on the database driver."""

from __future__ import annotations

import pytest

from tests.drivers.harness import DatabaseHarness
from ultimat3_jobs.testing.conformance import *  # noqa: F403 - the rules


@pytest.fixture
def harness(transactional_db: None) -> DatabaseHarness:
    """An empty queue."""
    return DatabaseHarness()
