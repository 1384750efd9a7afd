"""Assertions on what was enqueued: what they match, and what they say where they fail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.declaring import error_of
from tests.working import declare
from ultimat3_jobs import Job, Run, job, registry
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.testing import assert_enqueued, assert_not_enqueued, drain, enqueued

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("isolated_registry")]

ORG = uuid4()


@dataclass(frozen=True)
class Line:
    """A part of an input."""

    price: float
    day: date


@pytest.fixture
def onboard() -> Job[..., Any]:
    """A job with a typed input."""

    @job(name="t.onboard", idempotency_key="{org_id}", tenant="org_id", aliases=["t.welcome"])
    def onboard(run: Run, org_id: UUID, plan: str = "free", lines: tuple[Line, ...] = (), count: int = 0) -> None: ...

    return onboard


def failure(attempt: Any) -> str:
    """Return what an assertion says where it fails."""
    with pytest.raises(AssertionError) as raised:
        attempt()
    return str(raised.value)


def test_what_was_enqueued_is_found_by_any_of_its_arguments(onboard: Job[..., Any]) -> None:
    line = Line(1.0, date(2024, 2, 29))
    onboard.using(queue="slow", priority=5).enqueue(ORG, plan="pro", lines=(line,))

    (found,) = assert_enqueued(onboard)
    assert found.input == {"org_id": ORG, "plan": "pro", "lines": (line,), "count": 0}
    assert (found.name, found.state, found.queue, found.priority) == ("t.onboard", "staged", "slow", 5)
    assert (found.tenant, found.idempotency_key, found.enqueued_by) == (str(ORG), str(ORG), "")
    assert found.run_at.utcoffset() is not None
    for arguments in ({"org_id": ORG}, {"plan": "pro"}, {"org_id": ORG, "lines": [line]}, {"org_id": str(ORG)}):
        assert assert_enqueued(onboard, arguments) == assert_enqueued(onboard, **arguments) == [found]
    assert_enqueued(onboard, {"count": 0}, count=1)


def test_what_was_not_is_not(onboard: Job[..., Any]) -> None:
    assert_not_enqueued(onboard)
    onboard.enqueue(ORG, plan="pro")

    assert_not_enqueued(onboard, plan="free")
    assert_not_enqueued(onboard, org_id=uuid4())
    assert_not_enqueued(onboard, {"count": 1}, plan="pro")
    assert_not_enqueued(declare(lambda run, n: None))
    assert "t.onboard(plan='pro', ...) was enqueued 1 times; enqueued were:\n  t.onboard(org_id=UUID(" in failure(
        lambda: assert_not_enqueued(onboard, plan="pro")
    )


def test_a_failure_lists_what_was_enqueued_instead(onboard: Job[..., Any]) -> None:
    assert failure(lambda: assert_enqueued(onboard)) == (
        "t.onboard(...) was to be enqueued at least once, not 0 times; nothing was enqueued"
    )
    other = declare(lambda run, n: None)
    other.enqueue_many([{"n": n} for n in range(25)])
    said = failure(lambda: assert_enqueued(onboard, plan="pro"))

    assert "t.onboard(plan='pro', ...) was to be enqueued at least once, not 0 times; enqueued were:" in said
    assert "\n  t.job(n=0)  staged, queue 'default'" in said
    assert said.endswith("\n  and 5 more")


def test_the_count_is_exact(onboard: Job[..., Any]) -> None:
    assert_enqueued(onboard, count=0)
    onboard.enqueue(ORG)
    onboard.enqueue(uuid4())

    assert len(assert_enqueued(onboard, count=2)) == 2
    assert "to be enqueued 1 times, not 2 times" in failure(lambda: assert_enqueued(onboard, count=1))
    assert "to be enqueued 0 times, not 2 times" in failure(lambda: assert_enqueued(onboard, count=0))


def test_what_has_run_was_enqueued_once(onboard: Job[..., Any]) -> None:
    onboard.enqueue(ORG)
    onboard.enqueue(ORG)
    assert_enqueued(onboard, count=2)
    drain()

    assert [one.state for one in assert_enqueued(onboard, org_id=ORG, count=1)] == ["done"]


def test_rows_under_an_alias_count(onboard: Job[..., Any]) -> None:
    with registry.isolated():
        declare(lambda run, n: None, name="t.old").enqueue(1)
    renamed = declare(lambda run, n: None, name="t.new", aliases=["t.old"])

    assert_enqueued(renamed, n=1)
    assert enqueued(onboard) == []


@pytest.mark.parametrize("assertion", [assert_enqueued, assert_not_enqueued])
def test_an_argument_that_can_never_match_is_refused(onboard: Job[..., Any], assertion: Any) -> None:
    """An assertion that something was not enqueued would otherwise hold for the wrong reason."""
    misspelt = error_of("X_JOB_INPUT_INVALID", lambda: assertion(onboard, org=ORG))
    assert "'org_id'" in misspelt.cause
    assert "`$.org_id`" in error_of("X_JOB_INPUT_INVALID", lambda: assertion(onboard, org_id=7)).cause
    assert "$.lines" in error_of("X_JOB_INPUT_INVALID", lambda: assertion(onboard, lines=[{"price": 1}])).cause
    assert "`$.plan`" in error_of("X_JOB_INPUT_INVALID", lambda: assertion(onboard, plan="\x00")).cause


def test_rows_that_cannot_be_read_are_shown_and_match_nothing(onboard: Job[..., Any]) -> None:
    with registry.isolated():
        declare(lambda run, n: None, name="t.gone").enqueue(1)
        declare(lambda run, n: None, name="t.other").enqueue(1)
    OutboxEntry.objects.filter(name="t.other").update(name="t.onboard")
    onboard.enqueue(ORG)

    assert_enqueued(onboard, count=1)
    drain(raise_errors=False)
    JobRow.objects.filter(state="done").update(input=None)
    assert [one.input for one in enqueued()] == [None, None, None]
    assert "t.gone(?)  suspended" in failure(lambda: assert_enqueued(onboard))
