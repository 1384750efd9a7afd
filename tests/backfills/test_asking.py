"""Code of a project that raises where people look: a refusal that names the backfill, whatever it raises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import Client

from tests.app.models import Item
from tests.backfills.commanding import as_json, refused, run
from tests.backfills.sweeping import declare, sweep
from tests.backfills.test_rows import make_items
from tests.declaring import error_of
from ultimat3_jobs.backfills.asking import ask
from ultimat3_jobs.backfills.passes import named
from ultimat3_jobs.backfills.source import readable, rows_of
from ultimat3_jobs.backfills.throttle import ask as ask_throttle
from ultimat3_jobs.control import Aborted
from ultimat3_jobs.errors import DeclarationInvalid, JobsError

pytestmark = pytest.mark.usefixtures("queue", "nothing_declared")


class Odd(BaseException):
    """What is no exception."""


class MuteError(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


RAISED: dict[str, tuple[Callable[[], Any], str]] = {
    "exit": (lambda: sys.exit(0), "SystemExit: 0"),
    "odd": (lambda: throw(Odd("x")), "tests.backfills.test_asking.Odd: x"),
    "generator": (lambda: throw(GeneratorExit()), "GeneratorExit"),
    "mute": (lambda: throw(MuteError()), "tests.backfills.test_asking.MuteError: <its text could not be read>"),
}
every = pytest.mark.parametrize("kind", RAISED)


def throw(error: BaseException) -> Any:
    """Raise it, in an expression."""
    raise error


@contextmanager
def leaving(tenant: str) -> Iterator[None]:
    """A project's own scoping that ends the process."""
    sys.exit(0)
    yield


@every
def test_a_tenant_or_a_source_that_raises_is_named(kind: str) -> None:
    code, told = RAISED[kind]
    tenant = declare(None, Item, name="t.tenant", tenant=code)
    source = declare(None, Item, name="t.source", source=code)

    assert error_of("X_JOB_DECLARATION_INVALID", lambda: named(tenant.definition)).cause == (
        f"the tenant of backfill 't.tenant' cannot be told: it raised {told}"
    )
    assert error_of("X_BACKFILL_SOURCE_INVALID", lambda: rows_of(source.backfill)).cause == (
        f"the source of backfill 't.source' raised {told}"
    )


@every
def test_every_form_of_the_command_goes_on_and_tells_of_it(kind: str) -> None:
    make_items(3)
    code, told = RAISED[kind]
    declare(None, Item, name="a.source", source=code)
    declare(None, Item, name="b.tenant", tenant=code)
    declare(None, Item, name="c.well")

    assert f"cannot be told: it raised {told}" in refused("--pending")[0]
    assert f"cannot be told: it raised {told}" in run("--list")
    for arguments in (("--all",), ("--all", "--write")):
        shown, why = refused(*arguments)
        assert "a.source  not started: X_BACKFILL_SOURCE_INVALID" in shown
        assert "b.tenant  not started: X_JOB_DECLARATION_INVALID" in shown
        assert "c.well" in shown
        assert why.count(told) == 2
    for name in ("a.source", "b.tenant"):
        for more in ((), ("--write",), ("--try", "1")):
            assert told in as_json(name, *more, status=1)["error"]["cause"]


def test_scoping_that_would_end_the_process_is_a_refusal(settings: Any, admin_client: Client) -> None:
    make_items(1)
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "TENANT_CONTEXT": f"{__name__}.leaving"}
    declare(None, Item, name="t.scope", tenant=lambda: "acme")

    for arguments in ((), ("--write",), ("--try", "1")):
        error = as_json("t.scope", *arguments, status=1)["error"]
        assert error["code"] == "X_JOB_DECLARATION_INVALID"
        assert "what backfill 't.scope' is declared with raised SystemExit: 0 (" in error["cause"]
        assert f"{__file__}:" in error["cause"]
    assert "'t.scope' is declared with raised SystemExit: 0" in refused("--all")[1]


@every
def test_the_admin_answers_with_the_refusal(kind: str, admin_client: Client) -> None:
    code, told = RAISED[kind]
    declare(None, Item, name="a.source", source=code)
    declare(None, Item, name="b.tenant", tenant=code)
    told = told.replace("<", "&lt;").replace(">", "&gt;")

    assert admin_client.get("/admin/ultimat3_jobs/backfill/").status_code == 200
    for name in ("a.source", "b.tenant"):
        start = f"/admin/ultimat3_jobs/backfill/start/?name={name}"
        assert told in admin_client.get(start).content.decode()
        answer = admin_client.post(start, {"reason": ""}, follow=True)
        assert told in answer.content.decode()


def test_a_person_and_what_steers_a_run_are_not_kept_back() -> None:
    for error in (KeyboardInterrupt(), Aborted(), DeclarationInvalid("its own", fix="its own")):
        with pytest.raises(type(error)) as raised:
            ask(lambda error=error: throw(error), refuse=lambda _: JobsError("another", fix="another"))
        assert raised.value is error


class Mute:
    """A value whose text raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Hostile(Mute):
    """A value that raises whatever it is asked."""

    def __index__(self) -> int:
        raise RuntimeError("no number")


class Loud(int):
    """A number whose text raises."""

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__ = lambda self: self.__format__("")


@pytest.mark.parametrize("answer", [Mute(), Hostile(), Loud(-1), -(10**5_000)], ids=lambda one: type(one).__name__)
def test_a_count_that_cannot_be_written_is_none(answer: Any) -> None:
    done = sweep(declare(None, Item, count=lambda: answer))

    assert done.state == "dead"
    assert f"answered <{type(answer).__name__}, whose text could not be read>" in done.last_error
    assert "X_BACKFILL_COUNT_INVALID" in done.last_error


@pytest.mark.parametrize(
    ("answer", "told"),
    [(10**5_000, "at least 2**16609 are left"), (Loud(7), "7 are left"), (1, "1 is left")],
    ids=["huge", "loud", "one"],
)
def test_a_count_of_any_size_has_stalled(answer: Any, told: str) -> None:
    done = sweep(declare(None, Item, count=lambda: answer))

    assert (done.state, done.stop) == ("dead", "terminal")
    assert "X_BACKFILL_STALLED" in done.last_error
    assert told in done.last_error


@pytest.mark.parametrize("answer", [Mute(), Hostile(), Loud(-1), 10**5_000], ids=lambda one: type(one).__name__)
def test_a_throttle_whose_answer_cannot_be_written_is_named(answer: Any) -> None:
    error = error_of("X_JOB_DECLARATION_INVALID", lambda: ask_throttle(lambda: answer, backfill="t.backfill"))

    assert error.cause.startswith("the throttle of the backfill t.backfill answers ")


def test_a_handler_and_rows_whose_error_has_no_text_are_told_of() -> None:
    make_items(1)

    class Muted(DatabaseError):
        __str__ = __repr__ = MuteError.__str__

    def handler(run: Any, rows: list[Item]) -> None:
        raise MuteError

    declare(handler, Item, name="t.handler")
    why = refused("t.handler", "--try", "1")[1]
    assert "MuteError: <its text could not be read> (" in why

    with pytest.raises(JobsError, match="its text could not be read"), readable(*rows_with(Item)):
        raise Muted


def rows_with(model: Any) -> tuple[Any, Any]:
    """Return a backfill, and its rows."""
    declared = declare(None, model).backfill
    return declared, rows_of(declared)
