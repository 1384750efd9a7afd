"""Staging: work commits with what caused it, or never existed, and asks nothing of the caller's transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext, override_settings

from tests.app.models import Organization
from tests.outbox.conftest import Background
from tests.outbox.support import again, count, daily, database_now, jobs, labels, note, outcomes, taken_back
from tests.processes import TIMEOUT
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import DuplicateJob, KeyReused
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all
from ultimat3_jobs.records import QueueSelection

pytestmark = pytest.mark.usefixtures("outbox")


@pytest.fixture
def other() -> Iterator[BaseDatabaseWrapper]:
    """A second connection to the test database."""
    connected = connection.copy()
    yield connected
    connected.close()


@pytest.fixture
def without_autocommit(outbox: None) -> Iterator[None]:
    """The connection as a caller who commits by hand has it."""
    transaction.set_autocommit(False)
    yield
    transaction.rollback()
    transaction.set_autocommit(True)


def nothing_is_left() -> bool:
    """Tell whether no row of the caller's or of ours is there, and no key is held."""
    written = Organization.objects.count() + OutboxEntry.objects.count() + Job.objects.count()
    return not written and not relay_all() and note.enqueue(label="acme").deduped is False


def test_work_commits_with_the_row_that_caused_it(other: BaseDatabaseWrapper) -> None:
    with transaction.atomic():
        Organization.objects.create(name="acme")
        result = note.enqueue(label="acme")
        assert (count("app_organization", other), count("x_outbox", other)) == (0, 0)

    assert (result.staged, result.deduped, result.run_id) == (True, None, result.id)
    assert (count("app_organization", other), count("x_outbox", other)) == (1, 1)
    assert count("x_jobs", other) == 0
    assert relay_all() == 1
    assert jobs() == {result.id: "acme"}


def test_a_transaction_that_rolls_back_leaves_no_trace() -> None:
    with taken_back():
        Organization.objects.create(name="acme")
        note.enqueue(label="acme")

    assert nothing_is_left()


def test_a_transaction_that_is_marked_for_rollback_leaves_no_trace() -> None:
    with transaction.atomic():
        Organization.objects.create(name="acme")
        note.enqueue_many([{"label": "acme"}, {"label": "other"}])
        transaction.set_rollback(True)

    assert nothing_is_left()


def test_a_savepoint_that_rolls_back_takes_its_own_work_along_and_no_other() -> None:
    with transaction.atomic():
        note.enqueue(label="before")
        with taken_back():
            Organization.objects.create(name="inner")
            note.enqueue(label="inner")
            with transaction.atomic():
                note.enqueue(label="innermost")
        note.enqueue(label="after")

    assert relay_all() == 2
    assert labels() == ["before", "after"]
    assert not Organization.objects.exists()


def test_a_savepoint_that_is_set_by_hand_is_a_savepoint_too() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        note.enqueue(label="kept")
        cursor.execute("SAVEPOINT mine")
        note.enqueue(label="taken back")
        cursor.execute("ROLLBACK TO SAVEPOINT mine")
        note.enqueue(label="kept too")
        cursor.execute("RELEASE SAVEPOINT mine")

    relay_all()
    assert labels() == ["kept", "kept too"]


def test_an_inner_block_that_commits_is_taken_back_with_the_outer_one() -> None:
    with taken_back(), transaction.atomic():
        Organization.objects.create(name="acme")
        note.enqueue(label="acme")

    assert nothing_is_left()


def test_an_inner_block_without_a_savepoint_takes_the_outer_one_along() -> None:
    with transaction.atomic():
        note.enqueue(label="acme")
        with taken_back(savepoint=False):
            note.enqueue(label="inner")

    assert nothing_is_left()


@pytest.mark.usefixtures("without_autocommit")
def test_a_caller_who_commits_by_hand_stages_too(other: BaseDatabaseWrapper) -> None:
    Organization.objects.create(name="taken back")
    assert note.enqueue(label="taken back").staged
    transaction.rollback()
    Organization.objects.create(name="kept")
    assert note.enqueue(label="kept").staged
    assert count("x_outbox", other) == 0
    transaction.commit()

    assert (count("app_organization", other), count("x_outbox", other), count("x_jobs", other)) == (1, 1, 0)
    assert outcomes() == {"kept": None}


def test_work_enqueued_outside_a_transaction_is_not_staged() -> None:
    assert not note.enqueue(label="a").staged
    assert outcomes() == {}
    assert labels() == ["a"]


def test_nothing_hangs_on_the_commit() -> None:
    with transaction.atomic():
        note.enqueue(label="a")
        assert connection.run_on_commit == []


def test_a_batch_is_staged_whole_in_its_order_and_in_few_statements() -> None:
    given = [f"{number:04}" for number in reversed(range(5_000))]
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        results = note.enqueue_many([{"label": label} for label in given])

    assert len(captured) <= 5
    staged = OutboxEntry.objects.order_by("staged_at", "id")
    assert [row["label"] for row in staged.values_list("input", flat=True)] == given
    assert [result.id for result in results] == list(staged.values_list("id", flat=True))


