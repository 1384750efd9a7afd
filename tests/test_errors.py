"""Every error says what is, what mends it, and where it is explained."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from tests.processes import ROOT_DIRECTORY
from ultimat3_jobs import errors
from ultimat3_jobs.control import Aborted
from ultimat3_jobs.error_registry import find_by_class
from ultimat3_jobs.errors import JobsError

EVERY = sorted(
    (
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, JobsError) and one is not JobsError
    ),
    key=lambda one: one.code,
)
every_error = pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)


def test_every_code_is_of_one_error_alone() -> None:
    codes = [kind.code for kind in EVERY]

    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"X_[A-Z]+(_[A-Z]+)*", code) for code in codes)
    assert JobsError.code not in codes


@every_error
def test_an_error_carries_its_code_cause_fix_and_docs(kind: type[JobsError]) -> None:
    error = kind("the queue is full of eels", fix="python manage.py drain_eels")

    assert isinstance(error, Exception)
    assert (error.cause, error.fix) == ("the queue is full of eels", "python manage.py drain_eels")
    assert error.docs == f"docs/errors.md#{kind.code.lower()}"
    for part in (kind.code, error.cause, error.fix, error.docs):
        assert part in str(error)


@every_error
def test_an_error_needs_a_fix(kind: type[JobsError]) -> None:
    with pytest.raises(TypeError, match="fix"):
        kind("only a cause")  # type: ignore[call-arg]


@every_error
def test_an_error_survives_being_pickled_and_copied(kind: type[JobsError]) -> None:
    error = kind("cause", fix="fix")

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (again.cause, again.fix, again.code, str(again)) == ("cause", "fix", kind.code, str(error))


@every_error
def test_an_error_is_documented_with_cause_fix_and_class(kind: type[JobsError]) -> None:
    text = (ROOT_DIRECTORY / "docs" / "errors.md").read_text()
    section = re.search(rf"^## {kind.code}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/errors.md has no section {kind.code}"

    assert re.search(r"^- Cause: \S", section[1], re.MULTILINE)
    assert re.search(r"^- Fix: \S", section[1], re.MULTILINE)
    registered = find_by_class(kind)
    expected = registered[1] if registered else "permanent"
    assert re.findall(r"^- Class: (\S+)$", section[1], re.MULTILINE) == [expected]


def test_every_documented_code_exists() -> None:
    text = (ROOT_DIRECTORY / "docs" / "errors.md").read_text()

    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == [kind.code for kind in EVERY]


def test_a_signal_is_no_error() -> None:
    assert not issubclass(Aborted, Exception)
    assert Aborted.code == "X_ABORTED"
