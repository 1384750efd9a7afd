"""What a declaration of a backfill may say, and how far a pass is as a value."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from tests.app.models import Item
from tests.backfills.sweeping import declare
from tests.declaring import error_of
from ultimat3_jobs import backfill, registry
from ultimat3_jobs.backfills.cursor import Cursor, parse

pytestmark = pytest.mark.usefixtures("isolated_registry")


async def _later(*given: Any) -> None: ...


def _of_one(run: Any) -> None: ...


@pytest.mark.parametrize(
    ("option", "value", "fix"),
    [
        ("source", "all", "source=lambda: Post.objects.all()"),
        ("source", _later, "source=lambda: Post.objects.all()"),
        ("source", _of_one, "source=lambda: Post.objects.all()"),
        ("count", 0, 'count=lambda: Post.objects.filter(slug="").count()'),
        ("count", _of_one, 'count=lambda: Post.objects.filter(slug="").count()'),
        ("requires", "blog.0007_post_slug", 'requires=("blog", "0007_post_slug")'),
        ("requires", ("blog",), 'requires=("blog", "0007_post_slug")'),
        ("requires", ("blog", 7), 'requires=("blog", "0007_post_slug")'),
        ("requires", "ab", 'requires=("blog", "0007_post_slug")'),
        ("environments", "production", 'environments=["staging", "production"]'),
        ("environments", [], 'environments=["staging", "production"]'),
        ("environments", ["staging", ""], 'environments=["staging", "production"]'),
        ("environments", ["x" * 101], 'environments=["staging", "production"]'),
        ("lock", None, "lock=True"),
        ("atomic", 1, "atomic=True"),
        ("exclusive", "no", "exclusive=True"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_declared(option: str, value: object, fix: str) -> None:
    error = error_of("X_JOB_DECLARATION_INVALID", lambda: declare(None, Item, **{option: value}))

    assert error.fix == fix
    assert registry.find("t.backfill") is None


def test_a_declaration_keeps_what_it_says() -> None:
    made = declare(None, Item, requires=["blog", "0007_post_slug"], environments=["staging"], lock=False).backfill

    assert (made.requires, made.environments, made.lock) == (("blog", "0007_post_slug"), ("staging",), False)


def test_a_handler_takes_a_run_and_rows_and_is_no_coroutine() -> None:
    declared = backfill(name="t.handler", tenant=lambda: "a", source=Item.objects.all)

    for handler in (_later, _of_one):
        error = error_of("X_JOB_DECLARATION_INVALID", lambda handler=handler: declared(handler))  # type: ignore[misc]
        assert error.fix == f"def {handler.__name__}(run, rows):"


def test_a_tenant_is_required() -> None:
    error = error_of("X_JOB_TENANT_REQUIRED", lambda: backfill(source=Item.objects.all)(lambda run, rows: None))

    assert "tenant=NO_TENANT" in error.fix


def test_a_cursor_is_swept_at_its_bound_or_where_there_is_none() -> None:
    assert Cursor(bound=None, size=10).swept
    assert not Cursor(bound=[9], size=10).swept
    assert not Cursor(bound=[9], at=[8], size=10).swept
    assert Cursor(bound=[9], at=[9], size=10).swept


def test_a_total_that_was_too_low_grows_with_what_is_handled_and_is_exact_at_the_end() -> None:
    cursor = Cursor(bound=[9], size=5, total=7, estimated=True)

    first = cursor.after([4], rows=5, size=5)
    second = first.after([9], rows=5, size=3)

    assert (first.handled, first.pages, first.total) == (5, 1, 7)
    assert (second.handled, second.pages, second.total, second.size) == (10, 2, 10, 3)
    assert (Cursor(bound=[9], size=5).after([4], rows=5, size=5).total, second.estimated) == (None, True)
    ended = first.completed()
    assert (ended.total, ended.estimated, ended.finished) == (5, False, True)


def test_a_cursor_of_another_release_is_an_error_that_says_so() -> None:
    run = UUID(int=7)

    for text in (None, "{}", json.dumps({"bound": [1], "size": "many"})):
        assert (
            f"the cursor of run {run} cannot be read"
            in error_of("X_STEP_CHANGED", lambda text=text: parse(text, run)).cause
        )
