"""Exceptions as bounded text that every database takes, however hostile they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests import raising
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.failures import MAX_LABEL, MAX_TEXT, class_name, describe_failure
from ultimat3_jobs.records import Failure

BODY = "tests.raising.body"


def failure_of(error: BaseException, *, body: str = BODY) -> Failure:
    """Describe an exception as one that a body raised."""
    try:
        raising.body(error)
    except BaseException as raised:
        return describe_failure(raised, verdict="retry in 1s", body=body)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("kind", raising.KINDS)
def test_every_kind_of_exception_becomes_text_that_ends_with_the_verdict(kind: str) -> None:
    failure = failure_of(raising.KINDS[kind]())

    assert failure.text.endswith("\nverdict: retry in 1s")
    assert failure.error_place.startswith("tests.raising.")
    assert "in body" in failure.text
    for text in (failure.text, failure.error_class, failure.error_place):
        assert "\x00" not in text
        text.encode()
    assert 0 < len(failure.error_class) <= MAX_LABEL
    assert len(failure.text) <= MAX_TEXT
    assert len(failure.cause) == 64


def test_a_class_is_named_by_what_it_is() -> None:
    odd = type("OddError", (Exception,), {"__module__": 7})
    kinds = [ValueError, asyncio.CancelledError, raising.DeclinedError, raising.LyingError, raising.NamelessError, odd]

    assert [class_name(kind) for kind in kinds] == [
        "ValueError",
        "asyncio.exceptions.CancelledError",
        "tests.raising.DeclinedError",
        "tests.raising.LyingError",
        "tests.raising.NamelessError",
        "?.OddError",
    ]


def test_the_message_is_in_the_text_with_what_a_database_refuses_escaped() -> None:
    assert "ValueError: a\\x00b \\ud800 é" in failure_of(ValueError("a\x00b \ud800 é")).text


def test_an_exception_without_readable_text_keeps_its_traceback() -> None:
    text = failure_of(raising.NamelessError("x")).text

    assert "in body" in text
    assert "tests.raising.NamelessError: <its text could not be read>" in text


def test_a_long_text_is_bounded_with_a_mark_and_keeps_both_ends() -> None:
    failure = failure_of(ValueError("begins " + "x" * 10_000_000 + " ends"))

    assert len(failure.text) <= MAX_TEXT
    assert "ValueError: begins x" in failure.text
    assert "x ends\nverdict: retry in 1s" in failure.text
    assert "characters left out] ..." in failure.text


def test_a_long_class_name_is_bounded() -> None:
    failure = failure_of(type("E" * 1_000, (Exception,), {})())

    assert len(failure.error_class) == MAX_LABEL
    assert failure.error_class.endswith("…")


def test_the_place_is_the_innermost_frame_of_the_bodys_package() -> None:
    def parse() -> None:
        raising.body(ValueError("x"))

    with pytest.raises(ValueError, match="x") as raised:
        parse()

    assert describe_failure(raised.value, verdict="v", body="tests.x").error_place == "tests.raising.body"
    # Where the package is not on the stack, as for an input that does not fit, the innermost frame is.
    assert describe_failure(raised.value, verdict="v", body="shop.jobs.ship").error_place == "tests.raising.body"
    # The innermost frame may belong to a library.
    with pytest.raises(ValueError, match="invalid literal") as raised:
        asyncio.run(_library())
    assert describe_failure(raised.value, verdict="v", body="tests.x").error_place == f"{__name__}._library"


async def _library() -> Any:
    return int("no number")


def test_an_error_that_was_never_raised_is_placed_at_the_body() -> None:
    failure = describe_failure(InputInvalid("it is wrong", fix="mend it"), verdict="dead", body=BODY)

    assert failure.error_place == BODY
    assert failure.text == (
        "X_JOB_INPUT_INVALID: it is wrong\n  fix: mend it\n  docs: docs/errors.md#x_job_input_invalid\nverdict: dead"
    )


def test_failures_of_one_class_at_one_place_have_one_cause_and_others_have_another() -> None:
    first, again = failure_of(ValueError("order 1")), failure_of(ValueError("order 2"))
    other_class = failure_of(TypeError("order 1"))
    with pytest.raises(ValueError, match="order 1") as raised:
        raise ValueError("order 1")
    other_place = describe_failure(raised.value, verdict="retry in 1s", body=BODY)

    assert first.cause == again.cause
    assert first.text != again.text
    assert len({first.cause, other_class.cause, other_place.cause}) == 3
