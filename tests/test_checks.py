"""The numbered system checks."""

from __future__ import annotations

import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.db.utils import ConnectionHandler, ConnectionRouter
from django.test import override_settings

from tests.processes import ROOT_DIRECTORY, Processes
from tests.scratch_project import ScratchProject
from ultimat3_jobs import NO_TENANT, backfill, checks
from ultimat3_jobs.durations import parse_duration

pytestmark = pytest.mark.django_db  # other checks ask the database what it can do


def ours(setting: Any) -> list[CheckMessage]:
    """Return what the checks of this app say of a setting, as `manage.py check` runs them."""
    with override_settings(ULTIMAT3_JOBS=setting):
        return [message for message in run_checks() if str(message.id).startswith("ultimat3_jobs.")]


@pytest.mark.parametrize("setting", [{}, {"LEASE": "30s", "RENEWAL": "10s"}, {"LEASE": "3ms", "RENEWAL": "1ms"}])
def test_sound_settings_pass(setting: Any) -> None:
    assert ours(setting) == []


def test_e001_settings_that_cannot_be_read_are_reported_with_their_fix() -> None:
    (message,) = ours({"LEASE": "soon"})

    assert message.id == "ultimat3_jobs.E001"
    assert "soon" in message.msg
    assert message.hint == 'ULTIMAT3_JOBS["LEASE"] = "30s"'


@override_settings(ULTIMAT3_JOBS={"LEASES": "30s"})
def test_e001_stops_a_command() -> None:
    with pytest.raises(SystemCheckError, match=r"ultimat3_jobs\.E001.*LEASES"):
        call_command("check")


@pytest.mark.parametrize(
    "setting",
    [
        {"LEASE": "30s", "RENEWAL": "30s"},
        {"LEASE": "30s", "RENEWAL": "10001ms"},
        {"LEASE": "29s"},
        {"RENEWAL": "11s"},
        {"LEASE": "50ms", "RENEWAL": "1s"},
        {"LEASE": "10001ms", "RENEWAL": "9s"},
    ],
)
def test_e002_a_renewal_over_a_third_of_the_lease_is_reported_with_one_that_is_not(setting: dict[str, Any]) -> None:
    (message,) = ours(setting)
    assert message.id == "ultimat3_jobs.E002"
    assert message.hint is not None
    proposed = re.search(r'ULTIMAT3_JOBS\["RENEWAL"\].*"(\w+)"', message.hint)
    assert proposed, message.hint

    assert parse_duration(proposed[1]) > timedelta(0)
    assert ours(setting | {"RENEWAL": proposed[1]}) == []


def test_e002_of_a_lease_too_short_for_any_renewal_says_to_lengthen_it() -> None:
    (message,) = ours({"LEASE": "2ms", "RENEWAL": "1ms"})

    assert message.id == "ultimat3_jobs.E002"
    assert message.hint == 'set ULTIMAT3_JOBS["LEASE"] to "30s"'


SQLITE = "django.db.backends.sqlite3"
POSTGRESQL = "django.db.backends.postgresql"
RECOMMENDED = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"}


class Project:
    """Databases and routers that a project could have; nothing is connected to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def says(self, *routers: Any, **databases: dict[str, Any]) -> list[CheckMessage]:
        """Return what the checks of databases say."""
        # A new handler fills in what the settings leave out, and the router is asked as Django asks it.
        self._monkeypatch.setattr(checks, "connections", ConnectionHandler({"default": {}, **databases}))
        self._monkeypatch.setattr(checks, "router", ConnectionRouter(list(routers)))
        return checks.check_databases()

    def only(self, *routers: Any, **databases: dict[str, Any]) -> CheckMessage:
        """Return the one message."""
        (message,) = self.says(*routers, **databases)
        assert message.hint
        assert "\n" not in message.hint
        return message


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project that is not this one."""
    return Project(monkeypatch)


def sqlite(name: str = "none.sqlite3", **options: Any) -> dict[str, Any]:
    """Return a SQLite database with the recommended options but for these; None takes one out."""
    chosen = {name: value for name, value in {**RECOMMENDED, **options}.items() if value is not None}
    return {"ENGINE": SQLITE, "NAME": name, "OPTIONS": chosen}


