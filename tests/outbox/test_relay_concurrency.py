"""Relays beside relays, callers and failing connections: nothing twice, nothing lost, nothing overtaken."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test.utils import override_settings

from tests.app.models import Organization
from tests.outbox.conftest import Background
from tests.outbox.support import Pause, jobs, labels, moved_in_order, note, outcomes, stage, wait_until_blocked
from tests.processes import TIMEOUT
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.sql import statement

pytestmark = pytest.mark.usefixtures("outbox")
one_writer = "SQLite runs one transaction that writes at a time"
STATEMENTS_OF_A_MOVE = ("pending", "enqueue", "mark")


def relay_and_stop_after(pause: Pause) -> int:
    """Move one batch, and stop on the way."""
    with pause:
        return relay_once()


@pytest.mark.usefixtures("two_a_move")
@pytest.mark.parametrize("name", STATEMENTS_OF_A_MOVE)
def test_a_second_relay_waits_for_the_first_and_overtakes_nothing(background: Background, name: str) -> None:
    stage(*"abcde")
    pause = Pause(name)
    first = background(lambda: relay_and_stop_after(pause))
    pause.wait()
    second = background(relay_once)
    wait_until_blocked(unless=second.done)
    overtaken = second.done() or {outcome for outcome in outcomes().values() if outcome}
    pause.go_on()

    assert not overtaken
    assert (first.result(TIMEOUT), second.result(TIMEOUT)) == (2, 2)
    assert moved_in_order() == list("abcd")
    assert relay_all() == 1
    assert labels() == list("abcde")


@pytest.mark.usefixtures("two_a_move")
def test_a_second_relay_finds_nothing_where_the_first_left_nothing(background: Background) -> None:
    stage(*"ab")
    pause = Pause("enqueue")
    first = background(lambda: relay_and_stop_after(pause))
    pause.wait()
    second = background(relay_once)
    wait_until_blocked(unless=second.done)
    pause.go_on()

    assert (first.result(TIMEOUT), second.result(TIMEOUT)) == (2, 0)
    assert labels() == list("ab")
    assert outcomes() == {"a": "published", "b": "published"}


@pytest.mark.parametrize("name", STATEMENTS_OF_A_MOVE)
def test_a_relay_that_fails_leaves_its_rows_to_the_one_that_waits(background: Background, name: str) -> None:
    stage(*"abc")
    pause = Pause(name)

    def fail() -> None:
        with pause, transaction.atomic():
            relay_once()
            raise LookupError

    first = background(fail)
    pause.wait()
    second = background(relay_once)
    wait_until_blocked(unless=second.done)
    pause.go_on()

    assert isinstance(first.exception(TIMEOUT), LookupError)
    assert second.result(TIMEOUT) == 3
    assert labels() == list("abc")
    assert set(outcomes().values()) == {"published"}


@pytest.mark.postgresql_only(reason="on SQLite whoever has the write lock has it until its process ends")
def test_a_relay_that_falls_silent_on_its_way_holds_the_others_back_for_a_while_only(background: Background) -> None:
    silent, others_are_done = threading.Event(), threading.Event()
    limits: list[str] = []

    def fall_silent(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if sql == statement("postgresql", "pending"):
            with connection.cursor() as cursor:
                cursor.execute("SHOW idle_in_transaction_session_timeout")
                limits.append(cursor.fetchone()[0])
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")  # for the sake of the test
            silent.set()
            assert others_are_done.wait(TIMEOUT)
        return result

    def relay() -> int:
        with connection.execute_wrapper(fall_silent):
            return relay_once()

    stage("a", "b")
    first = background(relay)
    assert silent.wait(TIMEOUT)
    try:
        assert relay_once() == 2
    finally:
        others_are_done.set()

    assert limits == ["30s"]
    assert isinstance(first.exception(TIMEOUT), DatabaseError)
    assert outcomes() == {"a": "published", "b": "published"}
    assert labels() == ["a", "b"]


@pytest.mark.postgresql_only(reason=one_writer)
def test_a_row_of_a_transaction_that_commits_late_is_not_lost(background: Background) -> None:
    staged, relayed = threading.Event(), threading.Event()

    def stage_and_commit_late() -> UUID:
        with transaction.atomic():
            result = note.enqueue(label="first")
            staged.set()
            assert relayed.wait(TIMEOUT)
        return result.id

    late = background(stage_and_commit_late)
    assert staged.wait(TIMEOUT)
    try:
        (second,) = stage("second")
        assert relay_all() == 1
        assert outcomes() == {"second": "published"}
    finally:
        relayed.set()

    assert late.result(TIMEOUT) < second
    assert relay_all() == 1
    assert labels() == ["first", "second"]
    assert outcomes() == {"first": "published", "second": "published"}


@pytest.mark.postgresql_only(reason=one_writer)
@pytest.mark.parametrize("commits", [True, False])
def test_the_relay_waits_for_a_transaction_that_holds_a_key(background: Background, commits: bool) -> None:
    """Outside the outbox, in the mode "direct": the relay decides once it is known who has the key."""
    held, end = threading.Event(), threading.Event()

    def hold() -> UUID:
        with transaction.atomic(), override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "direct"}}):
            result = note.enqueue(label="k")
            held.set()
            assert end.wait(TIMEOUT)
            transaction.set_rollback(not commits)
        return result.id

    (staged,) = stage("k")
    holding = background(hold)
    assert held.wait(TIMEOUT)
    moving = background(relay_once)
    wait_until_blocked(unless=moving.done)
    end.set()

    assert moving.result(TIMEOUT) == 1
    winner = holding.result(TIMEOUT) if commits else staged
    assert jobs() == {winner: "k"}
    entry = OutboxEntry.objects.get()
    assert (entry.outcome, entry.job_id) == ("deduped" if commits else "published", winner)


@pytest.mark.postgresql_only(reason=one_writer)
def test_a_deadlock_with_a_caller_costs_one_of_the_two_a_retry(background: Background) -> None:
    """In the mode "direct", where a caller takes two keys against their order."""
    held, blocked = threading.Event(), threading.Event()

    def take_both() -> None:
        with transaction.atomic(), override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "direct"}}):
            note.enqueue(label="b")
            held.set()
            assert blocked.wait(TIMEOUT)
            note.enqueue(label="a")

    stage("a", "b")
    caller = background(take_both)
    assert held.wait(TIMEOUT)
    moving = background(relay_once)
    wait_until_blocked(unless=moving.done)
    blocked.set()

    failed = [one.exception(TIMEOUT) for one in (caller, moving)]
    assert sum(error is None for error in failed) == 1
    assert any(isinstance(error, OperationalError) for error in failed)
    relay_all()
    assert sorted(labels()) == ["a", "b"]
    assert None not in outcomes().values()


def relay_until(done: threading.Event) -> None:
    """Relay as a loop does, and once more when all is staged."""
    while not done.is_set():
        relay_once()
    relay_all()


@pytest.mark.parametrize("relays", [1, 2])
def test_what_many_callers_stage_at_once_arrives_exactly_once(background: Background, relays: int) -> None:
    """Each caller commits, rolls back, stages alone and in batches; keys of all callers overlap."""
    callers, rounds = 4, 25
    start = threading.Barrier(callers, timeout=TIMEOUT)

    def call(caller: int) -> list[str]:
        kept = []
        start.wait()
        for number in range(rounds):
            mine = [f"{caller}-{number}", f"{caller}-{number}-b", f"shared-{number}"]
            with transaction.atomic():
                Organization.objects.create(name=mine[0])
                note.enqueue(label=mine[0])
                note.enqueue_many([{"label": label} for label in mine[1:]])
                note.enqueue(label=f"never-{caller}-{number}") if number % 5 == 0 else None
                transaction.set_rollback(number % 5 == 0)
            if number % 5:
                kept += mine
        return kept

    done = threading.Event()
    relaying = [background(lambda: relay_until(done)) for _ in range(relays)]
    calling: list[Future[list[str]]] = [background(lambda caller=caller: call(caller)) for caller in range(callers)]  # type: ignore[misc]
    try:
        kept = [label for one in calling for label in one.result(TIMEOUT)]
    finally:
        done.set()
    for one in relaying:
        one.result(TIMEOUT)
    relay_all()

    assert sorted(labels()) == sorted(set(kept))
    assert OutboxEntry.objects.count() == len(kept)
    by_label = {label: job_id for job_id, label in jobs().items()}
    for entry in OutboxEntry.objects.all():
        assert entry.job_id == by_label[entry.input["label"]]
        assert entry.outcome == ("published" if entry.job_id == entry.id else "deduped")
    assert Organization.objects.count() == callers * rounds * 4 // 5


def test_two_relays_keep_the_order_of_what_both_could_see(background: Background) -> None:
    given = [f"{number:03}" for number in range(60)]
    for label in given:
        stage(label)
    start = threading.Barrier(2, timeout=TIMEOUT)

    def relay() -> list[int]:
        start.wait()
        return list(itertools.takewhile(bool, iter(relay_once, None)))

    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"BATCH": 3}}):
        moves = [background(relay), background(relay)]
        assert sum(sum(one.result(TIMEOUT)) for one in moves) == 60

    assert moved_in_order() == given
    assert labels() == given


@pytest.mark.postgresql_only(reason="SQLite has no levels of isolation")
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_stricter_isolation_costs_retries_and_no_work(background: Background, isolation: str) -> None:
    """A project that raises the default level: the relay that has waited must begin anew."""
    for number in range(20):
        stage(f"{number:02}")
    start = threading.Barrier(2, timeout=TIMEOUT)

    def relay() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{isolation}'")
        start.wait()
        while OutboxEntry.objects.filter(outcome=None).exists():
            with suppress(OperationalError):
                relay_once()

    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"BATCH": 2}}):
        for one in [background(relay), background(relay)]:
            one.result(TIMEOUT)

    assert labels() == [f"{number:02}" for number in range(20)]
    assert moved_in_order() == labels()
    assert set(outcomes().values()) == {"published"}
