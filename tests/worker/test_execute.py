"""One attempt: what a body returns or raises becomes an outcome, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn
from uuid import UUID, uuid4

import msgspec
import pytest

from tests import raising
from ultimat3_jobs import NO_TENANT, AsyncRun, Retry, Run, job
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.records import Claim, ClaimedJob
from ultimat3_jobs.states import Stop
from ultimat3_jobs.worker import recording
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
    open_steps = partial(recording.open_steps, get_driver())
    return execute(one, Run(one), transaction=no_transaction, open_steps=open_steps)


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


def test_an_input_that_a_body_got_wrong_for_another_job_ends_it_since_no_attempt_mends_it() -> None:
    declare(raiser(InputInvalid("of another job", fix="mend it")))
    outcome = executed()

    assert isinstance(outcome, Buried)
    assert outcome.stop is Stop.TERMINAL


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


@pytest.mark.parametrize(
    "result",
    ["x" * 999, [0] * 1_000, {"a": {"b": "é" * 500}}, ["\n" * 499]],
    ids=["text", "many", "deep", "escaped"],
)
def test_a_result_over_its_bound_ends_the_job_like_one_that_cannot_be_stored(settings: Any, result: object) -> None:
    settings.ULTIMAT3_JOBS = {"MAX_RESULT_BYTES": 1_000}
    declare(returner(result))
    outcome = executed()

    assert isinstance(outcome, Buried)
    assert outcome.stop is Stop.TERMINAL
    assert "1000" in outcome.failure.message
    assert outcome.failure.rule == "the body ended well, but its result cannot be stored"
    assert outcome.failure.text.endswith(f"verdict: dead (terminal): {outcome.failure.rule}; attempt 1 of 3")


def test_a_result_within_its_bound_is_stored(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"MAX_RESULT_BYTES": 1_000}
    declare(returner("x" * 998))

    assert executed() == Succeeded(f'"{"x" * 998}"')


def test_a_failure_carries_the_rule_that_classified_it() -> None:
    declare(raiser(raising.DeclinedError("no")), retry=Retry(terminal=(raising.DeclinedError,)))
    outcome = executed()

    assert isinstance(outcome, Buried)
    assert outcome.failure.rule == "tests.raising.DeclinedError is terminal for this job"


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


async def _fail_in_a_coroutine(run: AsyncRun) -> None:
    raise ValueError("no")


def _fail(run: Run) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("body", [_fail, _fail_in_a_coroutine])
def test_a_traceback_begins_with_the_body(body: Callable[..., Any]) -> None:
    declare(body)
    outcome = executed()

    assert isinstance(outcome, Retrying)
    assert outcome.failure.text.splitlines()[1].endswith(f"in {body.__name__}"), outcome.failure.text


def test_a_traceback_without_a_body_is_whole() -> None:
    def body(run: Run) -> object:
        return _fail_in_a_coroutine(run)  # type: ignore[arg-type]

    declare(body)
    outcome = executed()

    assert isinstance(outcome, Retrying)
    assert "returned a coroutine" in outcome.failure.text
    assert outcome.failure.text.splitlines()[1].endswith("in execute"), outcome.failure.text
