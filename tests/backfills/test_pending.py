"""Statuses of passes and of declared names, and which of them keep a deploy back."""

from __future__ import annotations

from itertools import count
from typing import Any
from uuid import UUID

import pytest

from tests.backfills.declared import definition
from ultimat3_jobs.backfills.pending import (
    Pass,
    PassStatus,
    Status,
    difference,
    keeps_back,
    pass_status,
    standing,
)
from ultimat3_jobs.errors import DeclarationInvalid
from ultimat3_jobs.states import FINAL, LIVE, State

RUNS = count(1)


def passes(*statuses: str, name: str = "rewrite-slugs") -> list[Pass]:
    """Return passes of these statuses, the newest first."""
    return [Pass(UUID(int=next(RUNS)), name, PassStatus(status)) for status in statuses]


@pytest.mark.parametrize("state", [*State, None, "from-a-newer-build"])
@pytest.mark.parametrize("paused", [False, True])
def test_the_status_of_a_pass_is_its_jobs_to_say_unless_it_completed(state: str | None, paused: bool) -> None:
    assert pass_status("completed", state, paused=paused) is PassStatus.COMPLETED
    ended = {State.CANCELLED: PassStatus.CANCELLED, State.DONE: PassStatus.SKIPPED}.get(state, PassStatus.FAILED)
    live = PassStatus.PAUSED if paused else PassStatus.RUNNING
    assert pass_status("", state, paused=paused) is (live if state in LIVE else ended)
    assert {*LIVE, *FINAL} == set(State)


@pytest.mark.parametrize(
    ("newest_first", "expected"),
    [
        ("", "pending"),
        ("running", "running"),
        ("paused", "paused"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("completed", "completed"),
        ("running failed", "running"),
        ("failed cancelled", "failed"),
        ("cancelled failed", "cancelled"),
        ("failed completed", "completed"),  # a forced pass that failed
        ("running cancelled completed", "completed"),
        ("skipped completed", "completed"),
        ("skipped", "pending"),  # whatever had completed is not in the ledger any more
        ("skipped failed", "failed"),
    ],
)
def test_a_newer_pass_wins_but_what_completed_stays_completed(newest_first: str, expected: str) -> None:
    given = passes(*newest_first.split())

    found = standing(definition(), given, environment="")

    assert found.status == expected
    assert found.latest == (given[0] if given else None)
    assert found.completed == next((one for one in given if one.status == "completed"), None)


@pytest.mark.parametrize(
    ("environment", "newest_first", "expected"),
    [
        ("staging", "", "pending"),
        ("dev", "", "excluded"),
        ("", "", "unknown-environment"),
        ("dev", "failed", "excluded"),
        ("", "failed", "unknown-environment"),
        ("dev", "completed", "completed"),
        ("", "failed completed", "completed"),
    ],
)
def test_a_backfill_is_excluded_from_environments_that_it_is_not_meant_for(
    environment: str, newest_first: str, expected: str
) -> None:
    narrow = definition(environments=("staging",))

    assert standing(narrow, passes(*newest_first.split()), environment=environment).status == expected


def test_what_keeps_a_deploy_back() -> None:
    held = {status for status in Status if keeps_back(status)}

    assert held == {"pending", "failed", "cancelled", "unknown-environment", "unknown-tenant"}


@pytest.mark.parametrize(
    ("newest_first", "changes", "expected"),
    [
        ("", {}, "unknown-tenant"),
        ("running", {}, "unknown-tenant"),
        ("failed", {}, "unknown-tenant"),
        ("failed completed", {}, "completed"),
        ("", {"environments": ("production",)}, "unknown-environment"),
    ],
)
def test_without_its_tenant_only_what_is_over_or_not_meant_for_here_keeps_its_status(
    newest_first: str, changes: dict[str, Any], expected: str
) -> None:
    refusal = DeclarationInvalid("no tenant", fix="tenant=NO_TENANT")
    found = standing(definition(**changes), passes(*newest_first.split()), environment="").without_tenant(refusal)

    assert (found.status, found.refusal) == (expected, refusal)


def test_the_difference_tells_of_every_declared_name_in_order_and_of_names_that_are_gone() -> None:
    declared = [definition(name=name) for name in ("b", "a", "new", "c")]
    swept = [
        *passes("completed", name="a"),
        *passes("failed", name="old"),
        *passes("cancelled", name="gone"),
        *passes("running", name="b"),
        *passes("completed", name="before"),
    ]

    found = difference(declared, swept, environment="", former_names={"before": "c"})

    assert [(one.name, one.status.value) for one in found.standings] == [
        ("b", "running"),
        ("a", "completed"),
        ("new", "pending"),
        ("c", "completed"),
    ]
    assert [one.name for one in found.unswept] == ["new"]
    assert found.undeclared == ("gone", "old")
