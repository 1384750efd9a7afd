"""The surroundings of an attempt: its tenant and a context of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

import pytest
from django.utils import translation

from tests.working import history, row, run_due
from ultimat3_jobs import NO_TENANT, Retry, Run, current_tenant, job
from ultimat3_jobs.worker.attempt import in_surroundings

seen: list[Any] = []
leftover: ContextVar[str] = ContextVar("leftover", default="nothing")


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@contextmanager
def scoping(tenant: str) -> Iterator[None]:
    """A project's own scoping."""
    seen.append(f"enter {tenant}")
    try:
        yield
    finally:
        seen.append(f"leave {tenant}")


class Swallowing(AbstractContextManager[None]):
    """A scoping that keeps exceptions to itself."""

    def __init__(self, tenant: str) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        return True


@contextmanager
def refusing(tenant: str) -> Iterator[None]:
    """A scoping that cannot be entered."""
    raise LookupError(f"no schema for {tenant}")
    yield


def test_the_tenant_is_installed_for_the_length_of_the_body() -> None:
    assert in_surroundings("acme", current_tenant) == "acme"
    assert in_surroundings(None, current_tenant) is None
    assert current_tenant() is None


def test_there_is_no_tenant_left_by_whatever_ran_before() -> None:
    def within_another_run() -> str | None:
        return in_surroundings(None, current_tenant)

    assert in_surroundings("acme", within_another_run) is None


def test_nothing_that_a_body_sets_is_seen_by_the_next() -> None:
    def body() -> tuple[str, str | None]:
        before = (leftover.get(), translation.get_language())
        leftover.set("something")
        translation.activate("de")
        return before

    assert in_surroundings("acme", body) == ("nothing", "en-us")
    assert in_surroundings("acme", body) == ("nothing", "en-us")


def test_the_projects_scoping_is_entered_and_left(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"TENANT_CONTEXT": f"{__name__}.scoping"}

    in_surroundings("acme", lambda: seen.append(f"body of {current_tenant()}"))

    assert seen == ["enter acme", "body of acme", "leave acme"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_the_projects_scoping_is_left_where_the_body_raises(settings: Any, error: BaseException) -> None:
    settings.ULTIMAT3_JOBS = {"TENANT_CONTEXT": f"{__name__}.scoping"}

    def body() -> None:
        raise error

    with pytest.raises(type(error)):
        in_surroundings("acme", body)
    assert seen == ["enter acme", "leave acme"]


def test_a_run_without_a_tenant_does_not_enter_the_projects_scoping(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"TENANT_CONTEXT": f"{__name__}.scoping"}

    assert in_surroundings(None, lambda: "ran") == "ran"
    assert seen == []


def test_a_scoping_that_keeps_an_exception_to_itself_does_not_make_the_work_succeed(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"TENANT_CONTEXT": f"{__name__}.Swallowing"}

    def body() -> None:
        raise LookupError("the work failed")

    with pytest.raises(LookupError, match="the work failed"):
        in_surroundings("acme", body)
    assert in_surroundings("acme", lambda: "done") == "done"


@pytest.mark.usefixtures("queue")
def test_runs_of_two_tenants_and_of_none_on_one_thread_each_see_their_own(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"TENANT_CONTEXT": f"{__name__}.scoping"}

    @job(name="t.owned", idempotency_key="{n}", tenant="org", retry=Retry(attempts=1))
    def owned(run: Run, org: str, n: int) -> None:
        seen.append((run.tenant, current_tenant(), leftover.get()))
        leftover.set(org)
        if n == 2:
            raise ValueError("one of them fails")

    @job(name="t.shared", idempotency_key="{n}", tenant=NO_TENANT)
    def shared(run: Run, n: int) -> None:
        seen.append((run.tenant, current_tenant(), leftover.get()))

    owned.enqueue("acme", 1)
    shared.enqueue(1)
    owned.enqueue("globex", 2)
    shared.enqueue(2)
    owned.enqueue("none", 3)
    run_due(concurrency=1)

    assert seen == [
        "enter acme",
        ("acme", "acme", "nothing"),
        "leave acme",
        (None, None, "nothing"),
        "enter globex",
        ("globex", "globex", "nothing"),
        "leave globex",
        (None, None, "nothing"),
        "enter none",
        ("none", "none", "nothing"),
        "leave none",
    ]


@pytest.mark.usefixtures("queue")
def test_a_scoping_that_cannot_be_entered_is_a_failed_attempt(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"TENANT_CONTEXT": f"{__name__}.refusing"}

    @job(name="t.owned", idempotency_key="key", tenant="org", retry=Retry(attempts=2, delay=0))
    def owned(run: Run, org: str) -> None:
        seen.append("the body ran")

    queued = owned.enqueue("acme")
    run_due(concurrency=1)

    assert row(queued).state == "dead"
    assert "no schema for acme" in row(queued).last_error
    assert len(history(queued)) == 2
    assert seen == []
