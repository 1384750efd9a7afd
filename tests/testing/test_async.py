"""Async bodies run inline too, on the test's own connection and in its transaction."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from tests.app.models import Effect
from ultimat3_jobs import NO_TENANT, job
from ultimat3_jobs.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("isolated_registry")]


def test_an_async_body_works_in_the_tests_transaction() -> None:
    threads: list[Any] = []

    @job(name="t.async", idempotency_key="{n}", tenant=NO_TENANT)
    async def body(run: Any, n: int) -> int:
        await Effect.objects.acreate(label=str(n))
        threads.append(await sync_to_async(threading.current_thread)())
        if n > 1:
            raise LookupError(f"no {n}")
        return n

    body.enqueue(1)
    assert drain().counts == {"done": 1}
    body.enqueue(2)
    with pytest.raises(LookupError, match="no 2"):
        drain()

    assert threads == [threading.current_thread()] * 2
    assert Effect.objects.count() == 2
    assert connection.in_atomic_block
