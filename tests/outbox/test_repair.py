"""Rows that were set aside and are given back to the relay."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from tests.drivers.harness import IN_THE_ORDER_OF_THE_TABLE, ROW_BY_ROW
from tests.locks import waiting_for_this_session
from tests.outbox.conftest import Background
from tests.outbox.support import stage
from tests.processes import TIMEOUT, wait_for
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.repair import retry_set_aside
from ultimat3_jobs.records import RetryVerdict

pytestmark = pytest.mark.usefixtures("outbox")


@pytest.mark.postgresql_only(reason="SQLite locks no rows: there is one writer at a time")
def test_retries_lock_in_one_order_whatever_the_order_of_the_batch(background: Background) -> None:
    first, middle, last = sorted(stage(*"abc"))
    for one in (last, middle, first):  # the table has them in this order then
        OutboxEntry.objects.filter(id=one).update(outcome=OutboxEntry.Outcome.SET_ASIDE)
    with connection.cursor() as cursor:
        # So many that the planner reads the rows of a batch one by one.
        cursor.execute(
            "INSERT INTO x_outbox (id, kind, name, run_at, staged_at)"
            " SELECT gen_random_uuid(), 'job', 'x', now(), now() FROM generate_series(1, 10000)"
        )
        cursor.execute("ANALYZE x_outbox")

    def retry() -> list[RetryVerdict]:
        # Rows are then met in the order of the batch or of the table, unless the statement says otherwise.
        with connection.cursor() as cursor:
            cursor.execute(ROW_BY_ROW + IN_THE_ORDER_OF_THE_TABLE)
        return retry_set_aside([last, middle, first])

    with transaction.atomic():
        OutboxEntry.objects.select_for_update().get(id=middle)
        answer = background(retry)
        wait_for(waiting_for_this_session, "the retry waits for the row in the middle")
        OutboxEntry.objects.select_for_update(nowait=True).get(id=last)  # raises where it is locked

    assert answer.result(TIMEOUT) == [RetryVerdict.RETRIED] * 3