def postgresql(**options: Any) -> dict[str, Any]:
    """Return a PostgreSQL database with these options."""
    return {"ENGINE": POSTGRESQL, "NAME": "none", "HOST": "127.0.0.1", "PORT": "1", "OPTIONS": options}


def route(alias: str) -> Any:
    """Return a router that sends everything to one alias."""
    return SimpleNamespace(db_for_write=lambda model, **hints: alias)


def pasted(message: CheckMessage, alias: str = "default") -> dict[str, Any]:
    """Carry out a hint as it stands, and return the database it gives."""
    databases: dict[str, Any] = {alias: sqlite()}
    exec(str(message.hint), {"DATABASES": databases})
    database: dict[str, Any] = databases[alias]
    return database


def test_what_the_documentation_recommends_passes(project: Project) -> None:
    written = re.search(r'"OPTIONS": (\{.*?\})`', (ROOT_DIRECTORY / "README.md").read_text().replace("\n", " "))
    assert written

    assert eval(written[1]) == RECOMMENDED
    assert project.says(default=sqlite()) == []
    assert project.says(default=postgresql()) == []


@pytest.mark.parametrize(
    "database",
    [
        postgresql(isolation_level=2),
        postgresql(isolation_level=1),
        postgresql(pool=False),
        postgresql(pool={"min_size": 2, "max_size": 15}),
        postgresql(pool={"min_size": 15}),
        postgresql(options="-c statement_timeout=0"),
        postgresql() | {"ATOMIC_REQUESTS": True, "CONN_MAX_AGE": 600, "DISABLE_SERVER_SIDE_CURSORS": True},
        sqlite(":memory:", init_command=None),
        sqlite("file:jobs?mode=memory&cache=shared", init_command=None),
        sqlite(transaction_mode="immediate"),
        sqlite(transaction_mode="EXCLUSIVE"),
        sqlite(init_command="PRAGMA synchronous=NORMAL; pragma Journal_Mode = 'wal';"),
        sqlite(timeout=10),
    ],
    ids=repr,
)
def test_what_does_no_harm_is_not_reported(project: Project, database: dict[str, Any]) -> None:
    assert project.says(default=database) == []


def test_broken_settings_are_all_that_is_said(project: Project) -> None:
    with override_settings(ULTIMAT3_JOBS={"LEASES": 1}):
        assert project.says(default={"ENGINE": SQLITE, "NAME": "x", "AUTOCOMMIT": False}) == []
        assert [message.id for message in checks.check_settings()] == ["ultimat3_jobs.E001"]
        assert checks.check_admin() == checks.check_reachable(databases=["default"]) == []


def test_e003_an_alias_that_is_not_there(project: Project) -> None:
    message = project.only(route("jobs"), default=sqlite(), other=sqlite())

    assert message.id == "ultimat3_jobs.E003"
    assert "'jobs'" in message.msg
    assert message.hint == "return one of 'default', 'other' from db_for_write() for the app ultimat3_jobs"
    assert project.says(route("other"), default={}, other=sqlite()) == []
    mistyped = project.only(route("job"), default=sqlite(), jobs=sqlite())
    assert mistyped.hint == "return 'jobs' from db_for_write() for the app ultimat3_jobs"


@pytest.mark.parametrize("engine", [SQLITE, POSTGRESQL])
def test_e003_options_that_are_no_dict(project: Project, engine: str) -> None:
    message = project.only(default={"ENGINE": engine, "NAME": "none", "OPTIONS": None})

    assert message.id == "ultimat3_jobs.E003"
    assert message.hint == "set DATABASES['default'][\"OPTIONS\"] to a dict, or remove it"


@pytest.mark.parametrize("engine", ["django.db.backends.dummy", "django.db.backends.nothing", ""])
def test_e003_a_database_of_another_kind(project: Project, engine: str) -> None:
    message = project.only(default={"ENGINE": engine})

    assert message.id == "ultimat3_jobs.E003"
    exec(str(message.hint).partition(" to ")[0].removeprefix("set "), {"DATABASES": {"default": {"ENGINE": ""}}})


@pytest.mark.parametrize("database", [sqlite(), postgresql()], ids=["sqlite", "postgresql"])
def test_e004_autocommit_is_off(project: Project, database: dict[str, Any]) -> None:
    message = project.only(route("jobs"), jobs=database | {"AUTOCOMMIT": False})

    assert message.id == "ultimat3_jobs.E004"
    assert project.says(jobs=database | {"AUTOCOMMIT": False}, default=sqlite()) == [], "it holds no jobs"


