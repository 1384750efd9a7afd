"""Queue and outbox in two databases: claims under leases, publication, marks; nothing twice, nothing overtaken."""

from __future__ import annotations

import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import override_settings

from tests.missing_table import without_table
from tests.outbox.conftest import Background
from tests.outbox.refusing import refusing
from tests.outbox.support import Pause, again, jobs, labels, moved_in_order, note, outcomes, stage
from tests.outbox.two import environment, split
from tests.processes import TIMEOUT, Processes, wait_for
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import DuplicateJob, KeyReused, MigrationMissing, SettingsInvalid
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.outbox import leases
from ultimat3_jobs.outbox.faults import UNCLEAR_TRIES
from ultimat3_jobs.outbox.leases import Mark
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.outbox.repair import retry_set_aside
from ultimat3_jobs.records import Ack, Claim, QueueSelection, RetryVerdict
from ultimat3_jobs.sql import statement

pytestmark = pytest.mark.usefixtures("apart")

RELAY_AND_STOP = """
import sys
from tests.outbox.support import stop_after
from ultimat3_jobs.outbox.relay import relay_once

stop_after(sys.argv[1])
relay_once()
"""


def lapse() -> None:
    """Let every lease run out: the database's clock cannot be moved, so the claims become older."""
    for one in OutboxEntry.objects.exclude(claimed_at=None):
        OutboxEntry.objects.filter(id=one.id).update(claimed_at=one.claimed_at - timedelta(hours=1))


def claim(relay: str, limit: int = 10) -> list[Claim]:
    """Claim the head of the outbox for a relay."""
    found = {one.id.hex: one.id for one in OutboxEntry.objects.all()}
    claimed = leases.claim("default", limit=limit, relay=relay)
    claims = [Claim(found[str(row.values[0]).replace("-", "")], row.token) for row in claimed]
    return sorted(claims, key=lambda one: one.id)


def marks(of: list[Claim]) -> list[Mark]:
    """Return marks that say that rows were published."""
    return [Mark(one, "published", one.id) for one in of]


@pytest.mark.parametrize("table", ["x_jobs", "x_outbox"])
def test_that_the_queue_or_the_outbox_has_no_tables_is_told(apart: str, table: str) -> None:
    stage("a")
    alias = {"x_jobs": apart, "x_outbox": "default"}[table]
    with without_table(table, using=alias), pytest.raises(MigrationMissing) as missing:
        relay_once()

    said = {"x_jobs": "lacks x_jobs of", "x_outbox": "has no tables of"}  # of the outbox's database it is the only one
    assert missing.value.cause == f"{alias!r} {said[table]} ultimat3_jobs"
    assert missing.value.fix == f"python manage.py migrate --database {alias}"
    assert relay_once() == 1


def test_work_commits_with_its_cause_and_arrives_in_the_other_database() -> None:
    with transaction.atomic():
        staged = note.enqueue(label="a")
        note.enqueue_many([{"label": "b"}, {"label": "c"}])
    assert (staged.staged, staged.deduped) == (True, None)
    assert labels() == []

    assert relay_once() == 3
    assert labels() == ["a", "b", "c"]
    assert outcomes() == dict.fromkeys("abc", "published")
    assert all(one.job_id == one.id and one.published_at for one in OutboxEntry.objects.all())
    assert not Job.objects.using("default").exists()
    assert relay_all() == 0


def test_what_rolls_back_never_existed_and_outside_it_goes_straight() -> None:
    with transaction.atomic():
        note.enqueue(label="a")
        transaction.set_rollback(True)
    assert relay_all() == 0
    assert not note.enqueue(label="a").staged
    assert labels() == ["a"]


def test_held_keys_are_looked_up_where_the_queue_is() -> None:
    note.enqueue(label="k")
    with transaction.atomic():
        with pytest.raises(KeyReused):
            note.enqueue(label="k", detail="another")
        with pytest.raises(DuplicateJob):
            note.using(on_conflict="error").enqueue(label="k")
        note.enqueue(label="k")
    assert relay_once() == 1
    assert outcomes() == {"k": "deduped"}


def test_direct_is_refused_with_the_reason() -> None:
    refusal = pytest.raises(SettingsInvalid, match=r"'second'.*'default'")
    with override_settings(ULTIMAT3_JOBS=split(MODE="direct")), transaction.atomic(), refusal:
        note.enqueue(label="a")
    with override_settings(ULTIMAT3_JOBS=split(MODE="direct")):
        assert not note.enqueue(label="a").staged


