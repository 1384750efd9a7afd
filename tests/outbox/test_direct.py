"""The mode "direct": what an enqueue joins in the caller's transaction does not begin before the commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext, override_settings

from tests.app.models import Organization
from tests.outbox.conftest import Background
from tests.outbox.support import Pause, again, note
from tests.processes import TIMEOUT
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import Ack, ClaimedJob, QueueSelection

pytestmark = pytest.mark.usefixtures("outbox", "direct")


@pytest.fixture
def direct() -> Iterator[None]:
    """Queue rows in the caller's own transaction."""
    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"MODE": "direct"}}):
        yield


def claim() -> list[ClaimedJob]:
    """Claim what is due."""
    return get_driver().claim(worker="w", limit=9, lease=timedelta(minutes=5), queues=QueueSelection())


@pytest.mark.postgresql_only(reason="on SQLite nothing is claimed while a caller's transaction is open")
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("handle", [again, note], ids=["again", "join"])
def test_a_joined_job_is_held_back_until_the_commit(background: Background, commits: bool, handle: object) -> None:
    queued = handle.enqueue(label="k")  # type: ignore[attr-defined]
    joined, looked = threading.Event(), threading.Event()

    def join() -> None:
        with transaction.atomic():
            Organization.objects.create(name="changed")
            assert handle.enqueue(label="k").deduped  # type: ignore[attr-defined]
            joined.set()
            assert looked.wait(TIMEOUT)
            transaction.set_rollback(not commits)

    joining = background(join)
    assert joined.wait(TIMEOUT)
    try:
        assert claim() == []
        # Another caller joins it beside the first, and waits for nobody.
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '10s'")
            assert handle.enqueue(label="k").deduped  # type: ignore[attr-defined]
    finally:
        looked.set()
    joining.result(TIMEOUT)

    assert [one.claim.id for one in claim()] == [queued.id]
    assert Organization.objects.exists() == commits


@pytest.mark.postgresql_only(reason="on SQLite nothing is claimed while a caller's transaction is open")
def test_a_job_that_begins_while_it_is_joined_is_asked_again(background: Background) -> None:
    first = again.enqueue(label="k")
    pause = Pause("holders")

    def join() -> None:
        with pause, transaction.atomic():
            again.enqueue(label="k")

    joining = background(join)
    pause.wait()
    (run,) = claim()
    pause.go_on()
    joining.result(TIMEOUT)

    assert get_driver().ack([Ack(run.claim)]) == [True]
    assert Job.objects.exclude(id=first.id).get().state == "ready"


def test_outside_a_transaction_nothing_is_held_back() -> None:
    again.enqueue(label="k")
    with CaptureQueriesContext(connection) as captured:
        again.enqueue(label="k")
    assert not [query for query in captured if "j.attempt = 0" in query["sql"]]
    assert len(claim()) == 1
