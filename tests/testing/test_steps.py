"""Steps in a drain: inside the test's own transaction, with time moved forward."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import TestCase

from tests.app.models import Effect
from ultimat3_jobs import NO_TENANT, AsyncRun, Run, job, publish_event, registry
from ultimat3_jobs.models import Job, JobStep
from ultimat3_jobs.testing import drain


def leave(label: str) -> str:
    """Leave an effect, and say which."""
    Effect.objects.create(label=label, attempt=0, pid=0, detail="step")
    return label


class StepsTest(TestCase):
    """What a project's own tests do."""

    def setUp(self) -> None:
        isolated = registry.isolated()
        isolated.__enter__()
        self.addCleanup(isolated.__exit__, None, None, None)

    def test_plain_and_atomic_steps_and_a_sleep(self) -> None:
        @job(name="t.steps", idempotency_key="{n}", tenant=NO_TENANT)
        def body(run: Run, n: int) -> str:
            first = run.step("plain", leave, "a")
            run.sleep("3d")
            return str(first + run.step("atomic", leave, "b", atomic=True))

        queued = body.enqueue(n=1)
        assert drain().counts == {"suspended": 1}
        assert drain(ahead="2d").counts == {}
        assert drain(ahead="2d").counts == {"done": 1}
        assert Job.objects.get(pk=queued.id).result == "ab"
        assert Effect.objects.count() == 2

    def test_async_steps(self) -> None:
        @job(name="t.steps", idempotency_key="{n}", tenant=NO_TENANT)
        async def body(run: AsyncRun, n: int) -> None:
            await run.step("plain", leave, "a")
            await run.step("atomic", leave, "b", atomic=True)
            await run.sleep("nap", "1h")

        body.enqueue(n=1)
        assert drain(ahead="2h").counts == {"suspended": 1, "done": 1}
        assert Effect.objects.count() == 2

    def test_an_event_and_a_time_out(self) -> None:
        received: list[Any] = []

        @job(name="t.waits", idempotency_key="{n}", tenant=NO_TENANT)
        def body(run: Run, n: int) -> None:
            received.append(run.wait_for_event("paid", "paid", match={"n": n}, timeout="3d"))

        first, second = body.enqueue(n=1), body.enqueue(n=2)
        assert drain().counts == {"suspended": 2}
        publish_event("paid", {"by": "card"}, match={"n": 1})
        assert drain().counts == {"done": 1}
        assert received[0].payload == {"by": "card"}
        assert received[0].name == "paid"
        assert drain(ahead="2d").counts == {}
        assert drain(ahead="2d").counts == {"done": 1}
        assert received[1] is None
        assert set(JobStep.objects.values_list("run_id", "state")) == {
            (first.run_id, "done"), (second.run_id, "timed-out")
        }  # fmt: skip


@pytest.mark.django_db
def test_a_published_event_that_nobody_waits_for_yet_counts() -> None:
    with registry.isolated():

        @job(name="t.waits", idempotency_key="{n}", tenant=NO_TENANT)
        def body(run: Run, n: int) -> Any:
            run.sleep("1h")
            received = run.wait_for_event("paid", "paid", returns=list[int])
            return received and received.payload

        queued = body.enqueue(n=1)
        publish_event("paid", [1, 2])
        drain(ahead="2h")
        assert Job.objects.get(pk=queued.id).result == [1, 2]
