"""`drain()` runs atomic jobs: their writes and their ack are one, inside the test's own transaction."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from tests.app.models import Effect
from tests.working import declare, row
from ultimat3_jobs import Retry, Run
from ultimat3_jobs.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("isolated_registry")]


def test_an_atomic_job_is_done_with_what_it_wrote() -> None:
    def body(run: Run, n: int) -> str:
        with transaction.atomic():
            Effect.objects.create(label="written")
        return "worked"

    queued = declare(body, atomic=True).enqueue(1)
    report = drain()

    assert [job.outcome for job in report.jobs] == ["done"]
    assert (row(queued).state, row(queued).result, Effect.objects.count()) == ("done", "worked", 1)
    assert connection.in_atomic_block


def test_an_atomic_job_that_fails_leaves_nothing_and_the_test_goes_on() -> None:
    def body(run: Run, n: int) -> None:
        Effect.objects.create(label="written")
        raise ValueError("no")

    queued = declare(body, atomic=True, retry=Retry(attempts=1)).enqueue(1)
    with pytest.raises(ValueError, match="no"):
        drain()

    assert (row(queued).state, Effect.objects.count()) == ("dead", 0)
