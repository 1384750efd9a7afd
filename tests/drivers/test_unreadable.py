"""Rows that this build cannot read, of another release or of a person's hand, cost no other row anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection

from tests.drivers.factories import JobFactory
from tests.drivers.harness import DatabaseHarness
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Ack, Claim, Nack
from ultimat3_jobs.states import Stop
from ultimat3_jobs.testing.conformance.harness import FAILURE

ENDINGS: dict[str, Callable[[DatabaseHarness, Claim], object]] = {
    "done": lambda harness, claim: harness.driver().ack([Ack(claim)]),
    "dead": lambda harness, claim: harness.driver().nack([Nack.bury(claim, stop=Stop.TERMINAL, failure=FAILURE)]),
    "worker-lost": lambda harness, _: harness.driver().sweep(limit=10),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("asked", [{"of": "another release"}, 5], ids=["other fields", "no object"])
def test_a_follower_that_cannot_be_read_stays_on_its_row_which_ends(
    harness: DatabaseHarness, ending: str, asked: object
) -> None:
    job = JobFactory(state="running", attempt=3, rerun=asked)
    ENDINGS[ending](harness, harness.claim_of(job))

    ended = Job.objects.get()
    assert ended.state == ("done" if ending == "done" else "dead")
    assert ended.rerun == asked


def test_a_follower_that_cannot_be_read_holds_up_no_lapsed_neighbour(harness: DatabaseHarness) -> None:
    JobFactory(state="running", attempt=3, rerun={"of": "another release"})
    neighbours = JobFactory.create_batch(20, state="running")

    assert len(harness.driver().sweep(limit=100)) == 21
    assert set(Job.objects.filter(state="ready").values_list("id", flat=True)) == {job.id for job in neighbours}


@pytest.mark.postgresql_only(reason="a year before the first is a timestamp of PostgreSQL alone")
@pytest.mark.parametrize("due", ["0044-03-15 BC", "-infinity"])
def test_a_due_time_that_python_cannot_hold_costs_the_batch_nothing(harness: DatabaseHarness, due: str) -> None:
    old, young = JobFactory(), JobFactory()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE x_jobs SET run_at = %s WHERE id = %s", [due, old.id])

    assert [job.claim.id for job in harness.claim(10, lease=timedelta(hours=1).total_seconds())] == [old.id, young.id]
