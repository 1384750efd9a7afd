"""A pytest plugin for tests that declare jobs and enqueue them: jobs made on the spot, what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from tests.app.models import Organization
from tests.emptying import empty_tables
from ultimat3_jobs import NO_TENANT, Job, job, registry
from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry


@pytest.fixture
def isolated_registry() -> Iterator[None]:
    """Forget the jobs that a test declares."""
    with registry.isolated():
        yield


@pytest.fixture
def outside(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database outside any transaction, left empty: cheaper than a flush of every table."""
    with django_db_blocker.unblock():
        empty_tables()
        yield
        empty_tables()


def body_taking(**hints: Any) -> Callable[..., None]:
    """Return a body whose parameters have these hints and no defaults."""
    names = ", ".join(hints)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(f"def body(run, {names}): ...", namespace)
    body: Callable[..., None] = namespace["body"]
    body.__annotations__ = dict(hints)
    return body


def job_taking(*, name: str = "tests.body", aliases: Sequence[str] = (), **hints: Any) -> Job[..., None]:
    """Declare a job of one fixed key whose parameters have these hints."""
    return job(name=name, aliases=aliases, idempotency_key="key", tenant=NO_TENANT)(body_taking(**hints))


def written() -> tuple[int, int]:
    """Return the number of queued and of staged rows."""
    return JobRow.objects.count(), OutboxEntry.objects.count()


def error_of(code: str, attempt: Callable[[], object]) -> JobsError:
    """Return the error of the package that `attempt` raises: of this code and complete."""
    with pytest.raises(JobsError) as raised:
        attempt()
    error = raised.value
    assert error.code == code, str(error)
    assert error.cause
    assert error.fix
    assert "\n" not in error.fix
    assert str(error) == f"{code}: {error.cause}\n  fix: {error.fix}\n  docs: {error.docs}"
    return error


def refused(code: str, attempt: Callable[[], object]) -> JobsError:
    """Expect a refusal outside a transaction that writes nothing; return the error."""
    before = written()
    error = error_of(code, attempt)
    assert written() == before
    return error


def refused_inside(code: str, attempt: Callable[[], object]) -> JobsError:
    """Expect a refusal that writes nothing in an open transaction, which then goes on and commits; return the error."""
    before, there = written(), Organization.objects.count()
    with transaction.atomic():
        Organization.objects.create(name=f"{there}: before the refusal")
        error = error_of(code, attempt)
        assert Organization.objects.count() == there + 1
        Organization.objects.create(name=f"{there}: after the refusal")
    assert Organization.objects.count() == there + 2
    assert written() == before
    return error
