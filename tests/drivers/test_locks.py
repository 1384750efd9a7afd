"""Rows that other transactions have locked: passed over where that is promised, waited for in one order elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.drivers.factories import LONG_AGO, JobFactory
from tests.drivers.harness import IN_THE_ORDER_OF_THE_TABLE, ROW_BY_ROW, DatabaseHarness
from tests.processes import TIMEOUT, wait_for
from ultimat3_jobs.drivers.database import enqueue as database_enqueue
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Progress, Renewal, RetryVerdict
from ultimat3_jobs.sql import run
from ultimat3_jobs.testing.conformance.fences import ack, bury, retry
from ultimat3_jobs.testing.conformance.harness import HOUR, LEASE, MARGIN, keys

rows_are_locked = pytest.mark.postgresql_only(reason="SQLite locks no rows: there is one writer at a time")


def lock(key: str) -> None:
    """Lock the newest job under `key` until the transaction ends."""
    assert Job.objects.select_for_update().filter(idempotency_key=key).first() is not None


def without_waiting(harness: DatabaseHarness, work: Callable[[], object]) -> object:
    """Do `work` in another thread and return its answer, which does not wait for the caller's transaction."""
    answer = harness.meanwhile(work)
    assert harness.waiting() == 0, "it waits for the locked row"
    return answer()


@rows_are_locked
def test_a_claim_passes_over_a_locked_row(harness: DatabaseHarness) -> None:
    harness.enqueue(*"abc")
    with harness.transaction():
        lock("a")
        assert without_waiting(harness, lambda: keys(harness.claim(2))) == ["b", "c"]


@rows_are_locked
def test_a_heartbeat_passes_over_a_locked_row_and_says_so(harness: DatabaseHarness) -> None:
    running = harness.running(*"abc")
    lease = timedelta(seconds=LEASE)
    with harness.transaction():
        lock("b")
        assert without_waiting(harness, lambda: harness.driver().heartbeat(running, lease=lease)) == [
            Renewal.RENEWED,
            Renewal.BUSY,
            Renewal.RENEWED,
        ]
    assert harness.driver().heartbeat(running, lease=lease) == [Renewal.RENEWED] * 3


@rows_are_locked
def test_progress_passes_over_a_locked_row_and_says_so(harness: DatabaseHarness) -> None:
    running = harness.running(*"abc")
    batch = [Progress(claim, '{"done":1,"total":2}') for claim in running]
    with harness.transaction():
        lock("b")
        assert without_waiting(harness, lambda: harness.driver().progress(batch)) == [True, False, True]
    assert harness.driver().progress(batch) == [True] * 3


@rows_are_locked
def test_a_sweep_passes_over_a_locked_row(harness: DatabaseHarness) -> None:
    harness.running(*"abc")
    harness.lapse()
    with harness.transaction():
        lock("b")
        assert without_waiting(harness, lambda: len(harness.driver().sweep(limit=10))) == 2


@rows_are_locked
def test_a_promotion_passes_over_a_locked_row(harness: DatabaseHarness) -> None:
    harness.enqueue(*"abc", delay=HOUR)
    harness.advance(HOUR + MARGIN)
    with harness.transaction():
        lock("b")
        assert without_waiting(harness, harness.due) == 2


def enqueue(harness: DatabaseHarness, names: str, **options: str) -> object:
    return harness.enqueue(*names, **options)


def settle(write: Callable[..., object]) -> Callable[[DatabaseHarness, str], object]:
    """Make a settlement of running jobs by their keys."""

    def of_keys(harness: DatabaseHarness, names: str) -> object:
        claims = {job.idempotency_key: job for job in Job.objects.filter(state="running")}
        return write(harness, [harness.claim_of(claims[name]) for name in names])

    return of_keys


