"""Names: one job a name, one name a job, earlier names kept as aliases."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.declaring import body_taking
from ultimat3_jobs import NO_TENANT, Job, job, registry
from ultimat3_jobs.errors import DeclarationInvalid, DuplicateJob

pytestmark = pytest.mark.usefixtures("isolated_registry")


def declare(name: str | None, *, place: str, aliases: Any = ()) -> Job[..., None]:
    body = body_taking()
    body.__qualname__ = place
    return job(name=name, aliases=aliases, idempotency_key="k", tenant=NO_TENANT)(body)


def test_a_job_is_found_by_its_name_and_its_aliases() -> None:
    handle = declare("a.new", place="new", aliases=["a.old", "a.older"])

    assert [registry.find(name) for name in ("a.new", "a.old", "a.older", "a.other")] == [
        *[handle.definition] * 3,
        None,
    ]
    assert registry.all_jobs().count(handle.definition) == 1


def test_jobs_are_listed_by_code_point() -> None:
    names = ["a.Z", "a.a", "a.b", "a.é", "b.A"]
    for name in reversed(names):
        declare(name, place=name)

    assert [one.name for one in registry.all_jobs() if one.name in names] == names


@pytest.mark.parametrize(
    ("name", "aliases"), [("a.new", ()), ("a.old", ()), ("b.b", ["a.new"]), ("b.b", ["x", "a.old"])]
)
def test_two_jobs_on_one_name_are_refused(name: str, aliases: list[str]) -> None:
    first = declare("a.new", place="first", aliases=["a.old"])
    before = registry.all_jobs()

    with pytest.raises(DuplicateJob) as raised:
        declare(name, place="second", aliases=aliases)

    taken = {"a.new", "a.old"} & {name, *aliases}
    assert raised.value.cause == (
        f"{taken.pop()!r} is declared by tests.declaring.first (line 1) and by tests.declaring.second (line 1)"
    )
    assert raised.value.fix.startswith("pin another name: @job(name=")
    assert registry.all_jobs() == before
    assert registry.find("a.new") is first.definition


def test_one_function_under_two_names_is_refused() -> None:
    body = body_taking()
    first = job(name="a.one", idempotency_key="k", tenant=NO_TENANT)(body)

    with pytest.raises(DuplicateJob) as raised:
        job(name="a.two", idempotency_key="k", tenant=NO_TENANT)(body)

    assert "is declared under two names, 'a.one' and 'a.two'" in raised.value.cause
    assert raised.value.fix == 'keep one: @job(name="a.two", aliases=["a.one"], ...)'
    assert registry.find("a.one") is first.definition
    assert registry.find("a.two") is None


def test_functions_made_in_one_place_may_be_jobs_of_different_names() -> None:
    handles = [declare(f"a.{number}", place="factory") for number in range(2)]

    assert [registry.find(handle.name) for handle in handles] == [handle.definition for handle in handles]


def test_a_module_that_is_imported_again_replaces_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from ultimat3_jobs import NO_TENANT, job

@job(name="a.name", aliases=[ALIASES], idempotency_key="k", tenant=NO_TENANT)
def body(run) -> None: ...
"""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_jobs.py"
    file.write_text(source.replace("ALIASES", '"a.first"'))
    module = importlib.import_module("reloaded_jobs")
    assert registry.find("a.first") is module.body.definition

    file.write_text(source.replace("ALIASES", '"a.second"'))
    module = importlib.reload(module)

    assert registry.find("a.name") is registry.find("a.second") is module.body.definition
    assert registry.find("a.first") is None


@pytest.mark.parametrize("name", ["", " ", " a.b", "a.b ", "a\nb", "a\0b", "a\ud800", "x" * 201, 5, b"a"])
def test_what_cannot_be_a_name_is_refused_as_a_name_and_as_an_alias(name: Any) -> None:
    with pytest.raises(DeclarationInvalid) as as_name:
        declare(name, place="p")
    with pytest.raises(DeclarationInvalid) as as_alias:
        declare("a.b", place="p", aliases=["a.c", name])

    assert as_name.value.cause == as_alias.value.cause == f"{name!r} cannot be a job's name"
    assert as_name.value.fix == 'name="billing.invoice"  # 1 to 200 printable characters, no space around them'
    assert registry.find("a.b") is None


@pytest.mark.parametrize("aliases", ["a.old", 5, {"a.old"}, None])
def test_aliases_are_a_list(aliases: Any) -> None:
    with pytest.raises(DeclarationInvalid) as raised:
        declare("a.b", place="p", aliases=aliases)

    assert raised.value.cause == f"aliases={aliases!r} is no list of names"


def test_the_longest_name_is_taken() -> None:
    assert declare("𝄞" * 200, place="p").name == "𝄞" * 200


def test_a_function_outside_every_app_needs_a_pinned_name() -> None:
    with pytest.raises(DeclarationInvalid) as raised:
        declare(None, place="lonely")

    assert raised.value.cause == ("tests.declaring.lonely belongs to no installed app, so it has no name that lasts")
    assert raised.value.fix == 'pin one: @job(name="billing.body", ...)'


def test_a_function_of_an_app_is_named_after_its_label() -> None:
    body = body_taking()
    body.__module__ = "tests.app.somewhere.deep"

    assert job(idempotency_key="k", tenant=NO_TENANT)(body).name == "app.body"
