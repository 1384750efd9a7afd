"""Staging and relaying by real processes: killed on their way, several at once, in other time zones."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.app.models import Effect, Organization
from tests.outbox.conftest import Background
from tests.outbox.support import database_now, jobs, labels, moved_in_order, note, outcomes, stage
from tests.processes import TIMEOUT, Processes, wait_for
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all

pytestmark = pytest.mark.usefixtures("outbox")

NEW_YORK, TOKYO = "America/New_York", "Asia/Tokyo"

STAGE_AND_DIE = """
import os, signal, sys
from django.db import transaction
from tests.app.models import Organization
from tests.outbox.support import note, stage

def die():
    os.kill(os.getpid(), signal.SIGKILL)

with transaction.atomic():
    transaction.on_commit(die)  # before anything that another hook could do
    Organization.objects.create(name="acme")
    note.enqueue(label="acme")
    if sys.argv[1] == "before":
        die()
"""

RELAY_AND_STOP = """
import sys
from tests.outbox.support import stop, stop_after, stage
from ultimat3_jobs.outbox.relay import relay_once

if sys.argv[1] != "move":
    stop_after(sys.argv[1])
relay_once()
stop("move")
"""

WORK = """
import tests.outbox.support
from django.core.management import call_command

call_command("jobs_worker")
"""

WRITE = """
import sys
from django.db import transaction
from tests.app.models import Organization
from tests.outbox.support import note, stage

writer, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    with transaction.atomic():
        seen = Organization.objects.count()
        Organization.objects.create(name=f"{writer} {number} after {seen}")
        note.enqueue(label=f"{writer}-{number}")
"""

WRITE_DEFERRED = """
import sys
from django.db import connection, transaction
from tests.app.models import Organization
from tests.outbox.support import note, stage

del connection.settings_dict["OPTIONS"]["transaction_mode"]
writer, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    with transaction.atomic():
        note.enqueue(label=f"{writer}-{number}")
        Organization.objects.create(name=f"{writer} {number}")
"""

STAGE_AT = """
import sys
from datetime import datetime
from django.db import connection, transaction
from tests.outbox.support import note, stage

connection.settings_dict["TIME_ZONE"] = sys.argv[1] or None
with transaction.atomic():
    note.using(run_after=datetime(2031, 7, 1, 12)).enqueue(label="naive")
    note.using(run_after=datetime.fromisoformat("2031-01-01T12:00:00+05:30")).enqueue(label="aware")
    note.using(run_after="1h").enqueue(label="delayed")
    note.enqueue(label="now")
"""

RELAY_AT = """
import sys
from django.db import connection
from ultimat3_jobs.outbox.relay import relay_all

