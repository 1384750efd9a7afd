"""The page on retries names what the code has."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.processes import ROOT_DIRECTORY
from ultimat3_jobs import Retry
from ultimat3_jobs.durations import format_duration, parse_duration
from ultimat3_jobs.error_registry import ErrorRetry
from ultimat3_jobs.records import CancelVerdict, RetryVerdict
from ultimat3_jobs.states import Stop

PAGE = (ROOT_DIRECTORY / "docs" / "retries.md").read_text()


@pytest.mark.parametrize("words", [Stop, RetryVerdict, CancelVerdict], ids=lambda words: words.__name__)
def test_every_word_has_a_row(words: type[Stop]) -> None:
    missing = [word for word in words if f"| `{word}` |" not in PAGE]

    assert missing == []


def test_every_answer_is_explained() -> None:
    assert [answer for answer in ErrorRetry if f"- `{answer}`: " not in PAGE] == []


def test_the_policy_is_shown_with_its_defaults() -> None:
    shown = re.search(r"^`(Retry\(.*\))`$", PAGE, re.MULTILINE)
    assert shown

    assert eval(shown[1], {"Retry": Retry}) == Retry()
    names = re.findall(r"(\w+)=", shown[1])
    assert names == list(inspect.signature(Retry).parameters)
    assert format_duration(parse_duration(Retry().delay)) == "1s"
