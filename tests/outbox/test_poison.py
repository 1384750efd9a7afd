"""Rows that cannot be published: set aside with their error, the others go on in order; nothing else sets any aside."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

from tests.outbox.conftest import Background
from tests.outbox.refusing import refusing
from tests.outbox.support import Pause, jobs, labels, outcomes, stage
from tests.processes import TIMEOUT
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.outbox.faults import MAX_ERROR, UNCLEAR_TRIES
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.sql import statement

pytestmark = pytest.mark.usefixtures("outbox")


@pytest.fixture
def bad_is_refused(outbox: None) -> Iterator[None]:
    """A database that refuses jobs whose label begins with "bad"."""
    with refusing():
        yield


def entry(label: str) -> OutboxEntry:
    """Return the staged row of a label."""
    return next(one for one in OutboxEntry.objects.all() if one.input["label"] == label)


def said_aside(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return what was logged of rows that were set aside."""
    records = [record for record in caplog.records if getattr(record, "event", "") == "jobs.outbox.set-aside"]
    assert {record.levelno for record in records} <= {logging.ERROR}
    return [record.fields for record in records]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("bad_is_refused")
def test_a_row_that_the_queue_refuses_is_set_aside_and_those_beside_it_go_on_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage("a", "bad", "b", "bad too", "c")

    assert relay_once() == 5
    assert labels() == ["a", "b", "c"]
    assert outcomes() == {
        "a": "published",
        "bad": "set_aside",
        "b": "published",
        "bad too": "set_aside",
        "c": "published",
    }
    bad = entry("bad")
    assert (bad.attempts, bad.job_id, bad.published_at) == (1, None, None)
    assert "IntegrityError" in bad.error
    assert "it is bad" in bad.error
    assert [(one["staged"], one["name"]) for one in said_aside(caplog)] == [
        (bad.id.hex, "outbox.note"),
        (entry("bad too").id.hex, "outbox.note"),
    ]
    assert "it is bad" not in caplog.text
    # It stays as it is, with all that it would take to publish it.
    assert relay_all() == 0
    assert entry("bad").attempts == 1


@pytest.mark.usefixtures("bad_is_refused", "two_a_move")
def test_ten_bad_rows_at_the_head_do_not_fill_every_batch() -> None:
    stage(*(f"bad {number}" for number in range(10)))
    stage("a", "b", "c")

    assert relay_all() == 13
    assert labels() == ["a", "b", "c"]
    assert sorted(outcomes().values(), key=str) == ["published"] * 3 + ["set_aside"] * 10


