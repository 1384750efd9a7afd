"""What others do between two statements of one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.drivers.harness import DatabaseHarness
from ultimat3_jobs.drivers.database import enqueue as database_enqueue
from ultimat3_jobs.errors import DriverUnavailable
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Receipt
from ultimat3_jobs.sql import run
from ultimat3_jobs.testing.conformance.fences import ack, bury
from ultimat3_jobs.testing.conformance.harness import HOUR, MARGIN, request

Between = Callable[[str, Callable[[], object]], None]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Do something once, before an enqueue runs the named statement."""

    def arrange(statement: str, act: Callable[[], object]) -> None:
        acts = [act]

        def interrupted(alias: str, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            if name == statement and acts:
                acts.pop()()
            return run(alias, name, parameters)

        monkeypatch.setattr(database_enqueue, "run", interrupted)

    return arrange


@pytest.mark.parametrize("end", [ack, bury])
def test_a_run_that_ends_before_it_is_asked_again_is_followed_all_the_same(
    harness: DatabaseHarness, between: Between, end: Callable[..., object]
) -> None:
    running = harness.running("k")
    between("ask_again", lambda: end(harness, running))
    asked = request("k", while_running="again")

    assert harness.driver().enqueue([asked]) == [Receipt(asked.id, asked.id)]
    assert [job.claim.id for job in harness.claim()] == [asked.id]
    assert Job.objects.get(pk=running[0].id).rerun is None


def test_a_key_let_go_before_its_holder_is_looked_up_is_taken(harness: DatabaseHarness, between: Between) -> None:
    running = harness.running("k")
    between("holders", lambda: ack(harness, running))

    assert not harness.enqueue_one("k").joined
    assert harness.buckets() == {"ready": 1}


def test_a_key_taken_before_it_is_let_go_is_joined(harness: DatabaseHarness, between: Between) -> None:
    ack(harness, harness.running("k", dedupe_for=HOUR))
    harness.advance(HOUR + MARGIN)
    taken: list[Receipt] = []
    between("release_keys", lambda: taken.append(harness.enqueue_one("k")))
    late = harness.enqueue_one("k")

    assert late == Receipt(taken[0].id, taken[0].run_id, joined=True)
    assert harness.buckets() == {"ready": 1}


def test_a_batch_goes_on_where_one_key_changes_hands(harness: DatabaseHarness, between: Between) -> None:
    one, _, three = harness.running("one", "two", "three")
    between("holders", lambda: ack(harness, [one, three]))
    receipts = harness.enqueue("three", "two", "new", "one")

    assert [receipt.joined for receipt in receipts] == [False, True, False, False]


def test_a_key_whose_holder_is_never_seen_is_an_error_that_says_so(
    harness: DatabaseHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(alias: str, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return [] if name == "holders" else run(alias, name, parameters)

    harness.enqueue("k")
    monkeypatch.setattr(database_enqueue, "run", blind)
    with pytest.raises(DriverUnavailable) as caught:
        harness.enqueue("k")

    assert caught.value.code == "X_DRIVER_UNAVAILABLE"
    assert "'k' of shop.ship" in caught.value.cause
    assert "READ COMMITTED" in caught.value.fix
