"""What a throttle may answer and what it may not."""

from __future__ import annotations

import functools
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.declaring import error_of
from ultimat3_jobs.backfills.throttle import Wait, ask, check_throttle

INVALID = "X_JOB_DECLARATION_INVALID"
ANSWERS: list[tuple[Any, float | None]] = [
    *((answer, None) for answer in (None, False, 0, 0.0, "0s", timedelta(0))),
    *((answer, 5.0) for answer in (True, 5, 5.0, "5s", timedelta(seconds=5))),
    *(("1h30m", 5_400.0), (0.25, 0.25), (timedelta(milliseconds=1), 0.001), (timedelta(days=3), 259_200.0)),
]
NO_ANSWERS: list[Any] = [
    *(float("nan"), float("inf"), float("-inf"), 1e300, 10**400, -1, -0.001, timedelta(seconds=-1), timedelta.max),
    *("", "5", "soon", "-5s", b"5s", [], [5], {}, Decimal(5), object(), lambda: 5),
]


async def later() -> int:
    return 5


class Service:
    async def __call__(self) -> int:
        return 5


def taking(one: int) -> None: ...


@pytest.mark.parametrize(("answer", "seconds"), ANSWERS, ids=repr)
def test_an_answer_says_to_go_on_or_how_long_to_wait(answer: Any, seconds: float | None) -> None:
    wait = ask(lambda: answer, backfill="rewrite-slugs")

    assert wait == (None if seconds is None else Wait(seconds, "its throttle says so"))


@pytest.mark.parametrize("answer", NO_ANSWERS, ids=lambda value: repr(value)[:20])
def test_any_other_answer_is_an_error_that_names_the_backfill(answer: Any) -> None:
    error = error_of(INVALID, lambda: ask(lambda: answer, backfill="rewrite-slugs"))

    assert error.cause.startswith("the throttle of the backfill rewrite-slugs answers ")
    mended: dict[str, Any] = eval(f"dict({error.fix}\n)")
    assert ask(mended["throttle"], backfill="rewrite-slugs") == Wait(5, "its throttle says so")


def test_a_coroutine_is_refused_and_closed() -> None:
    error = error_of(INVALID, lambda: ask(later, backfill="rewrite-slugs"))

    assert error.cause == "the throttle of the backfill rewrite-slugs answers a coroutine"


def test_what_a_throttle_raises_says_where_it_comes_from() -> None:
    def broken() -> None:
        raise ConnectionError("the metrics are away")

    with pytest.raises(ConnectionError, match="the metrics are away") as raised:
        ask(broken, backfill="rewrite-slugs")

    assert raised.value.__notes__ == ["raised by the throttle of the backfill rewrite-slugs"]


@pytest.mark.parametrize("value", [None, lambda: 5, lambda one=1: one, functools.partial(taking, 1), list])
def test_a_throttle_is_nothing_or_a_callable_without_arguments(value: Any) -> None:
    assert check_throttle(value) is value


@pytest.mark.parametrize("value", [5, "5s", True, taking, later, Service(), lambda *, one: one, lambda one: one])
def test_what_cannot_be_called_so_is_refused_and_mended_by_typing_the_fix(value: Any) -> None:
    error = error_of(INVALID, lambda: check_throttle(value))

    mended: dict[str, Any] = eval(f"dict({error.fix}\n)")
    assert check_throttle(mended["throttle"])