@pytest.mark.parametrize("name", ["claim_staged", "enqueue", "mark_claimed"])
def test_a_relay_killed_on_its_way_publishes_nothing_twice_and_loses_nothing(processes: Processes, name: str) -> None:
    staged = stage(*"abc")
    relay = processes.django(RELAY_AND_STOP, name, env=environment(), jobs=split())
    relay.wait_for_output(f"stopped after {name}")
    assert labels() == (list("abc") if name == "mark_claimed" else [])
    relay.kill()
    assert relay.wait() == -signal.SIGKILL

    lapse()
    relay_all()
    assert outcomes() == dict.fromkeys("abc", "published")
    assert sorted(jobs()) == staged
    assert labels() == list("abc")


@pytest.mark.parametrize("state", ["ready", "running", "done", "key taken since"])
def test_what_was_published_and_not_marked_is_published_once_in_effect(state: str) -> None:
    (staged,) = stage("k", handle=again)

    def lose(execute: Any, sql: str, *rest: Any) -> Any:
        if sql == statement(connection.vendor, "mark_claimed"):
            raise OperationalError("gone")
        return execute(sql, *rest)

    with connection.execute_wrapper(lose), pytest.raises(OperationalError):
        relay_once()
    assert list(jobs()) == [staged]
    if state != "ready":
        (run,) = get_driver().claim(worker="w", limit=1, lease=timedelta(minutes=5), queues=QueueSelection())
    if state in ("done", "key taken since"):
        assert get_driver().ack([Ack(run.claim)]) == [True]
    if state == "key taken since":
        again.enqueue(label="k")
        get_driver().claim(worker="w", limit=1, lease=timedelta(minutes=5), queues=QueueSelection())
    before = Job.objects.count()

    assert relay_once() == 1
    entry = OutboxEntry.objects.get()
    assert (entry.outcome, entry.job_id, entry.error) == ("published", staged, "")
    assert Job.objects.count() == before
    assert not Job.objects.filter(rerun__isnull=False).exists()


def test_a_claim_holds_back_the_other_relays_until_it_lapses() -> None:
    stage(*"abc")
    first = claim("one", limit=2)
    assert len(first) == 2
    assert claim("two") == []
    assert claim("two", limit=1) == []
    lapse()
    second = claim("two")
    assert [one.id for one in second][:2] == [one.id for one in first]
    assert len({one.token for one in first + second}) == 5


def test_a_relay_that_comes_again_has_ended_its_earlier_claim() -> None:
    stage(*"ab")
    first = claim("one")
    second = claim("one")
    assert [one.id for one in second] == [one.id for one in first]
    assert leases.mark_published("default", marks(first)) == [False, False]
    assert leases.mark_published("default", marks(second)) == [True, True]


@pytest.mark.parametrize("taken_over", [True, False])
def test_a_relay_that_slept_past_its_lease_changes_nothing(taken_over: bool) -> None:
    stage(*"ab")
    slept = claim("one")
    lapse()
    owner = claim("two") if taken_over else []
    before = list(OutboxEntry.objects.order_by("id").values())

    assert leases.mark_published("default", marks(slept)) == [False, False]
    assert leases.release("default", slept) == [False, False]
    assert list(OutboxEntry.objects.order_by("id").values()) == before
    assert leases.mark_published("default", marks(owner)) == [True] * len(owner)


def test_marks_and_releases_answer_row_by_row() -> None:
    stage(*"abc")
    mine = claim("one")
    stale = [Claim(mine[0].id, mine[1].token), *mine[1:]]
    assert leases.mark_published("default", marks(stale[:2])) == [False, True]
    assert leases.release("default", [*stale[:2], mine[2]]) == [False, False, True]
    assert outcomes() == {"a": None, "b": "published", "c": None}
    assert OutboxEntry.objects.get(id=mine[2].id).claim_token is None


