"""The driver conformance suite: the rules of `ultimat3_jobs.drivers.base`, to be run against every driver.

A driver's test module supplies a harness and imports the rules; pytest then collects them there:

    import pytest

    from ultimat3_jobs.testing.conformance import *  # noqa: F403 - the rules, as classes that pytest collects
    from ultimat3_jobs.testing.conformance import Harness

    class SomeHarness(Harness):
        def driver(self): return SomeDriver(...)               # safe to call from several threads
        def advance(self, seconds): some_clock.move(seconds)   # time passes for the queue

    @pytest.fixture
    def harness():
        yield SomeHarness()                                    # an empty queue for every test

The rules look at a queue through the contract alone. Core rules hold for all drivers; the rules of a capability are
skipped, with the reason, where a driver does not declare it. Only this package needs pytest.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "harness", "again", "batches", "cancels", "claiming", "depth", "events", "fences", "from_steps", "keys",
            "lapses", "leases", "retries", "settling", "steps", "transactions",
        )
    )
)  # fmt: skip

from ultimat3_jobs.testing.conformance.again import TestAskedAgain  # noqa: E402 - rewritten from here on
from ultimat3_jobs.testing.conformance.batches import TestBatches  # noqa: E402
from ultimat3_jobs.testing.conformance.cancels import TestCancels  # noqa: E402
from ultimat3_jobs.testing.conformance.claiming import TestClaiming, TestPriorities  # noqa: E402
from ultimat3_jobs.testing.conformance.depth import TestDepth  # noqa: E402
from ultimat3_jobs.testing.conformance.events import TestEvents  # noqa: E402
from ultimat3_jobs.testing.conformance.fences import TestFences  # noqa: E402
from ultimat3_jobs.testing.conformance.from_steps import TestRetriesFromAStep, TestRetriesFromAWait  # noqa: E402
from ultimat3_jobs.testing.conformance.harness import Harness  # noqa: E402
from ultimat3_jobs.testing.conformance.keys import TestHolders, TestKeys  # noqa: E402
from ultimat3_jobs.testing.conformance.lapses import TestLapses  # noqa: E402
from ultimat3_jobs.testing.conformance.leases import TestLeases  # noqa: E402
from ultimat3_jobs.testing.conformance.retries import TestRetries  # noqa: E402
from ultimat3_jobs.testing.conformance.settling import TestSettling  # noqa: E402
from ultimat3_jobs.testing.conformance.steps import TestSteps, TestSuspensions  # noqa: E402
from ultimat3_jobs.testing.conformance.transactions import TestTransactions  # noqa: E402

__all__ = [
    "Harness",
    "TestAskedAgain",
    "TestBatches",
    "TestCancels",
    "TestClaiming",
    "TestDepth",
    "TestEvents",
    "TestFences",
    "TestHolders",
    "TestKeys",
    "TestLapses",
    "TestLeases",
    "TestPriorities",
    "TestRetries",
    "TestRetriesFromAStep",
    "TestRetriesFromAWait",
    "TestSettling",
    "TestSteps",
    "TestSuspensions",
    "TestTransactions",
]
