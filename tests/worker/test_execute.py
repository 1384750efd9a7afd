"""One attempt: what a body returns or raises becomes an outcome, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID, uuid4

import msgspec
import pytest

from tests import raising
from ultimat3_jobs import NO_TENANT, Retry, Run, job
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.records import Claim, ClaimedJob
from ultimat3_jobs.states import Stop
from ultimat3_jobs.worker.execute import execute
from ultimat3_jobs.worker.outcome import Buried, Outcome, Parked, Retrying, Succeeded

pytestmark = pytest.mark.usefixtures("isolated_registry")

NAME = "tests.body"


def claimed(**changes: Any) -> ClaimedJob:
    """Return a job as its worker gets it: the first of three attempts, without input."""
    values = {
        "claim": Claim(uuid4(), uuid4()),
        "run_id": uuid4(),
        "name": NAME,
        "queue": "default",
        "input": "{}",
        "tenant_id": None,
        "attempt": 1,
        "max_attempts": 3,
        "lapses": 0,
        "parks": 0,
        "enqueued_by": "",
        "traceparent": "",
    }
    return ClaimedJob(**(values | changes))


def declare(body: Callable[..., Any], **options: Any) -> None:
    """Declare a body as the job that `claimed` returns."""
    job(name=NAME, idempotency_key="key", tenant=NO_TENANT, **options)(body)


def executed(**changes: Any) -> Outcome:
    """Run an attempt."""
    one = claimed(**changes)
    return execute(one, Run(one), transaction=no_transaction)


def no_transaction() -> NoReturn:
    """Open the transaction of an atomic job: none of these is one."""
    raise AssertionError("a plain job asked for the transaction of an atomic one")


def test_what_a_body_returns_is_stored_as_json() -> None:
    def body(run: Run, order: UUID, amount: Decimal) -> dict[str, Any]:
        return {"order": order, "amount": amount, "attempt": run.attempt}

    declare(body)
    order = uuid4()
    outcome = executed(input=msgspec.json.encode({"order": order, "amount": "1.50"}).decode(), attempt=2)

    assert isinstance(outcome, Succeeded)
    assert outcome.result is not None
    assert msgspec.json.decode(outcome.result) == {"order": str(order), "amount": "1.50", "attempt": 2}


def test_a_body_that_returns_nothing_stores_nothing() -> None:
    declare(returner(None))

    assert executed() == Succeeded(None)


def test_each_attempt_gets_a_fresh_copy_of_its_input() -> None:
    seen = []

    def body(run: Run, lines: list[str] = ["default"]) -> None:  # noqa: B006 - the default is what is tested
        seen.append(list(lines))
        lines.append("changed")

    declare(body)
    executed(), executed(), executed(input='{"lines":["given"]}')

    assert seen == [["default"], ["default"], ["given"]]


def test_an_alias_runs_the_job_it_became() -> None:
    declare(returner("ran"), aliases=["tests.old_name"])

    assert executed(name="tests.old_name") == Succeeded('"ran"')


@pytest.mark.parametrize(("parks", "minutes"), [(0, 1), (1, 2), (2, 4), (3, 8), (4, 15), (5, 15), (10_000, 15)])
def test_an_unknown_name_is_parked_for_longer_each_time_up_to_a_bound(parks: int, minutes: int) -> None:
    outcome = executed(name="tests.of_another_release", parks=parks)

    assert outcome == Parked(
        "no job named 'tests.of_another_release' in the code of this worker", timedelta(minutes=minutes)
    )


def test_the_reason_of_a_park_is_bounded() -> None:
    outcome = executed(name="n" * 200)

    assert isinstance(outcome, Parked)
    assert len(outcome.reason) == 200


@pytest.mark.parametrize("stored", ["{}", '{"order":"x"}', '{"order":1,"more":2}', "[]", "{", "", None])
def test_a_stored_input_that_no_longer_fits_ends_the_job(stored: str | None) -> None:
    def body(run: Run, order: int) -> None:
        raise AssertionError("the body ran")

    declare(body)
    outcome = executed(input=stored)

    assert isinstance(outcome, Buried)
    assert outcome.stop is Stop.TERMINAL
    assert outcome.dead_letter
    assert "X_JOB_INPUT_INVALID" in outcome.failure.text
    assert outcome.failure.text.endswith(
        "verdict: dead (terminal): the stored input no longer fits the signature; attempt 1 of 3"
    )


class Unlucky(msgspec.Struct):
    """A type that cannot be made any more."""

    order: int

    def __post_init__(self) -> None:
        raise SystemExit(self.order)


def test_a_type_of_the_signature_that_raises_while_it_is_made_ends_the_job() -> None:
    def body(run: Run, one: Unlucky) -> None:
        raise AssertionError("the body ran")

    declare(body)
    outcome = executed(input='{"one":{"order":1}}')

    assert isinstance(outcome, Buried)
    assert (outcome.stop, outcome.failure.error_class) == (Stop.TERMINAL, "SystemExit")


@pytest.mark.parametrize("kind", raising.KINDS)
def test_every_kind_of_exception_is_a_failed_attempt(kind: str) -> None:
    def body(run: Run) -> None:
        raise raising.KINDS[kind]()

    declare(body)
    first, last = executed(), executed(attempt=3)

    assert isinstance(first, Retrying)
    assert first.failure.text.endswith("attempt 1 of 3 failed")
    assert isinstance(last, Buried)
    assert last.stop is Stop.EXHAUSTED
    assert last.failure.text.endswith("verdict: dead (attempts-exhausted): attempt 3 of 3 was the last")


def test_a_body_that_recurses_for_ever_is_a_failed_attempt() -> None:
    def body(run: Run) -> None:
        body(run)

    declare(body)
    outcome = executed()

    assert isinstance(outcome, Retrying)
    assert outcome.failure.error_class == "RecursionError"


def test_the_delay_is_the_policys() -> None:
    declare(raiser(ValueError("x")), retry=Retry(delay="10s", backoff="linear", jitter=False))
    outcome = executed(attempt=2)

    assert isinstance(outcome, Retrying)
    assert outcome.delay == timedelta(seconds=20)


def test_a_terminal_class_ends_the_job_at_once_as_its_policy_keeps_it() -> None:
    declare(raiser(raising.DeclinedError()), retry=Retry(terminal=(raising.DeclinedError,), dead_letter=False))
    outcome = executed()

    assert isinstance(outcome, Buried)
    assert (outcome.stop, outcome.dead_letter) == (Stop.TERMINAL, False)


def test_an_input_that_a_body_got_wrong_for_another_job_is_a_failed_attempt_like_others() -> None:
    declare(raiser(InputInvalid("of another job", fix="mend it")))

    assert isinstance(executed(), Retrying)


@dataclass
class Torn:
    """A dataclass that raises where its field is read."""

    value: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise SystemExit("no value")
        return super().__getattribute__(name)

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    "result",
    [object(), {1, 2}, b"bytes", float("nan"), float("inf"), "a\x00b", "\ud800", {"deep": [2**64]}, Torn()],
    ids=lambda value: type(value).__name__,
)
def test_a_result_that_cannot_be_stored_ends_the_job_with_a_verdict_that_says_the_body_ended(result: object) -> None:
    declare(returner(result))
    outcome = executed()

    assert isinstance(outcome, Buried)
    assert outcome.stop is Stop.TERMINAL
    assert outcome.failure.error_class == "ultimat3_jobs.errors.ResultInvalid"
    assert outcome.failure.error_place.startswith("tests.worker.test_execute.")
    assert "X_JOB_RESULT_INVALID" in outcome.failure.text
    assert "return plain data or None" in outcome.failure.text
    assert outcome.failure.text.endswith(
        "verdict: dead (terminal): the body ended well, but its result cannot be stored; attempt 1 of 3"
    )


def returner(result: object) -> Callable[..., Any]:
    """Return a body that returns `result`."""

    def body(run: Run) -> object:
        return result

    return body


def raiser(error: BaseException) -> Callable[..., Any]:
    """Return a body that raises `error`."""

    def body(run: Run) -> None:
        raise error

    return body
