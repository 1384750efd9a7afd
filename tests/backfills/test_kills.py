"""Processes that are killed or stopped at any point of a sweep: every row once, no edit lost, progress never back."""

from __future__ import annotations

import random
import signal
import threading
from typing import Any

import pytest
from django.db import connections

from tests.app.models import Item
from tests.backfills.killing import ATTEMPTS, CHILD, POINTS, Beside, declare_sweep
from tests.backfills.sweeping import handled, ledger
from tests.locks import waiting_in_this_database
from tests.processes import Processes, wait_for
from tests.scenarios.test_atomic import stopped
from tests.working import age, history, row, run_due, working
from ultimat3_jobs import EnqueueResult
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import JobStep

pytestmark = pytest.mark.usefixtures("queue")

# Nobody renews a lease or takes a job before the test says so.
ON_POSTGRESQL = pytest.mark.postgresql_only(reason="on SQLite whoever is stopped in a transaction has the only lock")
LONG = {"LEASE": "10m", "RENEWAL": "3m", "POLL": "20ms"}
QUIET = {"TEST_LOG_LEVEL": "INFO"}


def make_items(count: int) -> list[int]:
    """Make items, and return their keys."""
    Item.objects.bulk_create(Item(number=number) for number in range(count))
    return sorted(Item.objects.values_list("pk", flat=True))


def lapse(started: EnqueueResult) -> None:
    """Let the lease of a worker that is gone or stands still run out, and give its job to the next one."""

    def given() -> bool:
        age(700, "visible_at")
        get_driver().sweep(limit=1)
        return row(started).state == "ready"

    # The server may still carry out what the dead asked for.
    wait_for(given, "the job was taken from its worker")


def cursor_of(started: EnqueueResult) -> dict[str, Any]:
    """Return how far a pass is."""
    return JobStep.objects.values_list("output", flat=True).get(run_id=started.run_id)


def kill_at(processes: Processes, point: str, pages: int) -> None:
    """Let a worker land so many pages, come to a point, and die there."""
    worker = processes.django(CHILD, point, str(pages), "SIGKILL", jobs=LONG, env=QUIET)
    assert worker.wait() == -signal.SIGKILL
    assert f"reached {point}" in worker.output()


def kill_somewhere(processes: Processes, chance: random.Random) -> None:
    """Kill a worker from outside, wherever it is, some rows after it has begun."""
    at = Ledger.objects.get().processed
    worker = processes.django(CHILD, "nowhere", "0", "SIGKILL", "1", "1", "100", jobs=LONG, env=QUIET)
    more = chance.randint(1, 30)
    wait_for(lambda: Ledger.objects.get().processed >= at + more, "it has got on", interval=chance.uniform(0.001, 0.02))
    worker.kill()
    assert worker.wait() == -signal.SIGKILL


def test_a_sweep_that_is_killed_many_more_times_than_it_has_attempts(processes: Processes) -> None:
    chance = random.Random(7)
    keys = make_items(700)
    beside = Beside(list(keys), seed=7)
    people = threading.Thread(target=lambda: (beside(), connections.close_all()), daemon=True)
    started = declare_sweep().enqueue()
    people.start()
    try:
        kills = [
            lambda point=point: kill_at(processes, point, chance.randint(1, 4)) for point in (*POINTS, *POINTS[2:5])
        ]
        kills += [lambda: kill_somewhere(processes, chance)] * 4
        first, *rest = kills  # the first makes the ledger's row
        chance.shuffle(rest)
        for kill in (first, *rest):
            kill()
            lapse(started)
        last = processes.django(CHILD, "nowhere", "0", "SIGKILL", jobs=LONG, env=QUIET)
        wait_for(lambda: row(started).state == "done", "the pass is done")
        last.kill(signal.SIGTERM)
        assert last.wait() == 0
    finally:
        beside.stop()
        people.join(30)
    beside.look()

    assert len(kills) > 4 * ATTEMPTS
    assert len(history(started)) == len(kills), "each kill was an attempt"
    bound = cursor_of(started)["bound"][0]
    living = dict(Item.objects.values_list("pk", "handled"))
    assert {count for pk, count in living.items() if pk <= bound} == {1}
    assert {count for pk, count in living.items() if pk > bound} <= {0}
    assert set(beside.deleted.values()) <= {0, 1}
    assert cursor_of(started)["handled"] == sum(living.values()) + sum(beside.deleted.values())
    assert ledger(row(started)).processed == cursor_of(started)["handled"]
    assert beside.processed == sorted(beside.processed)
    assert beside.progress == sorted(beside.progress)
    notes = {pk: note for pk, note in Item.objects.values_list("pk", "note") if note}
    assert len(notes) > 20
    assert notes == {pk: note for pk, note in beside.notes.items() if pk in living}
    assert len(beside.deleted) > 3
    assert max(living) > bound


@pytest.mark.parametrize(
    ("point", "atomic", "lock"),
    [
        pytest.param("written", True, True, marks=ON_POSTGRESQL),
        pytest.param("locked", True, False, marks=ON_POSTGRESQL),
        pytest.param("locked", False, False, marks=ON_POSTGRESQL),
        ("between", True, True),
        ("between", False, True),
    ],
)
def test_a_worker_that_was_stopped_past_its_lease_and_continued_moves_nothing(
    processes: Processes, point: str, atomic: bool, lock: bool
) -> None:
    """Where the page and the cursor are one, what it wrote is undone; where they are not, its page is handled again."""
    make_items(40)
    started = declare_sweep(atomic=atomic, lock=lock).enqueue()
    flags = [str(int(flag)) for flag in (atomic, lock)]
    first = processes.django(CHILD, point, "2", "SIGSTOP", *flags, jobs=LONG, env=QUIET)
    first.wait_for_output(f"reached {point}")
    wait_for(lambda: stopped(first), "it has stopped")
    lapse(started)
    if point == "written":  # the rows are locked until it wakes, or the server gives up its session
        with working() as second:
            wait_for(waiting_in_this_database, "the second worker is kept from the page")
            first.kill(signal.SIGCONT)
            wait_for(lambda: row(started).state == "done", "the pass is done")
            second.stop()
    else:
        run_due()
        assert (row(started).state, handled(Item)) == ("done", {1: 40})
    ended = cursor_of(started), row(started).updated_at, ledger(row(started)).updated_at

    first.kill(signal.SIGCONT)
    first.wait_for_output("jobs.job.given-up")
    first.kill(signal.SIGTERM)
    assert first.wait() == 0

    assert ended == (cursor_of(started), row(started).updated_at, ledger(row(started)).updated_at)
    assert handled(Item) == ({1: 40} if atomic else {1: 30, 2: 10})


def test_a_worker_that_was_stopped_before_it_wrote_its_first_cursor_does_not_put_it_back(processes: Processes) -> None:
    make_items(40)
    started = declare_sweep().enqueue()
    first = processes.django(CHILD, "counted", "0", "SIGSTOP", jobs=LONG, env=QUIET)
    first.wait_for_output("reached counted")
    wait_for(lambda: stopped(first), "it has stopped")
    lapse(started)
    run_due()
    ended = cursor_of(started)
    assert (ended["finished"], ended["handled"]) == (True, 40)

    first.kill(signal.SIGCONT)
    first.wait_for_output("jobs.job.given-up")
    first.kill(signal.SIGTERM)
    assert first.wait() == 0

    assert cursor_of(started) == ended
    assert ledger(row(started)).processed == 40
    assert handled(Item) == {1: 40}
