"""The checksum of a declaration changes with what is done, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, models
from django.db.models import Exists, F, OuterRef, Q, Value

from tests.app.models import Effect
from tests.backfills.declared import definition
from tests.backfills.handlers import rich
from tests.processes import ROOT_DIRECTORY
from ultimat3_jobs.backfills.checksum import checksum

pytestmark = pytest.mark.django_db

WRITTEN_DOWN = "c63c3722c7f741b8a50aaff19d8b5e7af9cf49bddd4bb3c9dc17896e8724b314"


@pytest.fixture
def of_code(tmp_path: Path) -> Callable[[str], str]:
    """Return the checksum of the function `sweep` of a module with this text."""
    numbers = iter(range(1_000))

    def of(text: str) -> str:
        file = tmp_path / f"backfills_{next(numbers)}.py"
        file.write_text(text)
        spec = util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return checksum(definition(handler=module.sweep), Effect.objects.all())

    return of


def of_rows(queryset: models.QuerySet[Any]) -> str:
    return checksum(definition(handler=rich), queryset)


PLAIN = "def sweep(run, rows):\n    for row in rows:\n        row.detail = 'x'\n"

ALIKE = {
    "comments": "# one\n" + PLAIN.replace(":\n", ":  # two\n    # three\n"),
    "layout": 'def sweep(\n    run,\n    rows,\n):\n\n\n  for row in (rows):\n      row.detail = ("x"\n"")\n',
    "docstring": PLAIN.replace(":\n", ':\n    """Says what."""\n', 1),
    "position": f"x = 1\n\n\n{PLAIN}",
    "decorators": f"def to(**options):\n    return lambda f: f\n\n\n@to(batch=5)\n{PLAIN}",
    "its name": PLAIN.replace("sweep", "other") + "\n\nsweep = other\n",
    "where it is": "class Inner:\n    @staticmethod\n"
    + "".join(f"    {line}\n" for line in PLAIN.splitlines())
    + "\n\nsweep = Inner.sweep\n",
    "what else is there": f"{PLAIN}\n\ndef another(run, rows):\n    return 1\n",
}
OTHER = {
    "a value": PLAIN.replace("'x'", "'y'"),
    "a type of value": PLAIN.replace("'x'", "b'x'"),
    "a name": PLAIN.replace("detail", "label"),
    "a parameter": PLAIN.replace("(run, rows)", "(run, rows, more=1)"),
    "a statement": f"{PLAIN}    return None\n",
    "an order": PLAIN.replace("row.detail = 'x'", "row.detail = 'x'; row.save()"),
    "async": f"async {PLAIN}",
}


@pytest.mark.parametrize("text", ALIKE.values(), ids=ALIKE)
def test_how_it_is_written_down_is_not_in_it(of_code: Callable[[str], str], text: str) -> None:
    assert of_code(text) == of_code(PLAIN)


@pytest.mark.parametrize("text", OTHER.values(), ids=OTHER)
def test_what_the_handler_does_is_in_it(of_code: Callable[[str], str], text: str) -> None:
    assert of_code(text) != of_code(PLAIN)


def test_the_lines_of_a_long_string_are_in_it_as_they_are(of_code: Callable[[str], str]) -> None:
    def inside(text: str) -> str:
        lines = ["class Inner:", "    @staticmethod", "    def sweep(run, rows):", f'        return """{text}"""']
        return "\n".join([*lines, "", "", "sweep = Inner.sweep", ""])

    assert of_code(inside("a\nb")) == of_code('def sweep(run, rows):\n    return """a\nb"""\n')
    assert of_code(inside("a\n        b")) != of_code(inside("a\nb"))


def test_every_supported_python_gives_the_checksum_that_is_written_down() -> None:
    assert of_rows(Effect.objects.filter(label="old", attempt__lt=5)) == WRITTEN_DOWN


def test_code_that_cannot_be_had_has_none() -> None:
    namespace: dict[str, Any] = {}
    exec(PLAIN, namespace)

    assert checksum(definition(handler=namespace["sweep"]), Effect.objects.all()) == ""
    assert checksum(definition(handler=print), Effect.objects.all()) == ""
    assert checksum(definition(handler=lambda run, rows: None), Effect.objects.all()) == ""


class Label(StrEnum):
    OLD = "old"


EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Effect.objects.all(), Effect.objects.only("label")),
        (Effect.objects.filter(label="old"), Effect.objects.filter(label=Label.OLD)),
        (Effect.objects.filter(label__in=["a", "b"]), Effect.objects.filter(label__in=["b", "a"])),
        (User.objects.filter(last_login__lt=EARLY), User.objects.filter(last_login__lt=LATE)),
        (
            User.objects.filter(last_login__date=date(2026, 1, 1)),
            User.objects.filter(last_login__date=date(2026, 1, 2)),
        ),
        (
            Effect.objects.filter(Exists(User.objects.filter(date_joined__gt=EARLY, pk=OuterRef("pk")))),
            Effect.objects.filter(Exists(User.objects.filter(date_joined__gt=LATE, pk=OuterRef("pk")))),
        ),
        (
            User.objects.alias(then=Value(EARLY, models.DateTimeField())).filter(last_login__lt=F("then")),
            User.objects.alias(then=Value(LATE, models.DateTimeField())).filter(last_login__lt=F("then")),
        ),
    ],
)
def test_filters_that_are_alike(one: models.QuerySet[Any], other: models.QuerySet[Any]) -> None:
    assert of_rows(one) == of_rows(other)


OTHERS = [
    Effect.objects.filter(label="old"),
    Effect.objects.all(),
    Effect.objects.filter(label="older"),
    Effect.objects.filter(detail="old"),
    Effect.objects.exclude(label="old"),
    Effect.objects.filter(label="old", pid=0),
    Effect.objects.filter(Q(label="old") | Q(pid=1)),
    Effect.objects.filter(label="2026-01-01 00:00:00"),
    Effect.objects.filter(label="2026-01-02 00:00:00"),
    Effect.objects.filter(label__in=["a", "b"], pid=1, attempt=2),
    Effect.objects.filter(label__in=["a", "b"], pid=2, attempt=1),
    Effect.objects.filter(label__in=["a", "c"], pid=2, attempt=1),
    Effect.objects.filter(label__in=[]),
    User.objects.filter(username="old"),
    User.objects.filter(last_login__lt=EARLY),
    User.objects.filter(last_login__gt=EARLY),
    User.objects.alias(later=F("last_login") + timedelta(1)).filter(later__lt=EARLY),
    User.objects.alias(later=F("last_login") + timedelta(2)).filter(later__lt=EARLY),
]


def test_other_filters_give_another_checksum() -> None:
    found = [of_rows(queryset) for queryset in OTHERS]

    assert len(set(found)) == len(OTHERS)


def test_no_connection_is_opened_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(connections["default"])
    opened: list[Any] = []
    connect = kind.connect
    monkeypatch.setattr(kind, "connect", lambda self: opened.append(self) or connect(self))

    of_rows(Effect.objects.filter(label__in=["a", "b"], pid=1))

    assert opened == []


def test_a_set_gives_one_checksum_in_every_process() -> None:
    code = (
        "import django; django.setup()\n"
        "from tests.app.models import Effect\n"
        "from tests.backfills.test_checksum import of_rows\n"
        "print(of_rows(Effect.objects.filter(pid=1, label__in={'a', 'b', 'c', 'd', 'e'}, attempt=2)))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT_DIRECTORY,
            env={"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(found) == 1
