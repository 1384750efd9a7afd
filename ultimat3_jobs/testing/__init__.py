"""What tests need: of projects that use the package, and of drivers that are written for it.

    from ultimat3_jobs.testing import assert_enqueued, drain

    def test_a_new_organization_is_welcomed(self):
        self.client.post("/organizations/", {"name": "Acme"})
        assert_enqueued(send_welcome, name="Acme")
        drain()
        self.assertEqual(len(mail.outbox), 1)

With pytest, the plugin `ultimat3_jobs.testing.plugin` has the same as the fixture `jobs`. The conformance suite for
drivers is `ultimat3_jobs.testing.conformance`.
"""

from ultimat3_jobs.testing.assertions import Enqueued, assert_enqueued, assert_not_enqueued, enqueued
from ultimat3_jobs.testing.crashes import Event, crash_at_each_step
from ultimat3_jobs.testing.deaths import CrashPoint
from ultimat3_jobs.testing.drain import drain
from ultimat3_jobs.testing.report import DrainedJob, DrainReport

__all__ = [
    "CrashPoint",
    "DrainReport",
    "DrainedJob",
    "Enqueued",
    "Event",
    "assert_enqueued",
    "assert_not_enqueued",
    "crash_at_each_step",
    "drain",
    "enqueued",
]
