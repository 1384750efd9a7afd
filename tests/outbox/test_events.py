"""Events on their way: they commit with what they tell of, are stored in order and once, and wake who waits."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, transaction
from django.test.utils import override_settings

from tests.app.models import Organization
from tests.declaring import error_of
from tests.outbox.support import note, stage, taken_back
from tests.outbox.waiting import asks, begun, claimed, parked, payloads, publish, states
from ultimat3_jobs import apublish_event, publish_event
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.drivers.database.driver import DatabaseDriver
from ultimat3_jobs.models import Job, JobEvent, OutboxEntry
from ultimat3_jobs.outbox import admission, prune
from ultimat3_jobs.outbox.prune import Pruner
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.outbox.repair import retry_set_aside
from ultimat3_jobs.records import Event, RetryVerdict

pytestmark = pytest.mark.usefixtures("outbox")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ORDER = UUID("0189abcd-0000-7000-8000-000000000007")


def entry() -> OutboxEntry:
    """Return the only staged row."""
    return OutboxEntry.objects.get()


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the fields of what was logged of one kind."""
    return [one.fields for one in caplog.records if getattr(one, "event", "") == event]  # type: ignore[attr-defined]


def test_an_event_commits_with_the_row_that_it_tells_of() -> None:
    with transaction.atomic():
        Organization.objects.create(name="acme")
        staged = publish_event("paid", {"by": "ann"}, match={"order": 7}, ttl="2h")

    one = entry()
    assert (one.id, one.kind, one.name, one.input, one.match) == (staged, "event", "paid", {"by": "ann"}, '{"order":7}')
    assert one.expires_at is not None
    assert one.expires_at - one.staged_at == timedelta(hours=2)
    assert one.outcome is None
    assert relay_all() == 1
    one = entry()
    assert (one.outcome, one.job_id, one.error) == ("published", None, "")
    stored = JobEvent.objects.get()
    assert (stored.staged_id, stored.name, stored.payload, stored.match) == (staged, one.name, one.input, one.match)
    assert abs(stored.expires_at - stored.published_at - timedelta(hours=2)) < timedelta(milliseconds=2)
    assert one.staged_at <= stored.published_at
    assert relay_all() == 0


def test_what_is_rolled_back_leaves_no_event() -> None:
    with taken_back():
        publish("all")
    with transaction.atomic():
        Organization.objects.create(name="kept")
        with taken_back():
            publish("of a savepoint")
        publish("kept")

    relay_all()
    assert payloads() == ["kept"]


def test_outside_a_transaction_it_is_committed_at_once() -> None:
    parked()
    publish("now")

    assert relay_all() == 1
    assert states() == {"a": "ready"}


def test_an_async_caller_publishes_too() -> None:
    async_to_sync(apublish_event)("paid", 1, match={"order": 1}, ttl=60)

    assert entry().match == '{"order":1}'


def test_the_mode_required_refuses_it_outside_a_transaction() -> None:
    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "required"}}):
        error = error_of("X_OUTBOX_NO_TX", lambda: publish("now"))
        with transaction.atomic():
            publish("staged")

    assert error.cause == 'paid was published outside a transaction and OUTBOX["MODE"] is "required"'
    assert entry().input == "staged"


def test_the_mode_direct_stages_it_all_the_same() -> None:
    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "direct"}}), transaction.atomic():
        publish("staged")

    assert (entry().input, payloads()) == ("staged", [])