@pytest.mark.parametrize(
    "options",
    [
        {"isolation_level": 3},
        {"isolation_level": 4},
        {"options": "-c default_transaction_isolation=serializable"},
        {"options": r"-c default_transaction_isolation=repeatable\ read -c lock_timeout=0"},
    ],
)
def test_e005_isolation_above_read_committed(project: Project, options: dict[str, Any]) -> None:
    assert project.only(default=postgresql(**options)).id == "ultimat3_jobs.E005"


def test_e005_knows_the_drivers_own_names_of_the_levels() -> None:
    from psycopg import IsolationLevel

    assert IsolationLevel.READ_COMMITTED == checks.READ_COMMITTED < IsolationLevel.REPEATABLE_READ


def test_e006_a_sqlite_that_lacks_statements(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert project.only(default=sqlite()).id == "ultimat3_jobs.E006"
    assert project.says(default=postgresql()) == []
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 35, 0))
    assert project.says(default=sqlite()) == []


def test_e007_a_database_that_cannot_be_reached(project: Project, tmp_path: Path) -> None:
    project.says(route("jobs"), jobs=sqlite(str(tmp_path / "no folder" / "jobs.sqlite3")), default=sqlite())
    assert checks.check_reachable() == checks.check_reachable(databases=["default"]) == [], "nobody asked"
    (message,) = checks.check_reachable(databases=["jobs", "default"])
    assert message.id == "ultimat3_jobs.E007"
    assert "unable to open database file" in message.msg
    assert str(message.hint).startswith("python manage.py dbshell --database jobs ")

    project.says(default=postgresql())
    assert [message.id for message in checks.check_reachable(databases=["default"])] == ["ultimat3_jobs.E007"]


def test_a_database_that_can_be_reached_passes() -> None:
    reached = run_checks(databases=[connection.alias])

    assert [message for message in reached if str(message.id).startswith("ultimat3_jobs.")] == []


def templates(**entry: Any) -> list[dict[str, Any]]:
    """Return the setting TEMPLATES with one entry."""
    return [{"BACKEND": "django.template.backends.django.DjangoTemplates", **entry}]


def test_e008_the_admin_finds_no_templates() -> None:
    with override_settings(TEMPLATES=templates()):
        (message,) = checks.check_admin()
    assert message.id == "ultimat3_jobs.E008"
    assert "APP_DIRS" in str(message.hint)


def test_e008_says_nothing_where_templates_are_found_or_django_says_it_or_there_is_no_admin() -> None:
    loader = "django.template.loaders.app_directories.Loader"
    apps = ["django.contrib.contenttypes", "ultimat3_jobs"]
    with override_settings(TEMPLATES=templates(OPTIONS={"loaders": [loader]})):
        assert checks.check_admin() == []
    with override_settings(TEMPLATES=[]):
        assert checks.check_admin() == [], "admin.E403 says it"
    with override_settings(TEMPLATES=[{"BACKEND": "no.such.Backend"}]):
        assert checks.check_admin() == []
    with override_settings(TEMPLATES=templates(), INSTALLED_APPS=apps):
        assert checks.check_admin() == []


@pytest.mark.parametrize("mode", [None, "DEFERRED"])
def test_w001_transactions_that_begin_as_readers(project: Project, mode: str | None) -> None:
    message = project.only(default=sqlite(transaction_mode=mode))

    assert message.id == "ultimat3_jobs.W001"
    assert project.says(default=pasted(message)) == []


def test_w002_a_file_without_a_write_ahead_log(project: Project, tmp_path: Path) -> None:
    file = str(tmp_path / "jobs.sqlite3")
    message = project.only(route("jobs"), jobs=sqlite(file, init_command=None))
    assert message.id == "ultimat3_jobs.W002"
    assert project.says(route("jobs"), jobs=pasted(message, "jobs")) == []

    # The mode stays in the file.
    opened = sqlite3.connect(file)
    opened.execute("CREATE TABLE t (n)")
    assert [one.id for one in project.says(default=sqlite(file, init_command=None))] == ["ultimat3_jobs.W002"]
    opened.execute("PRAGMA journal_mode=WAL")
    opened.close()
    assert project.says(default=sqlite(file, init_command=None)) == []


