"""The relay, one at a time: what it makes of the rows it finds, in their order, in few statements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.outbox.support import again, daily, jobs, labels, lenient, note, outcomes, stage
from ultimat3_jobs import batches
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.records import Ack, ClaimedJob, QueueSelection
from ultimat3_jobs.sql import run, statement

pytestmark = pytest.mark.usefixtures("outbox")


def stage_late(label: str, *, before: UUID, detail: str = "") -> UUID:
    """Stage a job as one whose transaction had begun a second before that of another row, and commits after it."""
    (staged,) = stage(label, detail=detail)
    moment = OutboxEntry.objects.get(id=before).staged_at - timedelta(seconds=1)
    OutboxEntry.objects.filter(id=staged).update(staged_at=moment, run_at=moment)
    return staged


def let_pass(hours: float) -> None:
    """Let time pass between the staging and the relay: the database's clock cannot be moved, so rows become older."""
    for entry in OutboxEntry.objects.all():
        entry.staged_at -= timedelta(hours=hours)
        entry.run_at -= timedelta(hours=hours)
        entry.save()


def claim(limit: int = 1) -> list[ClaimedJob]:
    """Claim due jobs."""
    return get_driver().claim(worker="w", limit=limit, lease=timedelta(minutes=5), queues=QueueSelection())


def test_staged_work_becomes_jobs_under_its_ids_in_its_order() -> None:
    staged = [*stage("d"), *stage("b", "c")]
    with transaction.atomic():
        staged += [result.id for result in note.enqueue_many([{"label": "z"}, {"label": "a"}])]
    assert labels() == []

    assert relay_all() == 5
    assert [(job.claim.id, job.run_id) for job in claim(9)] == [(one, one) for one in staged]
    assert labels() == ["d", "b", "c", "z", "a"]
    assert set(outcomes().values()) == {"published"}
    assert all(entry.job_id == entry.id and entry.published_at for entry in OutboxEntry.objects.all())
    assert relay_all() == 0


@pytest.mark.usefixtures("two_a_move")
def test_a_move_takes_a_batch_of_what_was_staged_first() -> None:
    stage(*"abcde")
    for entry, seconds in zip(OutboxEntry.objects.order_by("id"), (40, 30, 20, 10, 20), strict=True):
        OutboxEntry.objects.filter(id=entry.id).update(staged_at=entry.staged_at + timedelta(seconds=seconds))

    left = set("abcde")
    for moved in ("dc", "eb", "a"):
        assert relay_once() == len(moved)
        left -= set(moved)
        assert {label for label, outcome in outcomes().items() if not outcome} == left
    assert relay_once() == 0


@pytest.mark.usefixtures("two_a_move")
def test_of_rows_staged_at_one_moment_the_lower_ids_go_first() -> None:
    ids = sorted(uuid7() for _ in range(5))
    stage("template")
    template = OutboxEntry.objects.get()
    OutboxEntry.objects.all().delete()
    for label, one in zip("cdbea", (ids[2], ids[3], ids[1], ids[4], ids[0]), strict=True):
        template.pk, template.idempotency_key, template.input = one, label, {"label": label}
        template.save(force_insert=True)

    assert relay_once() == 2
    assert labels() == ["a", "b"]
    assert relay_all() == 3
    assert labels() == list("abcde")


@pytest.mark.usefixtures("two_a_move")
def test_all_that_is_committed_is_moved_batch_by_batch() -> None:
    stage(*"abcde")

    assert relay_all() == 5
    assert labels() == list("abcde")


def test_a_row_that_commits_late_is_not_lost() -> None:
    early, later = stage("early", "later")
    relay_all()
    late = stage_late("late", before=early)
    assert late > later

    assert relay_all() == 1
    assert labels() == ["late", "early", "later"]


