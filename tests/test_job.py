"""The handle that `@job` returns, and what a declaration must not leave out."""

from __future__ import annotations

import json
import pickle
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from tests.declaring import error_of, refused, refused_inside, written
from ultimat3_jobs import NO_TENANT, Job, JobCall, JobsError, Retry, Run, job, registry
from ultimat3_jobs.errors import NotCallable
from ultimat3_jobs.models import Job as JobRow

pytestmark = pytest.mark.usefixtures("isolated_registry")


def plain(run: Run | None, n: int, m: int = 2) -> int:
    """Add two numbers.

    And say nothing else.
    """
    return n + m


def declare(**options: Any) -> Job[..., int]:
    return job(**{"name": "tests.plain", "idempotency_key": "key:{n}", "tenant": NO_TENANT} | options)(plain)


def test_a_key_must_be_declared() -> None:
    error = error_of("X_IDEMPOTENCY_REQUIRED", lambda: job(name="tests.plain", tenant=NO_TENANT)(plain))

    assert error.cause == "the job plain is declared without an idempotency_key"
    assert error.fix == '@job(idempotency_key="plain:{n}", tenant=...)'


def test_a_tenant_must_be_declared() -> None:
    error = error_of("X_JOB_TENANT_REQUIRED", lambda: job(name="tests.plain", idempotency_key="k")(plain))

    assert error.cause == "the job plain is declared without a tenant"
    assert error.fix == ('@job(idempotency_key=..., tenant="n")  # or tenant=NO_TENANT for work that belongs to none')


def test_a_job_without_input_is_told_what_it_can_declare() -> None:
    def nightly(run: Run) -> None: ...

    without_key = error_of("X_IDEMPOTENCY_REQUIRED", lambda: job(name="tests.nightly")(nightly))
    without_tenant = error_of("X_JOB_TENANT_REQUIRED", lambda: job(name="t.n", idempotency_key="k")(nightly))

    assert without_key.fix == '@job(idempotency_key="nightly", tenant=...)'
    assert without_tenant.fix == "@job(idempotency_key=..., tenant=NO_TENANT)  # for work that belongs to none"


def test_a_bare_decorator_is_told_of_the_key() -> None:
    assert error_of("X_IDEMPOTENCY_REQUIRED", lambda: job(plain)).cause.startswith("the job plain is declared without")


def test_a_refused_declaration_declares_nothing() -> None:
    with pytest.raises(JobsError):
        declare(priority=1000)

    assert registry.find("tests.plain") is None


@pytest.mark.usefixtures("outside")
def test_calling_the_handle_is_refused_and_the_function_stays_reachable() -> None:
    handle = declare()

    for refusal in (refused, refused_inside):
        error = refusal("X_JOB_NOT_CALLABLE", lambda: handle(None, 1))
        assert error.cause == "the job tests.plain was called like a function"
        assert error.fix == "plain.enqueue(...) queues it; plain.func(run, ...) is the plain function"
        assert isinstance(error, TypeError)
    assert handle.func(None, 1) == 3  # type: ignore[arg-type]
    assert handle.func is plain


def test_the_handle_looks_like_its_function() -> None:
    handle = declare()

    assert (handle.__name__, handle.__module__, handle.__doc__) == ("plain", __name__, plain.__doc__)  # type: ignore[attr-defined]
    assert repr(handle) == "<Job tests.plain>"
    assert handle.name == "tests.plain"


@pytest.mark.usefixtures("outside")
def test_a_call_is_a_checked_value_that_is_enqueued_later() -> None:
    call = declare().using(priority=5).on_behalf_of("import").call(7)
    assert isinstance(call, JobCall)
    assert written() == (0, 0)

    result = call.enqueue()

    row = JobRow.objects.get()
    assert (row.id, row.run_id, row.input, row.priority) == (result.id, result.run_id, {"n": 7, "m": 2}, 5)
    assert (row.idempotency_key, row.enqueued_by) == ("key:7", "import")
    assert (result.deduped, result.staged) == (False, False)