@pytest.mark.parametrize("table", ["x_outbox", "x_job_events"])
def test_before_the_tables_are_there_it_is_refused(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_with_tables", set())
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {table}")
        error = error_of("X_MIGRATION_MISSING", lambda: publish("early"))
        Organization.objects.create(name="the transaction goes on")
        transaction.set_rollback(True)

    assert error.cause == "an event was published on 'default' before the tables of ultimat3_jobs were made there"


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"event": ""}, "''"),
        ({"event": " paid"}, "' paid'"),
        ({"event": "pa\x00id"}, "x00"),
        ({"event": "p" * 201}, "ppp"),
        ({"event": 7}, "7"),
        ({"match": ["order"]}, "`match` is of type list"),
        ({"match": {"order": {"id": 7}}}, "`match.order` is of type dict"),
        ({"match": {"order": [7]}}, "`match.order` is of type list"),
        ({"match": {"price": 1.5}}, "`match.price` is of type float"),
        ({"match": {"order": "a\x00b"}}, "`match.order` is text with a NUL"),
        ({"match": {"order": 2**63}}, "`match.order` is an integer beyond 64 bits"),
        ({"match": {7: 7}}, "the key 7 at `match`"),
        ({"match": {"text": "é" * 245}}, "`match` has 256 characters"),
        ({"payload": {"at": object()}}, "`$.at` is of type object"),
        ({"payload": {"blob": b"x"}}, "`$.blob` is of type bytes"),
        ({"payload": "é" * 131_072}, "`$` is 262146 bytes"),
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": "-1s"}, "ttl='-1s'"),
        ({"ttl": "soon"}, "ttl='soon'"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_named(given: dict[str, Any], where: str) -> None:
    with transaction.atomic():
        error = error_of("X_EVENT_INVALID", lambda: publish_event(**{"event": "paid", **given}))

    assert where in error.cause
    assert not OutboxEntry.objects.exists()


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (None, ""),
        ({}, ""),
        ({"b": 1, "a": "x"}, '{"a":"x","b":1}'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ({"order": ORDER}, f'{{"order":"{ORDER}"}}'),
        ({"order": str(ORDER)}, f'{{"order":"{ORDER}"}}'),
        ({"on": True, "of": None, "n": 1}, '{"n":1,"of":null,"on":true}'),
        ({"text": "é" * 244}, f'{{"text":"{"é" * 244}"}}'),
    ],
)
def test_equal_matches_have_equal_text(match: Any, text: str) -> None:
    publish("x", match=match)

    assert entry().match == text
    relay_all()
    assert JobEvent.objects.get().match == text


@pytest.mark.parametrize("payload", [None, 0, "", False, [1, {"a": None}], 1.5, 1e16, {"1": "ä😀"}, {"big": 2**53 + 1}])
def test_a_payload_comes_back_as_it_was(payload: Any) -> None:
    run = begun()
    publish(payload)
    relay_all()
    answer = asks(run)

    assert answer.output is not None
    got = json.loads(answer.output)["payload"]
    assert (got, type(got)) == (payload, type(payload))


def test_events_and_jobs_are_relayed_in_one_pass_and_events_in_their_order() -> None:
    with transaction.atomic():
        publish(1)
        stage("a")
        publish(2, 3)
        stage("b")
        publish(4)

    assert relay_once() == 6
    assert payloads() == [1, 2, 3, 4]
    assert states() == {"a": "ready", "b": "ready"}
    assert set(OutboxEntry.objects.values_list("outcome", flat=True)) == {"published"}


@pytest.mark.usefixtures("two_a_move")
def test_a_batch_holds_whatever_was_staged_first() -> None:
    with transaction.atomic():
        publish(1)
        stage("a")
        publish(2)
        stage("b")

    assert relay_once() == 2
    assert (payloads(), states()) == ([1], {"a": "ready"})


def test_a_run_that_is_enqueued_with_its_event_gets_it() -> None:
    with transaction.atomic():
        note.enqueue(label="a")
        publish("with it")
    relay_all()

    assert asks(claimed()).state == "done"


def test_an_outbox_whose_clock_is_ahead_loses_no_event() -> None:
    """What is staged carries the time of its outbox; a run that was staged before its event gets it all the same."""
    with transaction.atomic():
        note.enqueue(label="a")
        publish("after it")
    for one in OutboxEntry.objects.all():
        one.staged_at += timedelta(minutes=5)
        one.save()
    relay_all()

    assert Job.objects.get().created_at <= JobEvent.objects.get().published_at


def test_a_publication_wakes_each_run_that_waits_for_it_and_no_other() -> None:
    parked("any")
    parked("seven", '{"order":7}')
    parked("eight", '{"order":8}')
    publish("now", match={"order": 7})

    assert relay_once() == 1
    assert states() == {"any": "ready", "seven": "ready", "eight": "suspended"}
    woken = Job.objects.get(input__label="any")
    assert woken.park_reason == ""
    assert woken.run_at <= woken.updated_at


