"""An empty queue for every test of a driver."""

from __future__ import annotations

import pytest

from tests.drivers.harness import DatabaseHarness


@pytest.fixture
def harness(transactional_db: None) -> DatabaseHarness:
    """The database driver with an empty queue."""
    return DatabaseHarness()
