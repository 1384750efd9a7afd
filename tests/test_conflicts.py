"""An enqueue that meets its key held: it joins, is refused, warns, or asks for another run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from tests.declaring import error_of, refused, refused_inside, written
from ultimat3_jobs import NO_TENANT, EnqueueResult, Job, Run, job
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all
from ultimat3_jobs.records import Ack, Claim, Failure, Nack, QueueSelection
from ultimat3_jobs.states import LIVE, State, Stop

pytestmark = pytest.mark.usefixtures("isolated_registry", "outside")

FAILURE = Failure(error_class="ValueError", error_place="", cause="0" * 64, text="on purpose")


def declare(**options: Any) -> Job[..., None]:
    def count(run: Run, key: str, n: int = 0) -> None: ...

    return job(**{"name": "tests.count", "idempotency_key": "{key}", "tenant": NO_TENANT} | options)(count)


def claim() -> Claim:
    (claimed,) = get_driver().claim(worker="w", limit=1, lease=timedelta(minutes=1), queues=QueueSelection())
    return claimed.claim


def finish() -> None:
    assert get_driver().ack([Ack(claim())]) == [True]


def bury() -> None:
    assert get_driver().nack([Nack.bury(claim(), stop=Stop.EXHAUSTED, failure=FAILURE)]) == [True]


def in_transaction(attempt: Callable[[], EnqueueResult]) -> EnqueueResult:
    with transaction.atomic():
        return attempt()


def test_a_second_enqueue_joins_the_first() -> None:
    handle = declare()
    first = handle.enqueue("k")

    second = handle.using(priority=9, run_after="1h").enqueue("k")

    assert second == EnqueueResult(first.id, first.run_id, deduped=True, staged=False)
    assert JobRow.objects.get().priority == 0


@pytest.mark.parametrize("state", LIVE)
def test_every_live_row_holds_its_key(state: State) -> None:
    handle = declare()
    first = handle.enqueue("k")
    JobRow.objects.update(state=state.value)

    assert handle.enqueue("k").id == first.id
    refused("X_JOB_DUPLICATE", lambda: handle.using(on_conflict="error").enqueue("k"))


@pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.FAILED, State.CANCELLED])
def test_a_finished_row_does_not_block_the_next(state: State) -> None:
    handle = declare()
    first = handle.enqueue("k")
    JobRow.objects.update(state=state.value)

    second = handle.using(on_conflict="error").enqueue("k", n=5)

    assert second.id != first.id
    assert second.deduped is False


@pytest.mark.parametrize("mode", ["auto", "direct"])
def test_on_conflict_error_refuses_outside_and_inside(mode: str, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": mode}}
    handle = declare()
    first = handle.enqueue("k")
    strict = handle.using(on_conflict="error")

    for refusal in (refused, refused_inside):
        for attempt in (lambda: strict.enqueue("k"), lambda: strict.enqueue_many([{"key": "new"}, {"key": "k"}])):
            error = refusal("X_JOB_DUPLICATE", attempt)
            assert error.cause == f"the key 'k' of tests.count is held by job {first.id}"
            assert error.fix == 'enqueue without on_conflict="error" to join that job'
    assert strict.enqueue("other").deduped is False


@pytest.mark.parametrize("mode", ["auto", "direct"])
def test_the_same_key_with_another_input_is_refused_outside_and_inside(mode: str, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": mode}}
    handle = declare()
    first = handle.enqueue("k", n=1)

    for refusal in (refused, refused_inside):
        for attempt in (lambda: handle.enqueue("k", n=2), lambda: handle.enqueue_many([{"key": "x"}, {"key": "k"}])):
            error = refusal("X_JOB_KEY_REUSED", attempt)
            assert error.cause == f"the key 'k' of tests.count is held by job {first.id} with another input"
            assert error.fix.startswith("put what differs into idempotency_key, or declare on_key_reuse=")
    assert handle.enqueue("k", n=1).deduped


def test_the_same_input_written_otherwise_is_the_same_work() -> None:
    def order(run: Run, sizes: dict[str, int], scale: float = 1) -> None: ...

    handle = job(name="tests.order", idempotency_key="k", tenant=NO_TENANT)(order)
    first = handle.enqueue({"a": 1, "b": 2})

    for same in (
        {"sizes": {"b": 2, "a": 1}},
        {"scale": 1, "sizes": {"a": 1, "b": 2}},
        {"sizes": {"a": 1, "b": 2}, "scale": 1.0},
    ):
        assert handle.enqueue(**same).id == first.id


def test_a_reused_key_can_be_warned_of_and_joined(caplog: pytest.LogCaptureFixture) -> None:
    handle = declare(on_key_reuse="warn")
    first = handle.enqueue("k", n=111222333)

    with caplog.at_level(logging.WARNING, "ultimat3_jobs"):
        joined = handle.enqueue("k", n=444555666)
        staged = in_transaction(lambda: handle.enqueue("k", n=444555666))
        handle.enqueue("k", n=111222333)

    assert joined == EnqueueResult(first.id, first.run_id, deduped=True, staged=False)
    assert staged.staged
    assert JobRow.objects.get().input == {"key": "k", "n": 111222333}
    assert [(record.levelname, record.event, record.fields) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("WARNING", "jobs.key.reused", {"name": "tests.count", "job": first.id})
    ] * 2
    assert "444555666" not in caplog.text
    assert "111222333" not in caplog.text
    relay_all()
    assert OutboxEntry.objects.get().outcome == "deduped"


def test_a_warning_gives_way_to_an_error_that_was_asked_for() -> None:
    handle = declare(on_key_reuse="warn")
    handle.enqueue("k", n=1)

    for refusal in (refused, refused_inside):
        refusal("X_JOB_DUPLICATE", lambda: handle.using(on_conflict="error").enqueue("k", n=2))


def test_a_key_reused_inside_one_transaction_is_set_aside_by_the_relay() -> None:
    handle = declare()
    with transaction.atomic():
        first = handle.enqueue("k", n=1)
        second = handle.enqueue("k", n=2)
    relay_all()

    entry = OutboxEntry.objects.get(id=second.id)
    assert (entry.outcome, entry.job_id) == ("set_aside", first.id)
    assert entry.input == {"key": "k", "n": 2}
    assert entry.error.startswith("X_JOB_KEY_REUSED: ")
    assert JobRow.objects.get().id == first.id


class TestDedupeFor:
    """A done job goes on holding its key for a time that counts from the enqueue."""

    def test_a_done_job_holds_its_key(self) -> None:
        handle = declare(dedupe_for="24h")
        first = handle.enqueue("k")
        finish()

        assert handle.enqueue("k") == EnqueueResult(first.id, first.run_id, deduped=True, staged=False)
        refused("X_JOB_DUPLICATE", lambda: handle.using(on_conflict="error").enqueue("k"))
        refused("X_JOB_KEY_REUSED", lambda: handle.enqueue("k", n=1))
        row = JobRow.objects.get()
        assert row.key_until is not None
        assert row.key_until - row.created_at == timedelta(hours=24)

    def test_a_staged_one_counts_from_its_staging(self) -> None:
        handle = declare(dedupe_for="24h")
        in_transaction(lambda: handle.enqueue("k"))
        OutboxEntry.objects.update(staged_at=F("staged_at") - timedelta(hours=23))
        relay_all()

        entry, row = OutboxEntry.objects.get(), JobRow.objects.get()
        assert row.key_until == entry.staged_at + timedelta(hours=24)

    def test_once_the_time_has_passed_the_key_is_free(self) -> None:
        handle = declare(dedupe_for="24h")
        first = handle.enqueue("k")
        finish()
        JobRow.objects.update(key_until=F("created_at") - timedelta(seconds=1))

        second = handle.using(on_conflict="error").enqueue("k", n=1)

        assert (second.deduped, second.id != first.id) == (False, True)
        assert JobRow.objects.get(id=first.id).key_until is None

    def test_a_live_job_holds_its_key_however_old_it_is(self) -> None:
        handle = declare(dedupe_for="24h")
        first = handle.enqueue("k")
        JobRow.objects.update(key_until=F("created_at") - timedelta(days=9))

        assert handle.enqueue("k").id == first.id

    def test_a_dead_job_lets_go(self) -> None:
        handle = declare(dedupe_for="24h")
        first = handle.enqueue("k")
        bury()

        assert handle.enqueue("k", n=1).id != first.id


class TestWhileRunning:
    """A job that has begun may have read the old data."""

    def test_by_default_an_enqueue_joins_it(self) -> None:
        handle = declare()
        first = handle.enqueue("k")
        running = claim()

        assert handle.enqueue("k").id == first.id
        get_driver().ack([Ack(running)])

        assert JobRow.objects.get().state == "done"

    @pytest.mark.parametrize("end", ["done", "dead"])
    def test_again_is_followed_by_a_new_run(self, end: str) -> None:
        handle = declare(while_running="again")
        first = handle.enqueue("k")
        running = claim()

        asked = handle.using(priority=7).enqueue("k")
        assert asked == EnqueueResult(first.id, first.run_id, deduped=True, staged=False)
        assert JobRow.objects.count() == 1
        if end == "done":
            get_driver().ack([Ack(running)])
        else:
            get_driver().nack([Nack.bury(running, stop=Stop.EXHAUSTED, failure=FAILURE)])

        old, new = JobRow.objects.order_by("id")
        assert (old.id, old.state) == (first.id, end)
        assert (new.state, new.priority, new.run_id) == ("ready", 7, new.id)

    def test_again_through_the_outbox(self) -> None:
        handle = declare(while_running="again")
        handle.enqueue("k")
        running = claim()
        in_transaction(lambda: handle.enqueue("k"))
        relay_all()
        get_driver().ack([Ack(running)])

        assert [row.state for row in JobRow.objects.order_by("id")] == ["done", "ready"]

    def test_a_job_that_has_not_begun_is_joined(self) -> None:
        handle = declare(while_running="again")
        handle.enqueue("k")
        handle.enqueue("k")
        finish()

        assert JobRow.objects.get().state == "done"

    def test_an_enqueue_that_wants_an_error_asks_for_nothing(self) -> None:
        handle = declare(while_running="again")
        handle.enqueue("k")
        running = claim()

        refused("X_JOB_DUPLICATE", lambda: handle.using(on_conflict="error").enqueue("k"))
        get_driver().ack([Ack(running)])

        assert JobRow.objects.get().state == "done"

    def test_another_input_is_still_another_work(self) -> None:
        handle = declare(while_running="again")
        handle.enqueue("k", n=1)
        running = claim()

        error_of("X_JOB_KEY_REUSED", lambda: handle.enqueue("k", n=2))
        get_driver().ack([Ack(running)])

        assert written() == (1, 0)