def test_a_job_is_what_was_staged() -> None:
    handle = daily.using(run_after="1h", priority=-3, queue="night").on_behalf_of("shop.user:7")
    with transaction.atomic():
        staged = handle.enqueue(label="a", org="acme")
    OutboxEntry.objects.update(traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    relay_all()

    entry, row = OutboxEntry.objects.get(), Job.objects.get()
    assert row.id == row.run_id == staged.id
    for field in ("name", "queue", "input", "fingerprint", "idempotency_key", "tenant_id", "max_attempts"):
        assert getattr(row, field) == getattr(entry, field), field
    for field in ("priority", "run_at", "enqueued_by", "traceparent"):
        assert getattr(row, field) == getattr(entry, field), field
    assert (row.queue, row.priority, row.tenant_id, row.enqueued_by) == ("night", -3, "acme", "shop.user:7")
    assert (row.state, row.attempt, row.claim_token, row.visible_at) == ("delayed", 0, None, None)


def test_times_count_from_the_staging() -> None:
    stage("now", org="acme", handle=daily)
    stage("short", org="acme", handle=daily.using(run_after="1h"))
    stage("long", org="acme", handle=daily.using(run_after="3h"))
    let_pass(hours=2)
    relay_all()

    rows = {row.input["label"]: row for row in Job.objects.all()}
    for entry in OutboxEntry.objects.all():
        row = rows[entry.input["label"]]
        assert (row.run_at, row.created_at) == (entry.run_at, entry.staged_at)
        assert row.key_until is not None
        # SQLite adds in milliseconds.
        assert abs(row.key_until - entry.staged_at - timedelta(hours=24)) < timedelta(milliseconds=1)
    assert {label: row.state for label, row in rows.items()} == {"now": "ready", "short": "ready", "long": "delayed"}


def test_a_key_held_by_a_job_joins_it() -> None:
    (holder,) = stage("k")
    relay_all()
    (staged,) = stage("k")
    relay_all()

    entry = OutboxEntry.objects.get(id=staged)
    assert (entry.outcome, entry.job_id, entry.error) == ("deduped", holder, "")
    assert entry.published_at is not None
    assert jobs() == {holder: "k"}


def test_a_key_is_held_for_as_long_as_the_job_says() -> None:
    stage("k", org="acme", handle=daily)
    relay_all()
    (job,) = claim()
    assert get_driver().ack([Ack(job.claim)]) == [True]
    (joined,) = stage("k", org="acme", handle=daily)
    relay_all()
    assert OutboxEntry.objects.get(id=joined).job_id == job.claim.id

    Job.objects.update(key_until=Job.objects.get().created_at)
    (fresh,) = stage("k", org="acme", handle=daily)
    relay_all()
    assert OutboxEntry.objects.get(id=fresh).outcome == "published"
    assert Job.objects.count() == 2


def test_one_key_of_two_tenants_is_two_jobs() -> None:
    stage("k", org="acme", handle=daily)
    stage("k", org="globex", handle=daily)
    stage("k")

    relay_all()
    assert set(OutboxEntry.objects.values_list("outcome", flat=True)) == {"published"}
    assert Job.objects.count() == 3


def test_a_key_reused_with_another_input_is_set_aside_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    first, second = stage("k")[0], stage("k", detail="secret")[0]
    caplog.clear()
    with caplog.at_level(logging.INFO, "ultimat3_jobs"):
        assert relay_all() == 2

    entry = OutboxEntry.objects.get(id=second)
    assert (entry.outcome, entry.job_id, entry.published_at) == ("set_aside", first, None)
    assert entry.error.startswith("X_JOB_KEY_REUSED: ")
    assert str(first) in entry.error
    assert jobs() == {first: "k"}
    (record,) = [record for record in caplog.records if record.event == "jobs.outbox.set-aside"]  # type: ignore[attr-defined]
    assert record.levelno == logging.ERROR
    assert str(second) in record.getMessage()
    assert entry.error in record.getMessage()
    assert "secret" not in caplog.text
    # It stays as it is, with all that it would take to publish it.
    assert relay_all() == 0
    assert OutboxEntry.objects.get(id=second).input == {"label": "k", "detail": "secret"}


def test_a_key_that_may_be_reused_joins() -> None:
    first, second = stage("k", handle=lenient)[0], stage("k", handle=lenient, detail="another")[0]
    relay_all()

    entry = OutboxEntry.objects.get(id=second)
    assert (entry.outcome, entry.job_id) == ("deduped", first)


@pytest.mark.parametrize("detail", ["", "another"])
def test_of_one_key_in_one_move_the_row_that_was_staged_first_gets_it(detail: str) -> None:
    (later,) = stage("k")
    first = stage_late("k", before=later, detail=detail)
    assert later < first

    assert relay_once() == 2
    assert jobs() == {first: "k"}
    entry = OutboxEntry.objects.get(id=later)
    assert (entry.outcome, entry.job_id) == ("set_aside" if detail else "deduped", first)


def test_a_name_that_no_code_knows_is_moved_too() -> None:
    stage("a")
    OutboxEntry.objects.update(name="gone.since")

    relay_all()
    assert Job.objects.get().name == "gone.since"


def test_a_running_job_that_is_asked_again_is_followed_by_what_was_staged() -> None:
    (first,) = stage("k", handle=again)
    relay_all()
    (running,) = claim()
    (second,) = stage("k", handle=again)
    (third,) = stage("k", handle=again)
    relay_all()

    asked = OutboxEntry.objects.exclude(id=first)
    assert set(asked.values_list("outcome", "job_id")) == {("deduped", first)}
    assert jobs() == {first: "k"}
    assert get_driver().ack([Ack(running.claim)]) == [True]
    follower = Job.objects.get(state="ready")
    assert follower.id in {second, third}
    assert follower.created_at == OutboxEntry.objects.get(id=follower.id).staged_at


def test_a_waiting_job_that_is_asked_again_is_joined() -> None:
    (first,) = stage("k", handle=again)
    stage("k", handle=again)
    relay_all()

    (running,) = claim()
    assert running.claim.id == first
    get_driver().ack([Ack(running.claim)])
    assert not Job.objects.filter(state="ready").exists()


def test_a_row_that_was_decided_is_not_decided_again() -> None:
    (staged,) = stage("k")
    relay_all()
    Job.objects.all().delete()

    assert relay_all() == 0
    late = {"id": staged.hex, "outcome": "deduped", "job_id": uuid7().hex, "error": "late"}
    assert run("default", "mark", {"rows": f"[{late}]".replace("'", '"')}) == []
    entry = OutboxEntry.objects.get()
    assert (entry.outcome, entry.job_id, entry.error) == ("published", staged, "")


def everything_free() -> None:
    stage(*(str(number) for number in range(500)))


def half_joined() -> None:
    stage(*(str(number) for number in range(250)))
    relay_all()
    stage(*(str(number % 375) for number in range(500)))


def one_of_each() -> None:
    stage("running", handle=again)
    stage("expired", org="acme", handle=daily)
    relay_all()
    get_driver().ack([Ack(job.claim) for job in claim(9) if job.name == "outbox.daily"])
    Job.objects.exclude(key_until=None).update(key_until=Job.objects.earliest("created_at").created_at)
    stage("running", handle=again)
    stage("expired", org="acme", handle=daily)
    stage("reused")
    stage("reused", detail="another")
    stage(*(str(number) for number in range(496)))


@pytest.mark.parametrize(("staged", "most"), [(everything_free, 3), (half_joined, 4), (one_of_each, 7)])
def test_a_move_takes_a_few_statements(staged: Callable[[], None], most: int) -> None:
    staged()
    with CaptureQueriesContext(connection) as captured:
        assert relay_once() == 500

    statements = [query["sql"] for query in captured if query["sql"] not in ("BEGIN", "BEGIN IMMEDIATE", "COMMIT")]
    assert len(statements) <= most, statements


def test_large_inputs_are_moved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BYTES", 1_000)
    stage(*"abcdefg", detail="x" * 300)
    stage("a", detail="x" * 300)
    with CaptureQueriesContext(connection) as captured:
        assert relay_once() == 8

    assert len([query for query in captured if "INSERT INTO x_jobs" in query["sql"]]) > 2
    assert labels() == list("abcdefg")
    assert OutboxEntry.objects.get(outcome="deduped").input["label"] == "a"


def test_callers_who_keep_committing_do_not_hold_up_what_relays_all() -> None:
    stage("first")
    moves = 0

    def commit_more(execute: Callable[..., object], sql: str, *rest: object) -> object:
        """During each move, as another caller would."""
        nonlocal moves
        if sql == statement(connection.vendor, "mark") and moves < 5:
            moves += 1
            stage(f"during move {moves}")
        return execute(sql, *rest)

    with connection.execute_wrapper(commit_more):
        assert relay_all() == 1
    assert moves == 1
    assert relay_all() == 1