connection.settings_dict["TIME_ZONE"] = sys.argv[1] or None
assert relay_all() == 4
"""


def test_work_of_a_process_killed_before_its_commit_never_existed(processes: Processes) -> None:
    assert processes.django(STAGE_AND_DIE, "before").wait() == -signal.SIGKILL

    assert relay_all() == 0
    assert not OutboxEntry.objects.exists()
    assert not Organization.objects.exists()
    assert not note.enqueue(label="acme").deduped


def test_work_of_a_process_killed_after_its_commit_is_moved(processes: Processes) -> None:
    assert processes.django(STAGE_AND_DIE, "after").wait() == -signal.SIGKILL

    assert Organization.objects.count() == 1
    assert outcomes() == {"acme": None}
    assert relay_all() == 1
    assert labels() == ["acme"]


@pytest.mark.parametrize("name", ["pending", "enqueue", "mark", "move"])
def test_a_relay_killed_on_its_way_moves_nothing_twice_and_loses_nothing(processes: Processes, name: str) -> None:
    staged = stage(*"abc")
    relay = processes.django(RELAY_AND_STOP, name)
    relay.wait_for_output(f"stopped after {name}")
    if name != "move":
        assert labels() == []
    relay.kill()
    assert relay.wait() == -signal.SIGKILL

    assert relay_all() == (0 if name == "move" else 3)
    assert sorted(jobs()) == staged
    assert labels() == list("abc")
    assert outcomes() == dict.fromkeys("abc", "published")


def test_relays_killed_again_and_again_move_everything_once_and_in_order(processes: Processes) -> None:
    given = [f"{number:03}" for number in range(150)]
    for label in given:
        stage(label)

    def moved(at_least: int) -> bool:
        return OutboxEntry.objects.exclude(outcome=None).count() >= at_least

    for at_least in (10, 40, 90):
        relay = processes.manage("jobs_relay", jobs={"OUTBOX": {"BATCH": 1}})
        wait_for(lambda enough=at_least: moved(enough), "the relay has moved some rows")  # type: ignore[misc]
        relay.kill()
        assert relay.wait() == -signal.SIGKILL
        assert {*labels()} == {label for label, outcome in outcomes().items() if outcome}
    processes.run("jobs_relay", "--burst", jobs={"OUTBOX": {"BATCH": 20}})

    assert labels() == moved_in_order() == given
    assert set(outcomes().values()) == {"published"}


def test_two_relays_beside_callers_move_everything_once(processes: Processes, background: Background) -> None:
    relays = [processes.manage("jobs_relay", jobs={"OUTBOX": {"BATCH": 3}}) for _ in range(2)]
    for relay in relays:
        relay.wait_for_output("jobs.relay.started")

    def call(caller: int) -> list[UUID]:
        return [one for number in range(40) for one in stage(f"{caller}-{number}", f"{caller}-{number}-b")]

    calling = [background(lambda caller=caller: call(caller)) for caller in range(3)]  # type: ignore[misc]
    staged = [one for each in calling for one in each.result(TIMEOUT)]
    wait_for(lambda: None not in outcomes().values(), "all is moved")

    assert sorted(jobs()) == sorted(staged)
    assert set(outcomes().values()) == {"published"}
    for relay in relays:
        relay.kill(signal.SIGTERM)
        assert relay.wait() == 0
        assert "failed" not in relay.output()


def test_workers_and_writers_on_one_database_lose_no_job(processes: Processes) -> None:
    writers, each = 2, 100
    workers = [processes.django(WORK, jobs={"CONCURRENCY": 4}) for _ in range(4)]
    writing = [processes.django(WRITE, f"w{number}", str(each)) for number in range(writers)]
    for writer in writing:
        assert writer.wait(4 * TIMEOUT) == 0, writer.output()
    wait_for(lambda: Job.objects.filter(state="done").count() == writers * each, "all is done", timeout=4 * TIMEOUT)
    for worker in workers:
        worker.wait_for_output("jobs.worker.started")
        worker.kill(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0, 0, 0]

    ran = sorted(Effect.objects.values_list("label", "attempt"))
    assert ran == sorted((f"w{number}-{one}", 1) for number in range(writers) for one in range(each))
    assert len({effect.pid for effect in Effect.objects.all()}) > 1
    assert Organization.objects.count() == writers * each
    assert OutboxEntry.objects.filter(outcome="published").count() == writers * each
    for child in (*workers, *writing):
        assert "locked" not in child.output()
        assert "failed" not in child.output()


@pytest.mark.sqlite_only(reason="PostgreSQL has no transactions that begin without their locks")
def test_an_enqueue_can_open_a_transaction_that_begins_without_the_write_lock(processes: Processes) -> None:
    """Django's default on SQLite: nothing may be read before the first write, or writers beside fail it."""
    writing = [processes.django(WRITE_DEFERRED, f"w{number}", "100") for number in range(3)]
    for writer in writing:
        assert writer.wait() == 0, writer.output()

    assert relay_all() == 300
    assert sorted(labels()) == sorted(f"w{number}-{one}" for number in range(3) for one in range(100))
    assert Organization.objects.count() == 300


@pytest.mark.parametrize(
    ("staging", "relaying"),
    [
        (
            {"TEST_USE_TZ": "0", "TEST_TIME_ZONE": "America/New_York"},
            {"TEST_USE_TZ": "0", "TEST_TIME_ZONE": "Asia/Tokyo"},
        ),
        ({"TEST_TIME_ZONE": "America/New_York", "database": "Asia/Tokyo"}, {"database": "America/Santiago"}),
    ],
    ids=["USE_TZ off", "TIME_ZONE of the connection"],
)
def test_moments_are_the_same_in_every_time_zone(
    processes: Processes, staging: dict[str, str], relaying: dict[str, str]
) -> None:
    """The hosts' clocks are an hour off too, one each way."""
    before = database_now()
    for code, env, offset in ((STAGE_AT, staging, 3600), (RELAY_AT, relaying, -3600)):
        child = processes.django(code, env.get("database", ""), env=env, clock_offset=offset)
        assert child.wait() == 0, child.output()

    rows = {row.input["label"]: row for row in Job.objects.all()}
    staged_at = {entry.input["label"]: entry.staged_at for entry in OutboxEntry.objects.all()}
    assert rows["naive"].run_at == datetime(2031, 7, 1, 16, tzinfo=UTC)
    assert rows["aware"].run_at == datetime(2031, 1, 1, 6, 30, tzinfo=UTC)
    for label, delay in (("delayed", 1), ("now", 0)):
        assert abs(rows[label].run_at - staged_at[label] - timedelta(hours=delay)) < timedelta(seconds=1)
    assert all(before <= moment <= database_now() for moment in staged_at.values())
    assert {label: row.created_at for label, row in rows.items()} == staged_at
    assert [rows[label].state for label in ("naive", "aware", "delayed", "now")] == ["delayed"] * 3 + ["ready"]