def meet_at(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Let two enqueues begin `statement` at once: neither waits for the other before."""
    both = threading.Barrier(2, timeout=TIMEOUT)
    there: set[int] = set()

    def meeting(alias: str, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if name == statement and threading.get_ident() not in there:
            there.add(threading.get_ident())
            both.wait()
        return run(alias, name, parameters)

    monkeypatch.setattr(database_enqueue, "run", meeting)


def add_finished_jobs(count: int) -> None:
    """Make the table large enough that the planner reads the rows of a batch one by one."""
    job = JobFactory(state="done")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO x_jobs SELECT r.* FROM x_jobs AS j CROSS JOIN generate_series(1, %s) AS n"
            " CROSS JOIN LATERAL jsonb_populate_record("
            "  j, jsonb_build_object('id', gen_random_uuid(), 'lapses', n)"
            " ) AS r WHERE j.id = %s",
            [count, job.id],
        )
        # Whatever was known of the table before: otherwise it may be read whole, in the order of its ids.
        cursor.execute("ANALYZE x_jobs")


def meet_in_the_middle(harness: DatabaseHarness, work: Callable[[DatabaseHarness, str], object]) -> None:
    """Do `work` twice in opposite orders, both once the row in the middle is locked; release it when both wait."""

    def read_by_id(names: str) -> object:
        # Rows are then met in the order of the batch or of the ids in one, of the batch or of the table in the other.
        with connection.cursor() as cursor:
            cursor.execute(ROW_BY_ROW if names == "abcde" else ROW_BY_ROW + IN_THE_ORDER_OF_THE_TABLE)
        return work(harness, names)

    for name in "edcba":  # the table has them in this order then
        Job.objects.filter(idempotency_key=name).update(queue=name)
    add_finished_jobs(5_000)
    with harness.transaction():
        lock("c")
        answers = [harness.begun(lambda names=names: read_by_id(names)) for names in ("abcde", "edcba")]
        wait_for(lambda: harness.waiting() == 2, "both wait, for the locked row or for one another")
    for answer in answers:
        answer()  # a deadlock is raised here


@rows_are_locked
@pytest.mark.parametrize("write", [ack, bury, retry])
def test_settlements_lock_in_one_order(harness: DatabaseHarness, write: Callable[..., object]) -> None:
    harness.running(*"abcde")

    meet_in_the_middle(harness, settle(write))


@rows_are_locked
@pytest.mark.parametrize(
    ("repair", "state"), [("retry", "dead"), ("cancel", "running"), ("release_keys_for", "failed")]
)
def test_repairs_lock_in_one_order(harness: DatabaseHarness, repair: str, state: str) -> None:
    for name in "abcde":
        JobFactory(state=state, idempotency_key=name)
        if repair == "release_keys_for":
            JobFactory(state="done", idempotency_key=name, key_until=LONG_AGO)

    def by_key(harness: DatabaseHarness, names: str) -> object:
        # The statement itself: the driver hands its batches over in one order already.
        ids = dict(Job.objects.filter(state=state, idempotency_key__in=names).values_list("idempotency_key", "id"))
        batch = rows.encode({"id": ids[name].hex} for name in names)
        return run("default", repair, {"rows": batch, "by": "", "reason": ""})

    meet_in_the_middle(harness, by_key)


@rows_are_locked
def test_retries_take_keys_in_the_order_of_the_enqueue(harness: DatabaseHarness) -> None:
    # The order of the ids, and of most collations, is the other one.
    letters = [JobFactory(state="dead", idempotency_key=name).id for name in "edcbaDCBA"]
    names = sorted("ABCDabcde")

    def retry() -> object:
        with connection.cursor() as cursor:
            cursor.execute(ROW_BY_ROW)
        return harness.driver().retry(letters)

    def enqueue() -> object:
        with harness.transaction():
            return harness.enqueue(*(name for name in names if name != "a"))

    with harness.taken_back():
        harness.enqueue("a")
        first = harness.meanwhile(retry)
        second = harness.begun(enqueue)
        wait_for(lambda: harness.waiting() == 2, "both wait, for the open key or for one another")
    first(), second()  # a deadlock is raised here
    assert Job.objects.filter(state="ready").count() == 9


@rows_are_locked
def test_requests_to_run_again_lock_in_one_order(harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.running(*"abcde")
    meet_at(monkeypatch, "ask_again")

    meet_in_the_middle(harness, lambda harness, names: enqueue(harness, names, while_running="again"))


@rows_are_locked
def test_jobs_are_held_back_in_one_order(harness: DatabaseHarness) -> None:
    harness.enqueue(*"abcde")
    for name in "edcba":  # the table has them in this order then
        Job.objects.filter(idempotency_key=name).update(queue=name)
    add_finished_jobs(5_000)
    ids = list(Job.objects.filter(state="ready").values_list("id", flat=True))

    def hold_back() -> object:
        with connection.cursor() as cursor:
            cursor.execute(ROW_BY_ROW + IN_THE_ORDER_OF_THE_TABLE)
        with harness.transaction():
            return run("default", "hold_back", {"rows": rows.encode_ids(ids)})

    with harness.transaction():
        lock("c")
        answer = harness.begun(hold_back)
        wait_for(lambda: harness.waiting() == 1, "it waits for the row in the middle")
        Job.objects.select_for_update(nowait=True).get(idempotency_key="e")  # raises where it is locked
    answer()


@rows_are_locked
def test_expired_keys_are_let_go_in_one_order(harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    ack(harness, harness.running(*"abcde", dedupe_for=HOUR))
    harness.advance(HOUR + MARGIN)
    meet_at(monkeypatch, "release_keys")

    meet_in_the_middle(harness, enqueue)


@rows_are_locked
def test_keys_are_taken_in_one_order(harness: DatabaseHarness) -> None:
    with harness.taken_back():
        harness.enqueue("c")
        answers = [harness.meanwhile(lambda names=names: enqueue(harness, names)) for names in ("abcde", "edcba")]
        wait_for(lambda: harness.waiting() == 2, "both wait, for the open key or for one another")
    for answer in answers:
        answer()  # a deadlock is raised here


def test_a_retry_that_loses_its_key_to_an_open_transaction_is_told_so(harness: DatabaseHarness) -> None:
    (letter,) = harness.running("k")
    bury(harness, [letter])
    (other,) = harness.running("other")
    bury(harness, [other])
    with harness.transaction():
        harness.enqueue("k")
        verdicts = harness.meanwhile(lambda: harness.driver().retry([letter.id, other.id]))

    assert verdicts() == [RetryVerdict.KEY_HELD, RetryVerdict.RETRIED]
