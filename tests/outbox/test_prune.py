"""Pruning the outbox: what is done with goes after its time, in batches; what waits for somebody stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from tests.outbox.support import outcomes, stage
from tests.processes import wait_for
from tests.working import working
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox import prune
from ultimat3_jobs.outbox.prune import Pruner
from ultimat3_jobs.outbox.relay import relay_all

pytestmark = pytest.mark.usefixtures("outbox")
DAYS = {"RETENTION": {"OUTBOX": "7d"}}


def let_pass(days: float, *labels: str) -> None:
    """Let time pass for rows: the database's clock cannot be moved, so they become older."""
    for entry in OutboxEntry.objects.all():
        if entry.input["label"] in labels:
            entry.staged_at -= timedelta(days=days)
            if entry.published_at:
                entry.published_at -= timedelta(days=days)
            entry.save()


def prune_all() -> int:
    """Prune to the end; return in how many steps."""
    pruner, steps = Pruner(), 1
    while pruner.step():
        steps += 1
    return steps


def test_what_was_published_or_joined_goes_after_its_time_and_the_rest_stays() -> None:
    stage("published", "joined", "aside", "young")
    relay_all()
    stage("waits")
    for outcome, label in (("deduped", "joined"), ("set_aside", "aside")):
        (entry,) = [one for one in OutboxEntry.objects.all() if one.input["label"] == label]
        OutboxEntry.objects.filter(id=entry.id).update(outcome=outcome)
    let_pass(8, "published", "joined", "aside", "waits")
    let_pass(6, "young")

    prune_all()
    assert outcomes() == {"aside": "set_aside", "young": "published", "waits": None}


def test_it_is_the_time_of_the_publication_that_counts() -> None:
    stage("late")
    let_pass(30, "late")
    relay_all()

    prune_all()
    assert outcomes() == {"late": "published"}


@override_settings(ULTIMAT3_JOBS={"RETENTION": {"OUTBOX": None}})
def test_without_a_retention_all_is_kept() -> None:
    stage("a")
    relay_all()
    let_pass(5_000, "a")

    assert prune_all() == 1
    assert outcomes() == {"a": "published"}


def test_it_goes_in_batches_over_what_stays_and_stops_at_what_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "BATCH", 3)
    old = [f"old {number}" for number in range(10)]
    stage(*old)
    relay_all()
    first = OutboxEntry.objects.earliest("id")
    OutboxEntry.objects.filter(id__lte=OutboxEntry.objects.order_by("id")[4].id).update(outcome="set_aside")
    let_pass(8, *old)
    stage(*(f"young {number}" for number in range(9)))
    relay_all()

    with CaptureQueriesContext(connection) as captured:
        assert prune_all() == 4
    assert len(captured) <= 8
    assert len(OutboxEntry.objects.filter(outcome="set_aside")) == 5
    assert OutboxEntry.objects.filter(outcome="published").count() == 9
    assert OutboxEntry.objects.earliest("id") == first


def test_a_walk_rests_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [1_000.0]
    monkeypatch.setattr(prune, "monotonic", lambda: moment[0])
    stage("a", "b")
    relay_all()
    let_pass(8, "a")
    pruner = Pruner()
    assert not pruner.step()
    assert outcomes() == {"b": "published"}
    let_pass(8, "b")
    assert not pruner.step()
    assert outcomes() == {"b": "published"}
    moment[0] += prune.LONGEST_REST
    assert not pruner.step()
    assert outcomes() == {}


def test_a_worker_prunes(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"POLL": "20ms", **DAYS}
    stage("a")
    relay_all()
    let_pass(8, "a")
    with working(concurrency=1, relay=False):
        wait_for(lambda: outcomes() == {}, "the row is pruned")


def test_one_that_is_down_holds_up_no_other(two_outboxes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage("a")
    relay_all()
    let_pass(8, "a")
    run = prune.run

    def down(alias: str, *rest: Any) -> Any:
        if alias == "default":
            raise OSError
        return run(alias, *rest)

    (entry,) = OutboxEntry.objects.all()
    entry.save(using=two_outboxes, force_insert=True)
    monkeypatch.setattr(prune, "run", down)
    assert prune_all() == 1
    assert OutboxEntry.objects.using("default").count() == 1
    assert OutboxEntry.objects.using(two_outboxes).count() == 0
