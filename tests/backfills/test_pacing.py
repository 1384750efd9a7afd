"""When pages begin and how many rows they have: the rate, what is refused, tuning, halving and growing again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.declaring import error_of
from ultimat3_jobs.backfills.pacing import (
    AUTO_MOST,
    AUTO_START,
    AUTO_TARGET,
    GOOD_PAGES,
    MOST_GOOD_PAGES,
    Pacer,
    Sizes,
    check_batch,
    check_rate,
)

NAN, INFINITE = float("nan"), float("inf")
RATES: list[Any] = [0.0001, 0.5, 1, 5, 1_000]
NO_RATES: list[Any] = [0, -1, 0.00009, 5e-324, 1_000.1, 10**400, NAN, INFINITE, -INFINITE, True, "5", None, Decimal(5)]
BATCHES: list[Any] = [1, 1_000, 100_000, "auto"]
NO_BATCHES: list[Any] = [0, -1, 100_001, 10**400, 1.0, NAN, True, "Auto", "100", "", None, [1]]
INVALID = "X_JOB_DECLARATION_INVALID"


class TestRate:
    @pytest.mark.parametrize("value", RATES)
    def test_a_number_of_pages_a_second_is_taken(self, value: Any) -> None:
        rate = check_rate(value)

        assert (rate, type(rate)) == (value, float)

    @pytest.mark.parametrize("value", NO_RATES, ids=lambda value: repr(value)[:20])
    def test_what_is_no_rate_is_refused_and_mended_by_typing_the_fix(self, value: Any) -> None:
        error = error_of(INVALID, lambda: check_rate(value))

        assert "is no number of pages a second from 0.0001 to 1,000" in error.cause
        check_rate(**_typed(error.fix, rate="value"))

    def test_the_first_page_begins_at_once(self) -> None:
        assert Pacer(5).wait(1_000.0) == 0

    def test_a_page_begins_when_its_share_of_a_second_is_over(self) -> None:
        pacer = Pacer(4)
        pacer.began(10.0)

        assert [pacer.wait(now) for now in (10.0, 10.125, 10.25, 99.0)] == [0.25, 0.125, 0, 0]

    def test_time_that_was_lost_is_not_made_up_for(self) -> None:
        pacer = Pacer(4)
        pacer.began(10.0)
        pacer.began(20.0)

        assert pacer.wait(20.0) == 0.25

    def test_a_new_rate_holds_for_the_wait_that_goes_on(self) -> None:
        pacer = Pacer(0.5)
        pacer.began(10.0)
        assert pacer.wait(10.5) == 1.5

        pacer.rate = 1

        assert (pacer.wait(10.5), pacer.rate) == (0.5, 1.0)

    def test_a_new_rate_is_checked(self) -> None:
        pacer = Pacer(5)

        with pytest.raises(Exception, match="rate=0 is no number"):
            pacer.rate = 0

        assert pacer.rate == 5


class TestBatch:
    @pytest.mark.parametrize("value", BATCHES)
    def test_a_number_of_rows_or_auto_is_taken(self, value: Any) -> None:
        assert check_batch(value) == value

    @pytest.mark.parametrize("value", NO_BATCHES, ids=lambda value: repr(value)[:20])
    def test_what_is_no_batch_is_refused_and_mended_by_typing_the_fix(self, value: Any) -> None:
        error = error_of(INVALID, lambda: check_batch(value))

        assert 'is neither a whole number of rows from 1 to 100,000 nor "auto"' in error.cause
        check_batch(**_typed(error.fix, batch="value"))


class TestFixedSizes:
    def test_a_fixed_size_stays_whatever_pages_take(self) -> None:
        sizes = Sizes(1_000)
        for seconds in (0.0, 0.01, 60.0):
            sizes.landed(1_000, seconds)

        assert sizes.size == 1_000

    def test_a_page_that_ran_out_of_time_halves_it_down_to_one_row(self) -> None:
        sizes = Sizes(10)

        assert [(sizes.timed_out(), sizes.size) for _ in range(4)] == [(True, 5), (True, 2), (True, 1), (False, 1)]

    def test_a_halved_size_grows_back_to_the_declared_one_and_not_over_it(self) -> None:
        sizes = Sizes(1_000)
        sizes.timed_out()
        sizes.timed_out()
        sizes.timed_out()

        seen = [(_land(sizes, GOOD_PAGES - 1), _land(sizes)) for _ in range(5)]

        assert seen == [(125, 250), (250, 500), (500, 1_000), (1_000, 1_000), (1_000, 1_000)]

    def test_an_odd_size_comes_back_to_what_is_declared(self) -> None:
        sizes = Sizes(7)
        sizes.timed_out()
        assert sizes.size == 3

        assert (_land(sizes, GOOD_PAGES), _land(sizes, GOOD_PAGES)) == (6, 7)

    def test_pages_before_a_halving_do_not_count_as_good(self) -> None:
        sizes = Sizes(1_000)
        _land(sizes, 100)
        sizes.timed_out()

        assert (_land(sizes, GOOD_PAGES - 1), _land(sizes)) == (500, 1_000)

    def test_a_size_that_runs_out_of_time_again_takes_twice_the_good_pages(self) -> None:
        sizes = Sizes(1_000)
        needed = []
        for _ in range(9):
            sizes.timed_out()
            needed.append(next(count for count in range(1, 1_000) if _land(sizes) == 1_000))

        assert needed == [8, 16, 32, 64, 128, 256, 512, 512, 512]
        assert max(needed) == MOST_GOOD_PAGES

    def test_halving_twice_in_a_row_does_not_take_more_good_pages(self) -> None:
        sizes = Sizes(1_000)
        sizes.timed_out()
        sizes.timed_out()

        assert (_land(sizes, GOOD_PAGES - 1), _land(sizes)) == (250, 500)

    @pytest.mark.parametrize(
        ("declared", "stored", "goes_on"), [(1_000, 250, 250), (200, 250, 200), (1_000, 0, 1), (1_000, -5, 1)]
    )
    def test_a_resume_goes_on_from_the_size_of_the_last_page(self, declared: int, stored: int, goes_on: int) -> None:
        assert Sizes(declared, stored).size == goes_on

    def test_a_size_that_was_halved_before_a_resume_grows_back_too(self) -> None:
        sizes = Sizes(1_000, 500)

        assert (_land(sizes, GOOD_PAGES - 1), _land(sizes)) == (500, 1_000)


class TestTunedSizes:
    def test_it_begins_with_a_hundred_rows(self) -> None:
        assert Sizes("auto").size == AUTO_START == 100

    def test_a_resume_goes_on_from_the_size_of_the_last_page(self) -> None:
        assert [Sizes("auto", stored).size for stored in (740, 0, 99_999)] == [740, 1, AUTO_MOST]

    @pytest.mark.parametrize(
        ("seconds", "size"),
        [(0.5, 100), (0.4, 125), (0.25, 200), (0.01, 200), (0.0, 200), (0.8, 62), (1.0, 50), (60.0, 50)],
    )
    def test_a_full_page_changes_it_by_no_more_than_a_factor_of_two(self, seconds: float, size: int) -> None:
        sizes = Sizes("auto")
        sizes.landed(100, seconds)

        assert sizes.size == size

    @pytest.mark.parametrize("rows", [0, 1, 99])
    def test_a_short_page_that_was_quick_teaches_nothing(self, rows: int) -> None:
        sizes = Sizes("auto")
        sizes.landed(rows, 0.01)
        sizes.landed(rows, AUTO_TARGET)

        assert sizes.size == 100

    @pytest.mark.parametrize(("rows", "size"), [(0, 50), (99, 82)])
    def test_a_short_page_that_was_slow_makes_it_smaller(self, rows: int, size: int) -> None:
        sizes = Sizes("auto")
        sizes.landed(rows, 0.6)

        assert sizes.size == size

    def test_it_finds_the_size_at_which_a_page_takes_half_a_second(self) -> None:
        sizes = Sizes("auto")
        for _ in range(10):
            sizes.landed(sizes.size, sizes.size * 0.0001)

        assert sizes.size == 5_000

    def test_it_stays_within_its_bounds(self) -> None:
        sizes = Sizes("auto")
        for _ in range(20):
            sizes.landed(sizes.size, 0.0)
        largest = sizes.size
        for _ in range(20):
            sizes.landed(sizes.size, 60.0)

        assert (largest, sizes.size) == (AUTO_MOST, 1)

    def test_a_page_that_ran_out_of_time_bounds_it_until_good_pages_have_landed(self) -> None:
        sizes = Sizes("auto", 800)
        assert sizes.timed_out()
        assert sizes.size == 400

        quick = [(sizes.landed(sizes.size, 0.05), sizes.size)[1] for _ in range(GOOD_PAGES)]

        assert quick == [*[400] * (GOOD_PAGES - 1), 800]

    def test_it_is_given_up_at_one_row(self) -> None:
        sizes = Sizes("auto", 2)

        assert [sizes.timed_out(), sizes.timed_out(), sizes.size] == [True, False, 1]


def _land(sizes: Sizes, pages: int = 1) -> int:
    for _ in range(pages):
        sizes.landed(sizes.size, 0.1)
    return sizes.size


def _typed(fix: str, **named: str) -> dict[str, Any]:
    options: dict[str, Any] = eval(f"dict({fix}\n)")
    return {named[name]: value for name, value in options.items()}
