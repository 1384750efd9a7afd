"""Exceptions as bounded text that every database takes, however hostile they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests import raising
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.failures import MAX_LABEL, MAX_TEXT, class_name, describe_failure
from ultimat3_jobs.records import Failure
from ultimat3_jobs.traces import MAX_MESSAGE, format_error

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
    assert 0 <= len(failure.message) <= MAX_MESSAGE
    assert 0 < len(failure.traceback) <= MAX_TEXT
    assert "verdict" not in failure.traceback


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
    text = failure_of(raising.MuteError("x")).text

    assert "in body" in text
    assert "tests.raising.MuteError: <its text could not be read>" in text


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
    assert failure.traceback == ""
    assert failure.message + "\nverdict: dead" == failure.text
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


def test_message_traceback_and_rule_are_kept_apart() -> None:
    try:
        raising.body(raising.DeclinedError("card 7"))
    except raising.DeclinedError as error:
        failure = describe_failure(error, verdict="dead", body=BODY, rule="r" * 300)

    assert failure.message == "card 7"
    assert failure.traceback.endswith("in body\n    raise error\ntests.raising.DeclinedError: card 7")
    assert failure.text == f"{failure.traceback}\nverdict: dead"
    assert failure.rule == "r" * (MAX_LABEL - 1) + "…"


def failed(work: Callable[[], object]) -> str:
    """Return the traceback as it is kept of what `work` raises."""
    try:
        work()
    except BaseException as error:
        return describe_failure(error, verdict="v", body=BODY).traceback
    raise AssertionError("nothing was raised")


def test_causes_and_contexts_are_in_the_traceback_in_the_order_they_happened() -> None:
    def first() -> None:
        try:
            raising.body(KeyError("lowest"))
        except KeyError as error:
            raise ValueError("wrapped") from error

    def second() -> None:
        try:
            first()
        except ValueError:
            raise TypeError("while handling")  # noqa: B904 - a context is what is tested

    def hidden() -> None:
        try:
            first()
        except ValueError:
            raise TypeError("alone") from None

    text = failed(second)
    words = [
        "KeyError: 'lowest'",
        "direct cause",
        "ValueError: wrapped",
        "During handling",
        "TypeError: while handling",
    ]
    assert [text.index(word) for word in words] == sorted(text.index(word) for word in words)
    assert "wrapped" not in failed(hidden)


def test_the_members_of_a_group_are_in_the_traceback_as_the_group_holds_them() -> None:
    text = failed(lambda: raising.body(ExceptionGroup("several", [ValueError(f"number {n}") for n in range(14)])))

    assert "ExceptionGroup: several (14 sub-exceptions)" in text
    assert "  --- 10 of 14 ---\n  | ValueError: number 9" in text
    assert "[4 more left out]" in text
    assert "number 10" not in text
    lying = failed(lambda: raising.body(raising.LyingGroupError("several", [ValueError("true")])))
    assert "  --- 1 of 1 ---\n  | ValueError: true" in lying


def test_a_chain_and_groups_without_end_are_bounded() -> None:
    text = failed(lambda: raising.body(raising.KINDS["long chain"]()))
    assert "link 0" in text
    assert "link 9" in text
    assert "link 10" not in text
    circle = ValueError("a")
    circle.__cause__ = TypeError("b")
    circle.__cause__.__cause__ = circle
    assert failed(lambda: raising.body(circle)).count("\nValueError: a") == 1
    assert "level 2" in failed(lambda: raising.body(raising.KINDS["deep groups"]()))


def test_many_frames_are_left_out_in_the_middle() -> None:
    def odd(n: int) -> None:
        even(n - 1)

    def even(n: int) -> None:
        if n == 0:
            raising.body(ValueError("deep"))
        odd(n - 1)

    text = format_error(caught(lambda: even(400)))
    assert "frames left out] ..." in text
    assert text.endswith("ValueError: deep")


def caught(work: Callable[[], object]) -> BaseException:
    """Return what `work` raises."""
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_source_that_cannot_be_read_costs_the_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*args: Any) -> Any:
        raise SystemExit("no source")

    error = caught(lambda: raising.body(ValueError("x")))
    monkeypatch.setattr("traceback.format_tb", unreadable)
    text = describe_failure(error, verdict="v").text

    assert "raising.py" in text
    assert "in body\nValueError: x\nverdict: v" in text
