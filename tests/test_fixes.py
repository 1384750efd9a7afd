"""Every error of the package says what mends it, in one line; where that line is code, it is tried here."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from tests.app.models import Organization
from tests.declaring import body_taking, error_of
from tests.processes import ROOT_DIRECTORY
from tests.test_keys import async_key
from tests.test_options import BAD_DECLARATIONS, BAD_USES
from ultimat3_jobs import NO_TENANT, Retry, errors, job
from ultimat3_jobs.errors import JobsError
from ultimat3_jobs.plain import to_plain

pytestmark = pytest.mark.usefixtures("isolated_registry")

COMMANDS: dict[str, str] = {
    "python manage.py jobs show": "tests/inspection/test_command.py::test_the_fix_of_a_refusal_can_be_run_as_it_stands",
    "python manage.py jobs retry  --from-step   # waits": (
        "tests/test_jobs_command.py::test_the_fix_of_an_event_that_did_not_come_waits_for_it_anew"
    ),
    "python manage.py jobs retry": "tests/inspection/test_steps.py::test_the_fixes_that_retry_can_be_run_as_they_stand",
    "python manage.py migrate --database": "tests/inspection/test_command_line.py::test_missing_tables_are_mended",
    "python manage.py check --database": "tests/inspection/test_command_line.py::test_a_database_that_is_away",
}
"""The test that executes each fix that is a command, by the beginning of the command."""

ERRORS = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, JobsError)}


def raised_errors() -> Iterator[tuple[str, ast.Call]]:
    """Yield every place in the package where an error is made."""
    for path in sorted((ROOT_DIRECTORY / "ultimat3_jobs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in ERRORS:
                yield f"{path.relative_to(ROOT_DIRECTORY)}:{node.lineno}", node


def literal_text(node: ast.expr) -> str:
    """Return what of an expression is written as text."""
    return "".join(
        part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def test_every_error_that_the_package_raises_has_a_fix() -> None:
    places = list(raised_errors())

    assert len(places) > 50
    for place, call in places:
        assert any(keyword.arg == "fix" for keyword in call.keywords), place


def test_every_fix_that_is_a_command_is_executed_by_a_test() -> None:
    for place, call in raised_errors():
        fix = next(literal_text(keyword.value) for keyword in call.keywords if keyword.arg == "fix")
        if re.match(r"(python |pip |manage\.py|\./)", fix):
            command = next((known for known in COMMANDS if fix.startswith(known)), None)
            assert command, f"{place}: no test is named for the fix {fix!r}"
            file, _, test = COMMANDS[command].partition("::")
            assert f"def {test}(" in Path(ROOT_DIRECTORY / file).read_text()


def typed(fix: str) -> dict[str, Any]:
    """Run a fix that is an option of a declaration or of `using()`, as it stands."""
    options: dict[str, Any] = eval(f"dict({fix}\n)", {"Retry": Retry, "dict": dict})
    return options


def declare(**options: Any) -> Any:
    return job(**{"name": "tests.body", "idempotency_key": "key", "tenant": NO_TENANT} | options)(body_taking(a=int))


@pytest.mark.parametrize("options", [options for options, _, _ in BAD_DECLARATIONS], ids=str)
def test_a_bad_option_of_a_declaration_is_mended_by_typing_the_fix(options: dict[str, Any]) -> None:
    error = error_of("X_JOB_DECLARATION_INVALID", lambda: declare(**options))

    mended = typed(error.fix)

    assert mended.keys() == options.keys()
    declare(**mended)


@pytest.mark.parametrize("options", [options for options, _, _ in BAD_USES], ids=str)
def test_a_bad_option_of_an_enqueue_is_mended_by_typing_the_fix(options: dict[str, Any]) -> None:
    error = error_of("X_JOB_DECLARATION_INVALID", lambda: declare().using(**options))

    mended = typed(error.fix)

    assert mended.keys() == options.keys()
    declare().using(**mended).call(a=1)


@pytest.mark.parametrize(
    "options",
    [
        {"idempotency_key": ""},
        {"idempotency_key": 5},
        {"idempotency_key": str},
        {"tenant": "z"},
        {"tenant": 5},
        {"name": " "},
        {"aliases": "a"},
    ],
    ids=str,
)
def test_a_bad_key_tenant_or_name_is_mended_by_typing_the_fix(options: dict[str, Any]) -> None:
    with pytest.raises(JobsError) as raised:
        declare(**options)

    declare(**typed(raised.value.fix))


@pytest.mark.parametrize(
    "value",
    [
        "a\0b",
        "a\ud800b",
        2**64,
        b"x",
        {2, 1},
        frozenset({1}),
        (n for n in [1]),
        Organization(pk=5, name="o"),
        SimpleLazyObject(lambda: Organization(pk=5, name="o")),
        gettext_lazy("May"),
    ],
    ids=repr,
)
def test_a_value_that_cannot_be_stored_is_mended_by_what_the_fix_says(value: Any) -> None:
    error = error_of("X_JOB_INPUT_INVALID", lambda: to_plain(value, "$"))

    expression = error.fix.removeprefix("pass ").rpartition(": ")[2]
    mended = eval(expression, {"value": value, "base64": base64})

    to_plain(mended, "$")


def test_rows_of_a_model_are_mended_by_their_primary_keys(db: None) -> None:
    value = Organization.objects.filter(name="none")
    error = error_of("X_JOB_INPUT_INVALID", lambda: to_plain(value, "$"))

    assert to_plain(eval(error.fix.partition(": ")[2]), "$") == []


def test_a_long_key_is_mended_by_hashing_it() -> None:
    error = error_of("X_JOB_INPUT_INVALID", lambda: declare(idempotency_key=lambda: "x" * 256).call(a=1))

    mended = eval(error.fix.partition(": ")[2], {"hashlib": hashlib, "value": "x" * 256})

    assert declare(idempotency_key=lambda: mended).call(a=1).request.idempotency_key == mended


def test_an_async_callable_is_told_to_be_a_plain_one() -> None:
    error = error_of("X_JOB_DECLARATION_INVALID", lambda: declare(idempotency_key=async_key))

    assert error.fix == "write the idempotency_key callable with def"
