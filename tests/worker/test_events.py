"""Bodies that wait for events, run by a worker and by `drain()`: they hold nothing meanwhile, and miss nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import transaction

from tests.processes import TIMEOUT, wait_for
from tests.working import age, declare, history, row, run_due, states
from ultimat3_jobs import NO_TENANT, AsyncRun, Run, job, publish_event
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.inspection.clock import clock
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobEvent, JobStep, OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all
from ultimat3_jobs.records import Event, Nack
from ultimat3_jobs.testing import drain
from ultimat3_jobs.worker.loop import Worker

pytestmark = pytest.mark.usefixtures("queue")


def paid(run: Run, n: int) -> Any:
    """Wait for "paid" of an order."""
    event = run.wait_for_event("paid", "paid", match={"order": n})
    return event and event.payload


def test_a_body_waits_without_a_worker_and_ends_with_its_event() -> None:
    asked = declare(paid).enqueue(n=7)
    run_due()
    waiting = row(asked)
    assert (waiting.state, waiting.attempt, waiting.claim_token) == ("suspended", 0, None)
    with transaction.atomic():
        publish_event("paid", "for another", match={"order": 8})
        publish_event("paid", "for this", match={"order": 7})
    run_due()

    ended = row(asked)
    assert (ended.state, ended.result, ended.attempt) == ("done", "for this", 1)
    assert history(asked) == []


def test_an_event_that_was_there_first_is_had_without_a_pause() -> None:
    asked = declare(paid).enqueue(n=7)
    publish_event("paid", 1, match={"order": 7})
    relay_all()
    run_due()

    assert (row(asked).state, row(asked).result) == ("done", 1)
    assert JobStep.objects.get().state == "done"


@pytest.mark.parametrize("staged", [False, True])
def test_a_run_that_follows_another_has_what_came_since_it_was_asked_for(staged: bool) -> None:
    def body(run: Run, n: int) -> Any:
        if JobRow.objects.count() == 2:
            return paid(run, n)
        with transaction.atomic() if staged else nullcontext():
            handle.enqueue(n=n)
        relay_all()
        publish_event("paid", "early", match={"order": n})
        relay_all()
        published = JobEvent.objects.get().published_at
        wait_for(lambda: clock() > published, "a further moment of the database's clock")
        return "first"

    handle = declare(body, while_running="again")
    asked = handle.enqueue(n=7)
    run_due()

    assert row(asked).result == "first"
    following = JobRow.objects.exclude(id=asked.id).get()
    assert (following.state, following.result) == ("done", "early")


def test_an_event_that_comes_between_the_wait_and_the_park_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    nack = DatabaseDriver.nack

    def publish_first(self: DatabaseDriver, nacks: list[Nack]) -> list[bool]:
        publish_event("paid", "between", match={"order": 7})
        relay_all()
        return nack(self, nacks)

    monkeypatch.setattr(DatabaseDriver, "nack", publish_first)
    asked = declare(paid, event_poll="1h").enqueue(n=7)
    run_due()

    assert (row(asked).state, row(asked).result) == ("done", "between")


def test_a_run_gets_each_event_once_and_every_run_gets_it() -> None:
    def body(run: Run, n: int) -> list[Any]:
        first = run.wait_for_event("first", "tick")
        second = run.wait_for_event("second", "tick")
        return [one.payload for one in (first, second) if one]

    handle = declare(body)
    jobs = [handle.enqueue(n=number) for number in range(3)]
    run_due()
    publish_event("tick", 1)
    run_due()
    assert states() == {"suspended": 3}
    publish_event("tick", 2)
    run_due()

    assert [row(one).result for one in jobs] == [[1, 2]] * 3


def test_a_wait_that_times_out_goes_on_without_an_event() -> None:
    def body(run: Run, n: int) -> bool:
        return run.wait_for_event("paid", "paid", timeout="1h") is None

    asked = declare(body, event_poll="10m").enqueue(n=7)
    run_due()
    assert row(asked).state == "suspended"
    age(3_700, "run_at", "wait_until")
    for step in JobStep.objects.all():
        step.until = row(asked).wait_until
        JobStep.objects.filter(run_id=step.run_id, name=step.name).update(until=step.until)
    run_due()

    assert (row(asked).state, row(asked).result) == ("done", True)


def test_a_run_that_waits_in_vain_is_looked_at_and_not_run() -> None:
    bodies: list[int] = []

    def body(run: Run, n: int) -> None:
        bodies.append(n)
        run.wait_for_event("paid", "paid")

    asked = declare(body, event_poll="10m").enqueue(n=7)
    run_due()
    age(3_600, "run_at")
    before = row(asked).run_at
    run_due()

    assert bodies == [7]
    assert row(asked).run_at > before
    assert row(asked).state == "suspended"


def test_an_async_body_waits_too() -> None:
    @job(name="t.async", idempotency_key="{n}", tenant=NO_TENANT)
    async def body(run: AsyncRun, n: int) -> Any:
        event = await run.wait_for_event("paid", "paid")
        return event and event.payload

    asked = body.enqueue(n=7)
    run_due()
    publish_event("paid", "async")
    run_due()

    assert (row(asked).state, row(asked).result) == ("done", "async")


def test_a_drain_runs_what_waits_and_what_publishes_inside_the_callers_transaction() -> None:
    def tell(run: Run, n: int) -> None:
        publish_event("paid", n, match={"order": n})

    waits, tells = declare(paid, name="t.waits"), declare(tell, name="t.tells")
    with transaction.atomic():
        asked = waits.enqueue(n=7)
        drain(raise_errors=False)
        assert row(asked.id).state == "suspended"
        tells.enqueue(n=7)
        drain(raise_errors=False)
        assert (row(asked.id).state, row(asked.id).result) == ("done", 7)
        transaction.set_rollback(True)
    assert not OutboxEntry.objects.exists()


def test_a_burst_does_not_end_while_its_relay_is_about_to_wake_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = declare(paid).enqueue(n=7)
    run_due()
    publish_event("paid", "late", match={"order": 7})
    moved, ended = threading.Event(), threading.Event()
    wake, chores = DatabaseDriver.wake, Worker._claim_after_chores

    def wake_late(self: DatabaseDriver, events: Sequence[Event], *, limit: int) -> int:
        moved.set()
        ended.wait(0.5)  # for an end that must not come
        return wake(self, events, limit=limit)

    def claim_when_moved(self: Worker, free: int) -> int:
        assert moved.wait(TIMEOUT)
        return chores(self, free)

    monkeypatch.setattr(DatabaseDriver, "wake", wake_late)
    monkeypatch.setattr(Worker, "_claim_after_chores", claim_when_moved)
    run_due()
    ended.set()

    assert (row(asked).state, row(asked).result) == ("done", "late")
