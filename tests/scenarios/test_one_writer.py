"""SQLite has one writer at a time: a long transaction of somebody else costs a healthy worker no job."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

from tests.app.jobs import waiting
from tests.processes import Processes, wait_for
from tests.scenarios.effects import SHORT, let_go, starts, wait_for_starts
from tests.working import row

pytestmark = [
    pytest.mark.usefixtures("queue"),
    pytest.mark.sqlite_only(reason="on PostgreSQL no transaction keeps others from renewing their leases"),
]


def test_a_transaction_that_is_longer_than_the_lease_costs_no_worker_its_job(processes: Processes) -> None:
    queued = waiting.enqueue("held", obedient=True)
    owner = processes.manage("jobs_worker", "--concurrency", "1", jobs=SHORT)
    wait_for_starts("held", 1)
    others = [processes.manage("jobs_worker", jobs=SHORT) for _ in range(2)]
    for other in others:
        other.wait_for_output("jobs.worker.started")

    for _ in range(2):
        with transaction.atomic():  # takes the one write lock
            lapsed = row(queued).visible_at
            threading.Event().wait(2.2)  # longer than the lease: what the test is about
        wait_for(lambda: row(queued).visible_at != lapsed, "the lease is renewed")  # noqa: B023
    let_go("held")
    wait_for(lambda: row(queued).state == "done", "it is done")

    assert (row(queued).attempt, row(queued).lapses) == (1, 0)
    assert starts("held") == [(1, owner.pid)]
    assert not any("jobs.lease" in worker.output() for worker in (owner, *others))
