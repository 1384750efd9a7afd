"""A pytest plugin with the fixture `jobs`. Name it where the project's tests begin:

    # conftest.py beside pytest.ini, or `-p ultimat3_jobs.testing.plugin` in addopts
    pytest_plugins = ["ultimat3_jobs.testing.plugin"]

It is not loaded by itself: it would import Django into every run of pytest in the environment, and before coverage is
measured. Imported alone it needs neither settings nor loaded apps.
"""

from __future__ import annotations

import pytest

from ultimat3_jobs.testing.assertions import assert_enqueued, assert_not_enqueued, enqueued
from ultimat3_jobs.testing.crashes import crash_at_each_step
from ultimat3_jobs.testing.drain import drain


class Jobs:
    """What the fixture `jobs` gives. The methods are the functions of `ultimat3_jobs.testing` under the same names."""

    drain = staticmethod(drain)
    assert_enqueued = staticmethod(assert_enqueued)
    assert_not_enqueued = staticmethod(assert_not_enqueued)
    enqueued = staticmethod(enqueued)
    crash_at_each_step = staticmethod(crash_at_each_step)


@pytest.fixture
def jobs() -> Jobs:
    """Run and look up jobs in a test that has the database (`db`, `transactional_db`, or the marker `django_db`)."""
    return Jobs()