@pytest.mark.parametrize("timeout", [None, 0, 9.9])
def test_w003_writers_that_do_not_wait(project: Project, timeout: float | None) -> None:
    message = project.only(default=sqlite(timeout=timeout))

    assert message.id == "ultimat3_jobs.W003"
    assert project.says(default=pasted(message)) == []


@pytest.mark.parametrize("pool", [True, {"max_size": 14}, {"min_size": 14}, {"min_size": 1}, {"timeout": 5}])
def test_w004_a_pool_that_is_too_small(project: Project, pool: Any) -> None:
    message = project.only(default=postgresql(pool=pool))
    assert message.id == "ultimat3_jobs.W004"
    databases = {"default": postgresql(pool=pool)}
    exec(str(message.hint), {"DATABASES": databases})

    assert project.says(**databases) == []
    with override_settings(ULTIMAT3_JOBS={"CONCURRENCY": 1}):
        assert project.says(default=postgresql(pool={"max_size": 6})) == []
        assert project.only(default=postgresql(pool=True)).id == "ultimat3_jobs.W004"


@pytest.mark.usefixtures("isolated_registry")
def test_w005_a_backfill_for_environments_where_nobody_says_which_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"tenant": NO_TENANT, "source": lambda: None}

    def sweep(run: Any, rows: Any) -> None: ...

    backfill(name="t.all", **options)(sweep)
    assert ours({}) == []

    def other(run: Any, rows: Any) -> None: ...

    backfill(name="t.some", environments=["staging", "production"], **options)(other)

    (message,) = ours({})
    assert message.id == "ultimat3_jobs.W005"
    assert "t.some" in message.msg
    assert "t.all" not in message.msg
    assert ours({"ENVIRONMENT": "staging"}) == []
    assert str(message.hint).endswith("; this backfill is meant for 'staging', 'production'")

    def third(run: Any, rows: Any) -> None: ...

    backfill(name="t.third", environments=["production", "demo"], **options)(third)
    (message,) = ours({})
    assert str(message.hint).endswith("; these backfills are meant for 'staging', 'production', 'demo'")
    # What is typed on any of them names that place, and where the place has no name it names none.
    for place in ("demo", ""):
        monkeypatch.setenv("ENVIRONMENT", place)
        typed: dict[str, Any] = {}
        exec(str(message.hint), {"ULTIMAT3_JOBS": typed})
        assert typed == {"ENVIRONMENT": place}


def test_every_check_is_in_the_documentation_and_is_tested_by_its_number() -> None:
    made = set(re.findall(r'id="(ultimat3_jobs\.[EW]\d+)"', Path(checks.__file__).read_text()))
    written = set(re.findall(r"`(ultimat3_jobs\.[EW]\d+)`", (ROOT_DIRECTORY / "docs" / "settings.md").read_text()))
    tested = re.findall(r"^def test_([ew]\d+)_", Path(__file__).read_text(), re.MULTILINE)

    assert made == written == {f"ultimat3_jobs.{number.upper()}" for number in tested}
    assert len(made) == 13


DEFAULT_PROJECT = """
from tests.settings import *
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {file!r}}}}}
ULTIMAT3_JOBS = {{}}
import sys
sys.modules["psycopg"] = None
"""


def test_djangos_own_settings_give_warnings_and_need_no_driver(scratch: ScratchProject, tmp_path: Path) -> None:
    scratch.write("scratch_settings.py", DEFAULT_PROJECT.format(file=str(tmp_path / "db.sqlite3")))
    said = scratch.manage("check").output()

    assert re.findall(r"ultimat3_jobs\.[EW]\d+", said) == [f"ultimat3_jobs.W00{n}" for n in (1, 2, 3)], said


@pytest.mark.parametrize("settings", ["example_project.settings", "tests.settings"])
def test_the_settings_of_this_repository_pass(tmp_path: Path, settings: str) -> None:
    with Processes(tmp_path, f"sqlite:///{tmp_path}/empty.sqlite3") as processes:
        child = processes.manage(
            "check", "--fail-level", "WARNING", "--database", "default", env={"DJANGO_SETTINGS_MODULE": settings}
        )
        assert child.wait() == 0, child.output()
