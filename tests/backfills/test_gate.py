"""The gate: what it refuses, in which order, and with a line that can be run."""

from __future__ import annotations

import ast
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.backfills.declared import definition
from ultimat3_jobs.backfills.gate import CompletedPass, Facts, UnfinishedPass, judge
from ultimat3_jobs.errors import JobsError

RUN = UUID(int=1)
SWEPT = CompletedPass(UUID(int=2), "a" * 64, datetime(2026, 3, 1, 12, 0, 5, 400, tzinfo=UTC))
FREE = Facts(environment="", migration_applied=True, live_run=None, completed=None, checksum="a" * 64)
# Against each refusal all those after it stand too.
EVERYTHING = Facts(environment="dev", migration_applied=False, live_run=RUN, completed=SWEPT, checksum="b" * 64)
NARROW = definition(environments=("staging", "production"), requires=("blog", "0007_post_slug"))


def refused(declared: Any, facts: Facts, **options: Any) -> JobsError:
    error = judge(declared, facts, **{"forced": False} | options).error
    assert error is not None
    return error


def test_what_nothing_stands_against_may_start() -> None:
    verdict = judge(definition(), FREE, forced=False)

    assert (verdict.error, verdict.warnings) == (None, ())


def test_refusals_come_in_one_order() -> None:
    facts, codes = EVERYTHING, []
    for mended in ({"environment": "staging"}, {"migration_applied": True}, {"live_run": None}, {"completed": None}):
        codes.append(refused(NARROW, facts).code)
        facts = replace(facts, **mended)

    assert codes == [
        "X_BACKFILL_ENVIRONMENT",
        "X_BACKFILL_MIGRATION_PENDING",
        "X_BACKFILL_RUNNING",
        "X_BACKFILL_APPLIED",
    ]
    assert judge(NARROW, facts, forced=False).error is None


@pytest.mark.parametrize(
    ("cancelled", "may_go_on", "told"),
    [
        (True, False, "was cancelled after 1 row (run {run}), and another begins with the first row"),
        (
            False,
            True,
            (
                "failed after 1 row (run {run}), and another begins with the first row; "
                "python manage.py jobs retry {run} lets that one go on from its last page"
            ),
        ),
    ],
)
def test_what_another_pass_has_done_already_is_warned_of(cancelled: bool, may_go_on: bool, told: str) -> None:
    last = UnfinishedPass(RUN, 1, cancelled=cancelled, may_go_on=may_go_on)

    verdict = judge(definition(), replace(FREE, unfinished=last), forced=False)

    assert verdict.error is None
    (warning,) = verdict.warnings
    assert warning.endswith(told.format(run=RUN))


@pytest.mark.parametrize("environment", ["", "dev", "Staging"])
def test_another_environment_is_refused_and_so_is_one_without_a_name(environment: str) -> None:
    error = refused(NARROW, replace(FREE, environment=environment), forced=True)

    assert error.code == "X_BACKFILL_ENVIRONMENT"
    assert "staging and production" in error.cause
    assert environment in error.cause


def test_force_is_for_what_has_been_swept_and_for_nothing_else() -> None:
    assert judge(definition(), replace(FREE, completed=SWEPT), forced=True).error is None
    assert refused(NARROW, EVERYTHING, forced=True).code == "X_BACKFILL_ENVIRONMENT"
    assert refused(definition(), replace(FREE, live_run=RUN), forced=True).code == "X_BACKFILL_RUNNING"


def test_a_pass_does_not_stand_in_its_own_way() -> None:
    live = replace(FREE, live_run=RUN)

    assert judge(definition(), live, forced=False, own_run=RUN).error is None
    assert refused(definition(), live, own_run=uuid4()).code == "X_BACKFILL_RUNNING"


def test_a_migration_that_nothing_requires_need_not_be_applied() -> None:
    assert judge(definition(), replace(FREE, migration_applied=False), forced=False).error is None


@pytest.mark.parametrize(("swept", "declared", "warns"), [("a", "b", 1), ("a", "a", 0), ("", "b", 0), ("a", "", 0)])
@pytest.mark.parametrize("forced", [False, True])
def test_a_declaration_that_has_changed_warns_and_does_not_run_again_by_itself(
    swept: str, declared: str, warns: int, forced: bool
) -> None:
    facts = replace(FREE, checksum=declared, completed=replace(SWEPT, checksum=swept))

    verdict = judge(definition(), facts, forced=forced)

    assert len(verdict.warnings) == warns
    assert (verdict.error is None) == forced


def test_to_sweep_again_is_warned_of() -> None:
    fix = refused(definition(), replace(FREE, completed=SWEPT)).fix

    assert fix.endswith(" --write --force  # sweeps all its rows again; as a rule there is nothing to do")


def test_when_it_was_swept_is_told() -> None:
    assert (
        "completed at 2026-03-01 12:00:05+00:00 (run 00000000"
        in refused(definition(), replace(FREE, completed=SWEPT)).cause
    )


NAMES = ["rewrite-slugs", "rewrite slugs & 'more'; $(rm -rf .)", "-odd", "--force", 'naïve \\ "name"']


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("alias", ["default", "shop floor"])
def test_a_fix_that_is_a_command_is_one_line_whose_words_are_what_they_are(name: str, alias: str) -> None:
    declared = definition(name=name, requires=("blog", "0007_post_slug"))

    def words(**facts: Any) -> list[str]:
        fix = refused(declared, replace(FREE, alias=alias, **facts)).fix
        assert "\n" not in fix
        return shlex.split(fix, comments=True)

    odd = name.startswith("-")
    listed = [f"--name={name}"] if odd else ["--name", name]
    again = ["--write", "--force", "--", name] if odd else [name, "--write", "--force"]
    database = [] if alias == "default" else ["--database", alias]
    start = ["python", "manage.py"]
    assert words(migration_applied=False) == [*start, "migrate", "blog", "0007_post_slug", *database]
    assert words(live_run=RUN) == [*start, "backfill", "--list", *listed]
    assert words(completed=SWEPT) == [*start, "backfill", *again]


@pytest.mark.parametrize(
    ("place", "may_start"), [("staging", True), ("production", True), ("dev", False), (None, False)]
)
def test_the_fix_of_an_environment_without_a_name_unlocks_only_where_it_is_meant(
    monkeypatch: pytest.MonkeyPatch, place: str | None, may_start: bool
) -> None:
    if place is None:
        monkeypatch.delenv("ENVIRONMENT", raising=False)
    else:
        monkeypatch.setenv("ENVIRONMENT", place)
    fix, settings = refused(NARROW, FREE).fix, dict[str, Any]()

    exec(fix, {"ULTIMAT3_JOBS": settings})

    assert fix.endswith("; this backfill is meant for 'staging', 'production'")
    here = replace(FREE, environment=settings["ENVIRONMENT"])
    assert (judge(NARROW, here, forced=False).error is None) == may_start


def test_the_fix_of_another_environment_can_be_typed_and_says_where_not_to() -> None:
    here = replace(FREE, environment="dev")
    fix = refused(NARROW, here).fix
    typed = ast.parse(fix).body[0]

    assert fix.endswith("; if not, there is nothing to do here")
    assert isinstance(typed, ast.Assign)
    assert judge(definition(environments=tuple(ast.literal_eval(typed.value))), here, forced=False).error is None
