"""No wake-up is lost between who publishes and who parks, in whichever order their statements and commits come."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction

from tests.outbox.conftest import Background
from tests.outbox.support import Pause, stage, taken_back, wait_until_blocked
from tests.outbox.two import environment, split
from tests.outbox.waiting import asks, begun, claimed, parked, payloads, publish, states, suspend
from tests.processes import TIMEOUT, Processes, wait_for
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job, JobEvent, OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.records import Claim
from ultimat3_jobs.sql import statement

pytestmark = pytest.mark.usefixtures("outbox")
locks_rows = pytest.mark.postgresql_only(reason="SQLite locks no rows: there is one writer at a time")

RELAY_AND_STOP = """
import sys
from ultimat3_jobs.outbox import move, publish
from tests.outbox.support import stop
from ultimat3_jobs.outbox.relay import relay_once

move.wake = publish.wake = lambda events: stop("the commit")
relay_once()
"""


def look_again(job: Claim) -> int:
    return get_driver().look_again([job.id])


@contextmanager
def held_open(name: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Run a named statement of this thread in a transaction that stays open until it is told to go on."""
    reached, go_on = threading.Event(), threading.Event()

    def execute(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql != statement(connection.vendor, name):
            return execute(sql, *rest)
        with transaction.atomic():
            result = execute(sql, *rest)
            reached.set()
            assert go_on.wait(TIMEOUT)
        return result

    with connection.execute_wrapper(execute):
        yield reached, go_on


@locks_rows
def test_a_publisher_that_comes_while_a_run_parks_waits_for_nobody_and_the_run_sees_its_event(
    background: Background,
) -> None:
    job = begun()
    assert asks(job).output is None
    with transaction.atomic():
        suspend(job.claim)
        publish_in_another_thread = background(lambda: (publish("now"), relay_all()))
        assert publish_in_another_thread.result(TIMEOUT)[1] == 1
    assert states() == {"a": "suspended"}, "the publisher could not see it"

    assert look_again(job.claim) == 1
    assert asks(claimed()).state == "done"


@locks_rows
def test_a_run_that_parks_before_the_publisher_commits_is_woken_by_it(background: Background) -> None:
    job = begun()
    assert asks(job).output is None
    publish("now")
    pause = Pause("mark")

    def relay() -> int:
        with pause:
            return relay_once()

    relaying = background(relay)
    pause.wait()
    suspend(job.claim)
    assert look_again(job.claim) == 0, "the run could not see it"
    pause.go_on()

    assert relaying.result(TIMEOUT) == 1
    assert states() == {"a": "ready"}
    assert asks(claimed()).state == "done"


@locks_rows
def test_a_run_that_a_promotion_looks_at_while_its_event_comes_is_not_passed_over(background: Background) -> None:
    job = parked()
    Job.objects.update(run_at=datetime(2020, 1, 1, tzinfo=UTC))
    hold = threading.Event()
    events: list[threading.Event] = []

    def promote() -> int:
        with held_open("promote") as (reached, go_on):
            events.extend((reached, go_on))
            hold.set()
            return get_driver().promote(limit=10)

    promoting = background(promote)
    assert hold.wait(TIMEOUT)
    reached, go_on = events
    assert reached.wait(TIMEOUT)
    publish("now")
    try:
        assert relay_all() == 1
        assert states() == {"a": "suspended"}, "the publisher has passed over the locked row"
    finally:
        go_on.set()

    promoting.result(TIMEOUT)
    assert Job.objects.get(id=job.claim.id).state == "ready"


@locks_rows
@pytest.mark.parametrize("look", ["wake", "look_again"])
def test_a_locked_run_is_not_waited_for(background: Background, look: str) -> None:
    locked, free = parked("locked"), parked("free")
    publish("now")
    with taken_back():
        Job.objects.select_for_update().get(id=locked.claim.id)
        if look == "wake":
            background(relay_all).result(TIMEOUT)
        else:
            ids = [locked.claim.id, free.claim.id]
            assert background(relay_without_waking).result(TIMEOUT) == 1
            assert background(lambda: get_driver().look_again(ids)).result(TIMEOUT) == 1
        assert states() == {"locked": "suspended", "free": "ready"}

    assert look_again(locked.claim) == 1


def relay_without_waking() -> int:
    """Relay, as a process that dies before it wakes anybody."""
    from ultimat3_jobs.outbox import move

    waking, move.wake = move.wake, lambda events: 0
    try:
        return relay_all()
    finally:
        move.wake = waking


def test_publishers_and_runs_that_park_at_once_never_miss_one_another(background: Background) -> None:
    for number in range(15):
        label = f"{number}"
        job = begun(label)
        assert asks(job, '{"n":1}').output is None
        together = threading.Barrier(2, timeout=TIMEOUT)

        def park(job: Any = job, together: threading.Barrier = together) -> int:
            together.wait()
            suspend(job.claim, '{"n":1}')
            return look_again(job.claim)

        def tell(together: threading.Barrier = together) -> None:
            together.wait()
            publish("now", match={"n": 1})
            relay_all()

        parking, telling = background(park), background(tell)
        parking.result(TIMEOUT)
        telling.result(TIMEOUT)

        assert states()[label] == "ready", "neither of the two has seen the other"
        assert asks(claimed(), '{"n":1}').state == "done"
        JobEvent.objects.all().delete()


def test_a_publisher_that_rolls_back_wakes_nobody() -> None:
    job = parked()
    with taken_back():
        publish("never")
        assert relay_all() == 1

    assert relay_all() == 0
    assert look_again(job.claim) == 0
    assert states() == {"a": "suspended"}


def test_two_relays_store_each_event_once_and_in_order(background: Background) -> None:
    publish(*range(40))
    together = threading.Barrier(2, timeout=TIMEOUT)

    def relay() -> int:
        together.wait()
        return relay_all()

    both = [background(relay), background(relay)]

    assert sum(one.result(TIMEOUT) for one in both) == 40
    assert payloads() == list(range(40))


def test_a_second_relay_waits_for_the_events_of_the_first(background: Background) -> None:
    publish(1)
    pause = Pause("publish_events")

    def relay() -> int:
        with pause:
            return relay_once()

    first = background(relay)
    pause.wait()
    second = background(relay_once)
    wait_until_blocked(unless=second.done)
    pause.go_on()

    assert (first.result(TIMEOUT), second.result(TIMEOUT)) == (1, 0)
    assert payloads() == [1]


@pytest.mark.usefixtures("transactional_db")
def test_after_a_relay_that_was_killed_before_it_woke_anybody_the_next_look_finds_the_event(
    processes: Processes,
) -> None:
    job = parked()
    publish("stored")
    stage("b")
    relay = processes.django(RELAY_AND_STOP)
    wait_for(lambda: "stopped after the commit" in relay.output(), "the relay has committed")
    relay.kill(signal.SIGKILL)
    relay.wait()
    assert (payloads(), states()) == (["stored"], {"a": "suspended", "b": "ready"})

    assert get_driver().promote(limit=10) == 0, "its next look is not due"
    Job.objects.filter(id=job.claim.id).update(run_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert get_driver().promote(limit=10) == 1


def test_to_another_database_events_go_at_least_once_and_are_stored_once(apart: str, processes: Processes) -> None:
    publish(1, 2)
    relay = processes.django(RELAY_AND_STOP, env=environment(), jobs=split())
    wait_for(lambda: "stopped after the commit" in relay.output(), "the relay has published")
    relay.kill(signal.SIGKILL)
    relay.wait()
    assert payloads(apart) == [1, 2]
    assert relay_once() == 0, "the claim of the one that was killed holds"
    OutboxEntry.objects.update(claimed_at=datetime(2020, 1, 1, tzinfo=UTC))
    publish(3)

    assert relay_all() == 3
    assert payloads(apart) == [1, 2, 3]
    assert set(OutboxEntry.objects.values_list("outcome", "job_id")) == {("published", None)}


def test_to_another_database_a_publication_wakes_who_waits_there(apart: str) -> None:
    parked()
    publish("now")

    assert relay_all() == 1
    assert states(apart) == {"a": "ready"}
