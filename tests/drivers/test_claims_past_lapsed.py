"""What a claim costs where many jobs lie in front of whose workers went silent: a look at each, and no step."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.working import declare
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.records import QueueSelection
from ultimat3_jobs.sql import run, statement

pytestmark = pytest.mark.usefixtures("queue")

LAPSED = 400
PARAMETERS = {"worker": "w", "limit": 3, "lease": 30.0, "only": "[]", "excluded": "[]", "lapsed": 1}


def fill(lapsed: int) -> None:
    """Queue jobs of workers that went silent, in two priorities, and a few others behind each."""
    for priority in (1, 0):
        job = declare(lambda run, n: None, name=f"t.job{priority}").using(priority=priority)
        job.enqueue_many([{"n": n} for n in range(lapsed + 2)])
    front = JobRow.objects.order_by("-priority", "id")
    for first in (0, lapsed + 2):
        JobRow.objects.filter(pk__in=list(front.values_list("pk", flat=True)[first : first + lapsed])).update(lapses=1)


def test_one_suspect_and_what_is_behind_the_others_is_claimed() -> None:
    fill(LAPSED)
    claimed = get_driver().claim(worker="w", limit=4, lease=timedelta(seconds=30), queues=QueueSelection(), lapsed=1)
    assert [job.lapses for job in claimed] == [1, 0, 0, 0]
    assert [job.name for job in claimed] == ["t.job1"] * 3 + ["t.job0"]


@pytest.mark.postgresql_only(reason="its planner counts the steps of a recursion")
def test_a_claim_makes_no_step_for_a_suspect_that_it_skips() -> None:
    fill(LAPSED)
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement("postgresql", "claim"), PARAMETERS)
        ((plan,),) = cursor.fetchall()
    (union,) = [node for node in nodes(plan) if node.get("Subplan Name") == "CTE heads"]
    assert union["Actual Rows"] < 20


def nodes(plan: Any) -> list[dict[str, Any]]:
    """Return every node of a plan."""
    found = json.loads(plan) if isinstance(plan, str) else plan
    top = found[0]["Plan"]
    left, every = [top], []
    while left:
        node = left.pop()
        every.append(node)
        left += node.get("Plans", [])
    return every


@pytest.mark.sqlite_only(reason="its virtual machine counts its own instructions")
def test_a_suspect_that_is_skipped_costs_a_few_instructions() -> None:
    fill(LAPSED)
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.ensure_connection()
    connection.connection.set_progress_handler(count, 10)
    try:
        run("default", "claim", PARAMETERS)
    finally:
        connection.connection.set_progress_handler(None, 0)
    # A step of the recursion for each takes twice as many.
    assert counted * 10 < 2 * LAPSED * 30
