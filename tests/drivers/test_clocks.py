"""Time is the database's, and an instant is the same one in every process, whatever its clock, zone and USE_TZ."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.drivers.harness import DatabaseHarness
from tests.processes import Processes
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Ack, Nack, Renewal
from ultimat3_jobs.testing.conformance.harness import FAILURE, HOUR, LEASE, MARGIN

# The night when New York's clocks go back: 05:30 and 06:30 UTC are both 1:30 there.
TWICE_ONE_THIRTY = [datetime(2021, 11, 7, hour, 30, tzinfo=UTC) for hour in (5, 6)]

# Enqueues, claims, retries and reads in a process of its own, and prints what it saw.
ROUND = """
import json, sys
from datetime import datetime, timedelta
from django.conf import settings
from django.db import connections

if sys.argv[1]:
    connections.settings["default"]["TIME_ZONE"] = sys.argv[1]

from tests.drivers.harness import DatabaseHarness
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Nack
from ultimat3_jobs.testing.conformance.harness import FAILURE, HOUR

harness = DatabaseHarness()
for number, text in enumerate(sys.argv[2:]):
    harness.enqueue(f"at-{number}", run_at=datetime.fromisoformat(text), queue="elsewhere")
harness.enqueue("running", dedupe_for=HOUR)
harness.claim(1, only=["default"])
harness.enqueue("retried")
(job,) = harness.claim(only=["default"])
harness.driver().nack([Nack.retry(job.claim, delay=timedelta(seconds=HOUR), failure=FAILURE)])
harness.enqueue("delayed", delay=HOUR)
print(json.dumps({
    "use_tz": settings.USE_TZ,
    "promoted": harness.due(),
    "swept": len(harness.driver().sweep(limit=10)),
    "rows": {
        job.idempotency_key: [
            moment.isoformat() if moment else None
            for moment in (job.run_at, job.created_at, job.visible_at, job.key_until)
        ]
        for job in Job.objects.all()
    },
    "found": [Job.objects.filter(run_at=datetime.fromisoformat(text)).count() for text in sys.argv[2:]],
}))
"""


@pytest.mark.parametrize(
    ("use_tz", "zone", "database_zone"),
    [
        ("1", "America/New_York", ""),
        ("0", "America/New_York", ""),
        ("0", "Asia/Kathmandu", ""),
        ("1", "UTC", "America/New_York"),
        ("1", "Asia/Kathmandu", "America/New_York"),
    ],
)
def test_instants_are_the_same_in_every_time_zone(
    harness: DatabaseHarness, processes: Processes, use_tz: str, zone: str, database_zone: str
) -> None:
    asked = [moment.isoformat() for moment in TWICE_ONE_THIRTY]
    child = processes.django(ROUND, database_zone, *asked, env={"TEST_USE_TZ": use_tz, "TEST_TIME_ZONE": zone})
    assert child.wait() == 0, child.output()
    seen = json.loads(child.output().splitlines()[-1])

    assert seen["use_tz"] is (use_tz == "1")
    assert (seen["promoted"], seen["swept"]) == (0, 0), "nothing falls due or lapses early"
    assert seen["found"] == [1, 1]
    rows = {job.idempotency_key: job for job in Job.objects.all()}
    for key, moments in seen["rows"].items():
        job = rows[key]
        there = [moment and datetime.fromisoformat(moment) for moment in moments]
        assert there == [job.run_at, job.created_at, job.visible_at, job.key_until]
        assert all(moment.utcoffset() == timedelta(0) for moment in there if moment)
    assert [rows["at-0"].run_at, rows["at-1"].run_at] == TWICE_ONE_THIRTY
    assert rows["running"].visible_at - rows["running"].started_at == timedelta(seconds=LEASE)
    assert rows["running"].key_until - rows["running"].created_at == timedelta(seconds=HOUR)
    harness.advance(HOUR - MARGIN)
    assert harness.due() == 0
    harness.advance(2 * MARGIN)
    assert harness.due() == 2
    assert len(harness.driver().sweep(limit=10)) == 1


HASTE = """
import json
from tests.drivers.harness import DatabaseHarness

harness = DatabaseHarness()
print(json.dumps([
    len(harness.driver().sweep(limit=10)),
    harness.due(),
    harness.enqueue_one("held").joined,
    harness.enqueue_one("new").joined,
    [job.run_id.hex for job in harness.claim(only=["child"], lease=600.0)],
]))
"""


@pytest.mark.parametrize("offset", [-3600.0, 3600.0])
def test_a_process_whose_clock_is_an_hour_off_steals_and_delays_nothing(
    harness: DatabaseHarness, processes: Processes, offset: float
) -> None:
    lease = timedelta(seconds=600)
    held, running, retried = harness.running("held", "running", "retried", dedupe_for=600.0)
    harness.driver().heartbeat([running], lease=lease)
    harness.driver().ack([Ack(held)])
    harness.driver().nack([Nack.retry(retried, delay=timedelta(seconds=600), failure=FAILURE)])
    harness.enqueue("delayed", delay=600.0)
    mine = harness.enqueue_one("mine", queue="child")
    child = processes.django(HASTE, clock_offset=offset)
    assert child.wait() == 0, child.output()
    swept, promoted, joined, joined_new, claimed = json.loads(child.output().splitlines()[-1])

    assert (swept, promoted) == (0, 0), "it steals nothing and starts nothing early"
    assert (joined, joined_new) == (True, False), "a key is held as long as it was asked to be"
    assert claimed == [mine.id.hex], "it takes what is due"
    assert harness.driver().heartbeat([running], lease=lease) == [Renewal.RENEWED]
    assert len(harness.claim(lease=600.0)) == 1, "and what it queued is due at once"
    harness.advance(600 - MARGIN)
    assert (len(harness.driver().sweep(limit=10)), harness.due()) == (0, 0)
    harness.advance(2 * MARGIN)
    assert (len(harness.driver().sweep(limit=10)), harness.due()) == (3, 2), "each lease and delay ends on time"
