"""Commands run as they stand, and no password is ever printed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project_settings

from example_project.catalogs import commandlines

SECRET = "s3cret&word"


def database(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """Make `values` the settings of the default database, as far as the module looks."""
    whole = {
        "ENGINE": "django.db.backends.postgresql",
        "USER": "",
        "PASSWORD": "",
        "HOST": "",
        "PORT": "",
        "NAME": "x",
    }
    whole = {**whole, "OPTIONS": {}, **values}

    class Alias:
        settings_dict = whole

    monkeypatch.setattr(commandlines, "connections", {"default": Alias()})


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": "/a/b.sqlite3"}, "sqlite:////a/b.sqlite3"),
        (
            {"USER": "me", "PASSWORD": SECRET, "HOST": "db", "PORT": 5432, "NAME": "jobs"},
            "postgresql://me:***@db:5432/jobs",
        ),
        ({"USER": "me", "HOST": "db", "NAME": "jobs"}, "postgresql://me@db/jobs"),
        (
            {"USER": "me", "NAME": "jobs", "OPTIONS": {"host": "/run/pg"}},
            "postgresql://me@/jobs?host=/run/pg",
        ),
        ({"HOST": "/run/pg", "NAME": "jobs"}, "postgresql:///jobs?host=/run/pg"),
    ],
)
def test_a_database_is_named_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], shown: str
) -> None:
    database(monkeypatch, **values)
    assert commandlines.database_name() == shown


@pytest.mark.parametrize(
    "values",
    [
        {"USER": "me", "PASSWORD": SECRET, "HOST": "db"},
        {"USER": "me", "HOST": "db", "OPTIONS": {"password": SECRET}},
        {"USER": "me", "HOST": "db", "OPTIONS": {"sslpassword": SECRET}},
    ],
)
def test_a_url_with_a_secret_is_not_repeated(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://me:{SECRET}@db/x?password={SECRET}")
    database(monkeypatch, **values)
    line = commandlines.environment()
    assert line is not None
    assert line.startswith("# DATABASE_URL must be set")
    assert SECRET not in line


def test_a_url_without_a_secret_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://me@/x?host=/run/with space"
    monkeypatch.setenv("DATABASE_URL", url)
    database(monkeypatch, USER="me", OPTIONS={"host": "/run/with space"})
    line = commandlines.environment()
    assert line is not None
    shown = subprocess.run(
        ["sh", "-c", f'{line}; printf %s "$DATABASE_URL"'], capture_output=True, text=True, check=True
    )
    assert shown.stdout == url


def test_the_default_database_needs_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert commandlines.environment() is None


@pytest.mark.parametrize("on_path", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_a_command_runs_from_where_it_was_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_path: bool, inside: bool
) -> None:
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setattr(project_settings, "BASE_DIR", root, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin" if on_path else "/usr/bin:/bin")
    monkeypatch.chdir(root if inside else tmp_path)

    command = commandlines.manage("help", "--version-of", "a b")
    words = shlex.split(command)
    assert words[1:] == ["manage.py" if inside else str(root / "manage.py"), "help", "--version-of", "a b"]
    if on_path:
        assert words[0] == "python"
    ran = subprocess.run(commandlines.manage("version"), shell=True, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
