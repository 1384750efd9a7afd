"""What is told of jobs that wait and of jobs that run: by the queue's clock, and by the workers that are alive."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.commanding import printed, printed_json
from tests.inspection.rows import LATER, MOMENT, add_job, add_worker
from tests.test_admin import JOBS, page

pytestmark = pytest.mark.django_db
START = "python manage.py jobs_worker --queues bulk"
ALONE = f"a worker, and none that serves the queue 'bulk' is alive ({START} starts one)"

jobs = partial(printed, "jobs")
as_json = partial(printed_json, "jobs")


@pytest.mark.parametrize(
    ("state", "columns", "words"),
    [
        ("ready", {}, "It is due since 2024-02-29 12:00:00 UTC and waits for {worker}."),
        ("delayed", {"error_class": "E"}, "the next one is due since 2024-02-29 12:00:00 UTC and waits for {worker}."),
        ("delayed", {"error_class": "E", "last_error": "E: no"}, "Attempt 1 of 3 failed: E: no; the next one is due"),
        ("delayed", {"attempt": 0}, "It was asked for later: it is due since 2024-02-29 12:00:00 UTC and waits"),
        (
            "suspended",
            {"park_reason": "its window is 22:00-06:00"},
            "It was suspended. It is due since 2024-02-29 12:00:00 UTC and waits for {worker}.",
        ),
        (
            "suspended",
            {"park_reason": "no code knows it", "parks": 2},
            "It was parked: no code knows it. It is due since 2024-02-29 12:00:00 UTC and waits for {worker}.",
        ),
        (
            "suspended",
            {"wait_event": "review.done", "wait_match": '{"book":7}', "wait_poll": 30.0},
            "It is due to be looked at again since 2024-02-29 12:00:00 UTC, and waits for {worker}.",
        ),
    ],
)
@pytest.mark.parametrize("is_served", [True, False])
def test_a_job_whose_moment_has_come_waits_for_a_worker(
    state: str, columns: dict[str, Any], words: str, is_served: bool
) -> None:
    job = add_job(state, queue="bulk", **columns)
    add_worker("mail", "bulk") if is_served else add_worker("mail")
    worker = "a worker that serves the queue 'bulk'" if is_served else ALONE

    told = as_json("show", job.id)["why"]

    assert words.format(worker=worker) in told
    assert told in jobs("show", job.id)
    assert "its window" not in told


def test_a_list_tells_what_is_due_from_what_is_not() -> None:
    due = add_job("suspended", queue="bulk", park_reason="its window")
    waits = add_job("suspended", queue="bulk", park_reason="its window", run_at=LATER)

    def why() -> list[str]:
        lines = {line.split()[0]: line for line in jobs("ls").splitlines()[1:]}
        return [lines[str(one.id)].split(one.idempotency_key)[1].strip() for one in (due, waits)]

    assert why() == ["no worker that serves its queue is alive", "its window"]
    assert jobs("ls").count(f"No worker that serves the queue 'bulk' is alive; to start one: {START}\n") == 1
    add_worker("bulk")
    assert why() == ["waits for a worker since 2024-02-29 12:00:00 UTC", "its window"]
    assert START not in jobs("ls")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"visible_at": LATER}, "since 2024-02-29 12:00:00 UTC in worker w1"),
        ({"visible_at": MOMENT}, "worker w1 went silent: its lease lapsed at 2024-02-29 12:00:00 UTC"),
        ({"visible_at": LATER, "started_at": None}, "claimed by worker w1, and not begun"),
    ],
)
def test_a_list_says_since_when_and_where_a_job_runs(columns: dict[str, Any], words: str, admin_client: Client) -> None:
    add_job("running", claimed_by="w1", **columns)

    assert jobs("ls", "--state", "running").splitlines()[1].endswith(f"  {words}")
    assert jobs("ls").splitlines()[1].endswith(f"  {words}")
    assert words in page(admin_client, f"{JOBS}?state=running")
    assert as_json("ls")["jobs"][0]["claimed_by"] == "w1"


def test_a_list_says_by_whom_and_why_a_job_was_cancelled(admin_client: Client) -> None:
    add_job("cancelled", cancel_requested_by="ann", cancel_reason="by mistake")

    assert jobs("ls").splitlines()[1].endswith("  cancelled by ann: by mistake")
    assert "cancelled by ann: by mistake" in page(admin_client, f"{JOBS}?state=all")


def test_a_list_says_after_which_error_a_job_is_tried_again() -> None:
    add_job("delayed", run_at=LATER, error_class="ValueError")
    add_job("delayed", run_at=LATER, attempt=0)

    first, second = jobs("ls").splitlines()[1:]

    assert first.endswith("due 2124-02-05 12:00:00 UTC")
    assert second.endswith("due 2124-02-05 12:00:00 UTC, after ValueError")


def test_a_command_that_starts_a_worker_can_be_run_as_it_stands() -> None:
    job = add_job("ready", queue="-x y")

    assert "(python manage.py jobs_worker '--queues=-x y' starts one)" in jobs("show", job.id)


@pytest.mark.parametrize("state", ["ready", "delayed", "suspended", "running"])
def test_a_list_looks_for_workers_once(state: str, admin_client: Client) -> None:
    counts = []
    for number in (1, 6):
        for each in range(number):
            add_job(state, number=each, queue=f"q{each}", visible_at=MOMENT)
        for look in (lambda: jobs("ls"), lambda: page(admin_client, f"{JOBS}?state={state}")):
            with CaptureQueriesContext(connection) as captured:
                look()
            counts.append(sum("x_job_leases" in one["sql"] for one in captured))

    # Of what runs in a worker that went silent, the command says below its table who starts another.
    assert counts == ([1, 0] * 2 if state == "running" else [1] * 4)


def test_the_admin_tells_what_is_due_from_what_is_not(admin_client: Client) -> None:
    job = add_job("suspended", queue="bulk", park_reason="its window")

    assert "no worker that serves its queue is alive" in page(admin_client, f"{JOBS}?state=all")
    assert START in page(admin_client, f"{JOBS}{job.id}/change/")