def test_a_staged_row_holds_all_that_the_job_needs() -> None:
    moment = datetime(2031, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    handle = daily.using(run_after=moment, priority=-3, queue="night").on_behalf_of("shop.user:7")
    with transaction.atomic():
        result = handle.enqueue(label="a", org="acme")
        daily.enqueue(label="b", org="acme")

    row = OutboxEntry.objects.get(id=result.id)
    assert (row.kind, row.name, row.queue, row.priority, row.run_at) == (
        "job", "outbox.daily", "night", -3, moment
    )  # fmt: skip
    assert (row.idempotency_key, row.tenant_id, row.enqueued_by) == ("daily:a", "acme", "shop.user:7")
    assert (row.dedupe_for, row.while_running, row.on_key_reuse) == (86_400.0, "join", "error")
    assert (row.max_attempts, len(row.fingerprint)) == (daily.definition.retry.attempts, 64)
    assert (row.outcome, row.job_id, row.published_at, row.error) == (None, None, None, "")
    other = OutboxEntry.objects.exclude(id=result.id).get()
    assert (other.queue, other.priority, other.enqueued_by) == ("slow", 7, "")


def test_time_counts_from_the_staging_and_not_from_the_begin_of_the_transaction() -> None:
    with transaction.atomic():
        Organization.objects.create(name="acme")
        before = database_now()
        note.using(run_after="1h").enqueue(label="delayed")
        note.enqueue(label="now")
        after = database_now()

    moments = {row.input["label"]: (row.run_at, row.staged_at) for row in OutboxEntry.objects.all()}
    for label, delay in (("delayed", timedelta(hours=1)), ("now", timedelta(0))):
        due, staged = moments[label]
        assert before <= staged <= after
        assert before + delay <= due <= after + delay


@pytest.mark.parametrize("year", [1, 13, 999, 9999])
def test_the_year_of_a_moment_is_kept(year: int) -> None:
    moment = datetime(year, 1, 31, 13, 0, 0, 5, tzinfo=UTC)
    with transaction.atomic():
        result = note.using(run_after=moment).enqueue(label="a")
    relay_all()

    assert Job.objects.get(id=result.id).run_at == moment


def test_a_held_key_does_not_spoil_the_transaction_that_stages_it() -> None:
    holder = note.enqueue(label="held")
    with transaction.atomic():
        Organization.objects.create(name="acme")
        with pytest.raises(KeyReused):
            note.enqueue(label="held", detail="another")
        with pytest.raises(DuplicateJob):
            note.using(on_conflict="error").enqueue(label="held")
        with pytest.raises(KeyReused):
            note.enqueue_many([{"label": "not staged either"}, {"label": "held", "detail": "another"}])
        assert note.enqueue(label="held").staged
        note.enqueue(label="free")

    assert outcomes() == {"held": None, "free": None}
    assert relay_all() == 2
    assert outcomes() == {"held": "deduped", "free": "published"}
    assert OutboxEntry.objects.get(outcome="deduped").job_id == holder.id
    assert Organization.objects.count() == 1


@pytest.mark.postgresql_only(reason="on SQLite an open transaction that writes holds back every other writer")
@pytest.mark.parametrize("commits", [True, False])
def test_staging_does_not_wait_for_a_key_that_an_open_transaction_holds(background: Background, commits: bool) -> None:
    held, staged = threading.Event(), threading.Event()

    def hold() -> UUID:
        with transaction.atomic():
            with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "direct"}}):
                result = note.enqueue(label="k")
            held.set()
            assert staged.wait(TIMEOUT)
            transaction.set_rollback(not commits)
            return result.id

    holding = background(hold)
    assert held.wait(TIMEOUT)
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '10s'")
            result = note.enqueue(label="k")
            note.enqueue_many([{"label": "k"}, {"label": "other"}])
        assert not holding.done()
        assert count("x_outbox", connection) == 3
    finally:
        staged.set()
    holder = holding.result(TIMEOUT)

    assert relay_all() == 3
    winner = holder if commits else result.id
    assert jobs()[winner] == "k"
    assert sorted(labels()) == ["k", "other"]
    joined = OutboxEntry.objects.filter(outcome="deduped").values_list("job_id", flat=True)
    assert set(joined) == {winner}


@pytest.mark.postgresql_only(reason="SQLite runs one transaction that writes at a time")
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("commits", [True, False])
def test_transactions_that_stage_one_key_at_once_all_go_on_and_commit(
    background: Background, isolation: str, commits: bool
) -> None:
    both_staged = threading.Barrier(2, timeout=TIMEOUT)

    def stage(name: str, commit: bool) -> UUID:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            result = note.enqueue(label="k")
            both_staged.wait()
            Organization.objects.create(name=name)
            transaction.set_rollback(not commit)
        return result.id

    first, second = background(lambda: stage("a", commits)), background(lambda: stage("b", True))
    ids = {first.result(TIMEOUT), second.result(TIMEOUT)} if commits else {second.result(TIMEOUT)}

    assert relay_all() == len(ids)
    assert labels() == ["k"]
    assert set(OutboxEntry.objects.values_list("id", flat=True)) == ids
    assert Organization.objects.count() == len(ids)


@pytest.mark.parametrize("first_commits", [True, False])
def test_one_key_staged_by_two_transactions_is_one_job(first_commits: bool) -> None:
    with transaction.atomic():
        first = note.enqueue(label="k")
        transaction.set_rollback(not first_commits)
    with transaction.atomic():
        second = note.enqueue(label="k")

    relay_all()
    winner = first if first_commits else second
    assert jobs() == {winner.id: "k"}
    assert set(OutboxEntry.objects.values_list("job_id", flat=True)) == {winner.id}


def test_a_running_job_learns_of_staged_work_from_the_relay_alone() -> None:
    again.enqueue(label="k")
    (running,) = get_driver().claim(worker="w", limit=1, lease=timedelta(minutes=5), queues=QueueSelection())
    with transaction.atomic():
        again.enqueue(label="k")
        assert Job.objects.get().rerun is None
        transaction.set_rollback(True)

    assert relay_all() == 0
    assert Job.objects.get().rerun is None
    assert Job.objects.get().id == running.claim.id