def spoil(label: str, assignment: str) -> None:
    """Write into a staged row what no enqueue would have written."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE x_outbox SET {assignment} WHERE id = %s", [_stored(entry(label))])


def _stored(row: OutboxEntry) -> str:
    return row.id.hex if connection.vendor == "sqlite" else str(row.id)


NO_MOMENT = {"postgresql": "'infinity'", "sqlite": "'soon'"}


@pytest.mark.parametrize(
    ("column", "value"),
    [("run_at", NO_MOMENT), ("staged_at", NO_MOMENT), ("while_running", "'maybe'"), ("on_key_reuse", "''")],
)
def test_a_row_that_cannot_be_read_is_set_aside(
    caplog: pytest.LogCaptureFixture, column: str, value: dict[str, str] | str
) -> None:
    stage("a", "unreadable", "b")
    spoil("unreadable", f"{column} = {value if isinstance(value, str) else value[connection.vendor]}")

    assert relay_once() == 3
    assert labels() == ["a", "b"]
    with connection.cursor() as cursor:  # the model cannot read it either
        cursor.execute("SELECT outcome, attempts, error FROM x_outbox WHERE outcome = 'set_aside'")
        ((outcome, attempts, error),) = cursor.fetchall()
    assert (outcome, attempts) == ("set_aside", 1)
    assert error.startswith(("ValueError", "TypeError"))
    assert len(said_aside(caplog)) == 1
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM x_outbox")


def test_a_row_without_an_input_is_set_aside() -> None:
    stage("a", "b")
    OutboxEntry.objects.filter(id=entry("a").id).update(fingerprint="x")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE x_outbox SET input = NULL WHERE fingerprint = 'x'")

    assert relay_once() == 2
    assert labels() == ["b"]
    aside = OutboxEntry.objects.get(outcome="set_aside")
    assert "$.input" in aside.error


class Broken(DatabaseDriver):
    """A driver that fails whenever it is given a label that begins with "bad"."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def enqueue(self, requests: Any) -> Any:
        receipts = super().enqueue(requests)
        if any('"bad' in request.input for request in requests):
            raise self.error
        return receipts


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make the driver fail with an error where it meets a bad label."""

    def install(error: BaseException) -> None:
        monkeypatch.setattr("ultimat3_jobs.outbox.offer.get_driver", lambda: Broken(error))

    return install


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LookupError("x" * 10_000), "LookupError: xxx"),
        (LookupError("nul \x00 and \ud800\nDETAIL: the input"), "LookupError: nul \\x00 and \\ud800"),
        (Unprintable(), "tests.outbox.test_poison.Unprintable: <its text could not be read>"),
    ],
    ids=["long", "NUL", "unprintable"],
)
def test_what_fails_for_no_clear_reason_is_set_aside_after_a_few_passes(
    broken: Callable[[BaseException], None], error: Exception, text: str
) -> None:
    stage("a", "bad", "b")
    broken(error)

    for tried in range(1, UNCLEAR_TRIES):
        with pytest.raises(type(error)):
            relay_once()
        # Those in front of it have been moved; nothing behind it overtakes it while it may yet be published.
        assert outcomes() == {"a": "published", "bad": None, "b": None}
        assert entry("bad").attempts == tried
        assert entry("bad").error.startswith(text)
    with pytest.raises(type(error)):
        relay_once()
    assert outcomes()["bad"] == "set_aside"
    assert relay_once() == 1

    assert labels() == ["a", "b"]
    stored = entry("bad")
    assert stored.attempts == UNCLEAR_TRIES
    assert stored.error.startswith(text)
    assert len(stored.error) <= MAX_ERROR
    assert "DETAIL" not in stored.error


def test_a_row_that_gets_through_at_last_is_published_before_those_behind_it(
    broken: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage("bad", "b")
    with monkeypatch.context():
        broken(LookupError())
        with pytest.raises(LookupError):
            relay_once()
        monkeypatch.undo()
    assert relay_once() == 2

    assert labels() == ["bad", "b"]
    assert (entry("bad").attempts, entry("bad").error) == (1, "")


PASSING = ["40001", "40P01", "55P03", "57014", "08006", "53300", "25006"]


@pytest.mark.postgresql_only(reason="SQLite has no codes")
@pytest.mark.parametrize("code", PASSING)
def test_a_passing_failure_stops_the_pass_and_sets_nothing_aside_however_often(code: str) -> None:
    stage("a", "bad", "b")
    with refusing(code=code):
        for _ in range(2 * UNCLEAR_TRIES):
            with pytest.raises(Exception, match="it is bad"):
                relay_once()
            assert set(outcomes().values()) == {None}
            assert labels() == []
    assert entry("bad").attempts == 0

    assert relay_all() == 3
    assert labels() == ["a", "bad", "b"]


@pytest.mark.parametrize("error", [OperationalError("gone"), ConnectionError("gone"), MemoryError()])
def test_an_outage_stops_the_pass_and_sets_nothing_aside_however_often(
    broken: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    stage("a", "bad", "b")
    with monkeypatch.context():
        broken(error)
        for _ in range(2 * UNCLEAR_TRIES):
            with pytest.raises(type(error)):
                relay_once()
            assert set(outcomes().values()) == {None}
        monkeypatch.undo()

    assert entry("bad").attempts == 0
    assert relay_all() == 3
    assert labels() == ["a", "bad", "b"]


@pytest.mark.usefixtures("bad_is_refused")
def test_what_a_move_learnt_of_a_row_outlives_its_rollback(caplog: pytest.LogCaptureFixture) -> None:
    stage("bad", "b")
    failing = True

    def fail_to_mark(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if failing and sql == statement(connection.vendor, "mark"):
            raise OperationalError("gone")
        return execute(sql, *rest)

    with connection.execute_wrapper(fail_to_mark), pytest.raises(OperationalError):
        relay_once()
    assert labels() == []
    assert outcomes() == {"bad": "set_aside", "b": None}
    assert entry("bad").attempts == 1
    assert len(said_aside(caplog)) == 1

    assert relay_once() == 1
    assert labels() == ["b"]


@pytest.mark.usefixtures("bad_is_refused")
def test_of_two_relays_that_meet_a_bad_row_one_sets_it_aside(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    stage("bad", "b")
    pause = Pause("pending")

    def relay() -> int:
        with pause:
            return relay_once()

    first = background(relay)
    pause.wait()
    second = background(relay_once)
    pause.go_on()

    assert first.result(TIMEOUT) + second.result(TIMEOUT) == 2
    relay_all()
    assert outcomes() == {"bad": "set_aside", "b": "published"}
    assert entry("bad").attempts == 1
    assert len(said_aside(caplog)) == 1


def test_a_row_whose_job_is_there_already_is_published_by_it() -> None:
    """A relay that publishes to another database cannot know whether it did; here the rows are made so by hand."""
    staged = stage("live", "done", "key taken since")
    relay_all()
    Job.objects.filter(id=staged[1]).update(state="done")
    Job.objects.filter(id=staged[2]).update(state="done")
    (taker,) = stage("key taken since")
    relay_all()
    OutboxEntry.objects.filter(id__in=staged).update(outcome=None, job_id=None, published_at=None)
    stage("new")

    assert relay_once() == 4
    assert set(OutboxEntry.objects.values_list("outcome", flat=True)) == {"published"}
    assert all(one.job_id == one.id for one in OutboxEntry.objects.all())
    assert sorted(jobs().values()) == ["done", "key taken since", "key taken since", "live", "new"]
    assert Job.objects.get(id=taker).rerun is None