@pytest.mark.parametrize("damage", ["expires_at", "kind"])
def test_a_row_that_cannot_be_read_is_set_aside_and_holds_up_nothing(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish("a")
    bad = publish_event("paid", "bad")
    publish("b")
    stage("c")
    OutboxEntry.objects.filter(id=bad).update(**{damage: {"expires_at": None, "kind": "poem"}[damage]})

    assert relay_all() == 4
    assert (payloads(), states()) == (["a", "b"], {"c": "ready"})
    assert OutboxEntry.objects.get(id=bad).outcome == "set_aside"
    assert [(one["staged"], one["name"]) for one in said(caplog, "jobs.outbox.set-aside")] == [(bad.hex, "paid")]


def refuse_bad(self: DatabaseDriver, events: list[Event]) -> None:
    """Store events, but for one that meets an error of its own."""
    if any(event.payload == '"bad"' for event in events):
        raise error_to_raise[0]
    real_publish(self, events)


real_publish = DatabaseDriver.publish
error_to_raise: list[Exception] = []


@pytest.mark.parametrize(
    ("error", "stored", "jobs", "outcome"),
    [
        (ValueError("of this row, maybe"), [1], ["a"], None),
        (OperationalError("passing"), [], [], None),
    ],
)
def test_an_event_that_may_yet_be_published_is_not_overtaken(
    error: Exception, stored: list[int], jobs: list[str], outcome: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    error_to_raise[:] = [error]
    monkeypatch.setattr(DatabaseDriver, "publish", refuse_bad)
    with transaction.atomic():
        publish(1)
        stage("a")
        publish("bad", 2)
        stage("b")

    with pytest.raises(type(error)):
        relay_all()
    assert (payloads(), sorted(states())) == (stored, jobs)
    assert OutboxEntry.objects.get(input="bad").outcome == outcome
    monkeypatch.setattr(DatabaseDriver, "publish", real_publish)
    relay_all()
    assert (payloads(), sorted(states())) == ([1, "bad", 2], ["a", "b"])


def test_a_queue_that_takes_no_events_sets_them_aside_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatabaseDriver, "capabilities", DatabaseDriver.capabilities & ~Capability.EVENTS)
    staged = publish_event("paid")
    stage("a")

    assert relay_all() == 2
    one = OutboxEntry.objects.get(id=staged)
    assert (one.outcome, one.error) == (
        "set_aside",
        "X_EVENT_INVALID: the queue's driver DatabaseDriver stores no events",
    )
    assert states() == {"a": "ready"}
    monkeypatch.undo()
    assert retry_set_aside([staged]) == [RetryVerdict.RETRIED]
    assert relay_all() == 1
    assert payloads() == [None]


def test_a_wake_up_that_fails_is_logged_and_the_event_is_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OperationalError("gone")

    run = parked()
    monkeypatch.setattr(DatabaseDriver, "wake", fail)
    publish("now")

    assert relay_all() == 1
    assert [one["error"] for one in said(caplog, "jobs.event.wake-failed")] == ["OperationalError"]
    assert states() == {"a": "suspended"}
    Job.objects.filter(id=run.claim.id).update(run_at=LONG_AGO)
    assert get_driver().promote(limit=10) == 1


def test_in_a_callers_transaction_the_relay_wakes_inside_it() -> None:
    parked()
    with taken_back():
        publish("now")
        relay_all()
        assert states() == {"a": "ready"}
    assert states() == {"a": "suspended"}


def test_expired_events_are_pruned_and_the_others_stay(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "BATCH", 2)
    publish(*range(5), ttl="1h")
    publish("kept", ttl="3h")
    relay_all()
    for one in JobEvent.objects.all():
        one.expires_at -= timedelta(hours=2)
        one.save()
    caplog.set_level(logging.DEBUG)
    pruner = Pruner()

    assert [pruner.step() for _ in range(3)] == [True, True, False]
    assert payloads() == ["kept"]
    assert [one["events"] for one in said(caplog, "jobs.event.pruned")] == [2, 2, 1]


def test_it_prunes_events_where_outbox_rows_are_kept_for_ever() -> None:
    publish("old", ttl="1ms")
    relay_all()
    JobEvent.objects.update(expires_at=LONG_AGO)
    with override_settings(ULTIMAT3_JOBS={"RETENTION": {"OUTBOX": None}}):
        Pruner().step()

    assert payloads() == []


def test_pruning_never_raises(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OperationalError("gone")

    monkeypatch.setattr(DatabaseDriver, "prune_events", fail)

    assert Pruner().step() is False
    assert [one["error"] for one in said(caplog, "jobs.event.prune-failed")] == ["OperationalError"]