def test_a_call_without_a_token_is_refused() -> None:
    stage("a")
    (mine,) = claim("one")
    bare = Claim(mine.id, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no token"):
        leases.release("default", [bare])
    with pytest.raises(ValueError, match="has no token"):
        leases.mark_published("default", marks([bare]))
    assert outcomes() == {"a": None}


def test_a_blip_costs_one_poll_and_not_a_lease() -> None:
    stage(*"ab")

    def fail(execute: Any, sql: str, *rest: Any) -> Any:
        if sql == statement(connection.vendor, "enqueue"):
            raise OperationalError("gone")
        return execute(sql, *rest)

    for _ in range(2 * UNCLEAR_TRIES):
        with connections["second"].execute_wrapper(fail), pytest.raises(OperationalError):
            relay_once()
        assert set(OutboxEntry.objects.values_list("claim_token", "claimed_at", "outcome", "attempts")) == {
            (None, None, None, 0)
        }
    assert len(claim("another")) == 2
    lapse()
    assert relay_once() == 2


def test_a_row_that_the_queue_refuses_is_set_aside_and_can_be_retried() -> None:
    staged = stage("a", "bad", "b")
    with refusing("second"):
        assert relay_once() == 3
    assert outcomes() == {"a": "published", "bad": "set_aside", "b": "published"}
    aside = OutboxEntry.objects.get(outcome="set_aside")
    assert (aside.attempts, aside.claim_token, aside.job_id) == (1, None, None)
    assert "it is bad" in aside.error

    assert retry_set_aside([staged[1]]) == [RetryVerdict.RETRIED]
    assert relay_once() == 1
    assert sorted(labels()) == ["a", "b", "bad"]


class Nap:
    """Lets the relay that claims first fall asleep right after its claim, until it is woken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asleep, self.woken = threading.Event(), threading.Event()
        self._claim = leases.claim
        monkeypatch.setattr(leases, "claim", self._claim_and_sleep)

    def _claim_and_sleep(self, *arguments: Any, **options: Any) -> Any:
        claimed = self._claim(*arguments, **options)
        if not self.asleep.is_set():
            self.asleep.set()
            assert self.woken.wait(TIMEOUT)
        return claimed


@pytest.mark.parametrize("name", ["claim", "enqueue"])
def test_two_relays_at_once_publish_each_row_once_and_in_order(
    background: Background, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stage(*"abcde")
    nap, pause = Nap(monkeypatch), Pause("enqueue", "second")
    (nap.woken if name == "enqueue" else pause._go_on).set()

    def relay() -> int:
        with pause:
            return relay_once()

    with override_settings(ULTIMAT3_JOBS=split(BATCH=2)):
        first = background(relay)
        assert nap.asleep.wait(TIMEOUT)
        if name == "enqueue":
            pause.wait()
        assert relay_all() == 0
        assert outcomes() == dict.fromkeys("abcde")
        nap.woken.set()
        pause.go_on()
        assert first.result(TIMEOUT) == 2
        assert relay_all() == 3
    assert labels() == moved_in_order() == list("abcde")


def test_a_relay_that_lost_its_claim_on_the_way_does_no_harm(
    background: Background, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes after another has taken over and published one row: that one is not taken back, the rest is not lost."""
    staged = stage(*"abc")
    nap = Nap(monkeypatch)
    slept = background(relay_once)
    assert nap.asleep.wait(TIMEOUT)
    lapse()
    with override_settings(ULTIMAT3_JOBS=split(BATCH=1)):
        assert relay_once() == 1
    before = list(OutboxEntry.objects.filter(outcome="published").values())
    nap.woken.set()

    assert slept.result(TIMEOUT) == 0
    assert "jobs.relay.lease-lost" in caplog.text
    assert list(OutboxEntry.objects.filter(outcome="published").values()) == before
    assert relay_all() == 2
    assert sorted(jobs()) == staged
    assert set(outcomes().values()) == {"published"}


def test_relays_killed_again_and_again_publish_everything_once_and_in_order(processes: Processes) -> None:
    given = [f"{number:03}" for number in range(60)]
    for label in given:
        stage(label)
    setting = split(BATCH=2, CLAIM_LEASE="200ms")

    def moved(at_least: int) -> bool:
        return OutboxEntry.objects.exclude(outcome=None).count() >= at_least

    for at_least in (5, 20):
        relay = processes.manage("jobs_relay", jobs=setting, env=environment())
        wait_for(lambda enough=at_least: moved(enough), "the relay has published some rows")  # type: ignore[misc]
        relay.kill()
        relay.wait()
    last = [processes.manage("jobs_relay", jobs=setting, env=environment()) for _ in range(2)]
    wait_for(lambda: moved(60), "the relays have published the rest")
    for relay in last:
        relay.wait_for_output("jobs.relay.started")
        relay.kill(signal.SIGTERM)
        assert relay.wait() == 0

    assert labels() == given
    assert moved_in_order() == given
    assert set(outcomes().values()) == {"published"}


@pytest.mark.postgresql_only(reason="on SQLite whoever has the write lock has it until its process ends")
def test_a_relay_that_falls_silent_while_it_publishes_lets_go_of_its_keys(background: Background) -> None:
    stage("a")
    pause = Pause("enqueue", "second")

    def relay() -> int:
        with pause:
            return relay_once()

    with override_settings(ULTIMAT3_JOBS=split(CLAIM_LEASE="100ms")):
        silent = background(relay)
        pause.wait()
        wait_for(relay_once, "another relay has taken over")
        pause.go_on()
        assert silent.exception(TIMEOUT) is not None
    assert labels() == ["a"]
    assert outcomes() == {"a": "published"}