@pytest.mark.usefixtures("outside")
def test_a_call_that_is_enqueued_twice_joins_or_is_a_row_of_its_own() -> None:
    call = declare().call(7)

    first, second = call.enqueue(), call.enqueue()
    assert (second.id, second.deduped) == (first.id, True)
    JobRow.objects.update(state="done")
    third = call.enqueue()

    assert third.id != first.id
    assert third.deduped is False
    with transaction.atomic():
        assert len({call.enqueue().id, call.enqueue().id}) == 2


@pytest.mark.usefixtures("outside")
def test_a_call_carries_what_its_handle_was_told_of_conflicts() -> None:
    call = declare().using(on_conflict="error").call(7)
    call.enqueue()

    refused("X_JOB_DUPLICATE", call.enqueue)


def test_a_description_is_plain_json_without_key_and_input() -> None:
    handle = declare(
        idempotency_key="secret-key:{n}",
        queue="slow",
        priority=5,
        dedupe_for="36h",
        while_running="again",
        on_key_reuse="warn",
        aliases=["tests.z", "tests.a"],
        retry=Retry(attempts=5, backoff="fixed", terminal=(ValueError, UnicodeError)),
    )
    handle.call(n=987654321)

    described = handle.describe()

    assert json.loads(json.dumps(described)) == described
    assert "secret-key" not in json.dumps(described)
    assert "987654321" not in json.dumps(described)
    assert described == {
        "name": "tests.plain",
        "aliases": ["tests.a", "tests.z"],
        "function": "tests.test_job.plain",
        "is_async": False,
        "atomic": False,
        "description": "Add two numbers.",
        "queue": "slow",
        "priority": 5,
        "tenant": False,
        "input": {
            "$ref": "#/$defs/Input",
            "$defs": {
                "Input": {
                    "title": "Input",
                    "type": "object",
                    "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}},
                    "required": ["n"],
                    "additionalProperties": False,
                }
            },
        },
        "retry": {
            "attempts": 5,
            "backoff": "fixed",
            "delay": "1s",
            "max_delay": "1h",
            "jitter": True,
            "dead_letter": True,
            "terminal": ["builtins.UnicodeError", "builtins.ValueError"],
        },
        "dedupe_for": "1d12h",
        "while_running": "again",
        "on_key_reuse": "warn",
        "database": None,
        "timeout": None,
        "step_timeout": None,
        "event_poll": "30s",
        "backfill": None,
    }


def test_a_description_has_the_limits_as_lengths_of_time() -> None:
    described = declare(timeout="90s", step_timeout=15, event_poll="1m").describe()

    assert (described["timeout"], described["step_timeout"], described["event_poll"]) == ("1m30s", "15s", "1m")


def test_a_description_of_a_tenanted_job_says_so() -> None:
    assert declare(tenant="n").describe()["tenant"] is True
    assert declare(tenant=lambda n: n).describe()["tenant"] is True


def test_errors_survive_pickling_with_code_cause_and_fix() -> None:
    error = error_of("X_JOB_INPUT_INVALID", lambda: declare().call(n="x"))

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), copy.code, copy.cause, copy.fix) == (type(error), error.code, error.cause, error.fix)
    not_callable = pickle.loads(pickle.dumps(NotCallable("cause", fix="fix")))
    assert str(not_callable) == "X_JOB_NOT_CALLABLE: cause\n  fix: fix\n  docs: docs/errors.md#x_job_not_callable"


def test_a_stored_row_is_complete_without_the_code_that_declared_it() -> None:
    request = declare(tenant=lambda n: UUID(int=n), dedupe_for=60, while_running="again").call(1).request

    assert request.id.version == 7
    assert request.tenant_id == str(UUID(int=1))
    assert (request.name, request.queue, request.max_attempts, request.dedupe_for) == (
        "tests.plain",
        "default",
        3,
        60.0,
    )
    assert (request.while_running, request.on_key_reuse) == ("again", "error")
    assert len(request.fingerprint) == 64
