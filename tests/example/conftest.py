"""The demo as a real process, on a database of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from pytest_django import DjangoDbBlocker

from example_project.catalogs.staging import GROUP_ROLLED_BACK
from tests.processes import Child, Processes, wait_for

FEW = (GROUP_ROLLED_BACK, "sites")
SECRET = "never-to-be-shown"
DEMO_TAKES = 240.0  # seconds, at most, on a machine that has other things to do

# The output that counts goes to a file of its own, apart from progress and logs.
SCRIPT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
sys.argv[0] = "manage.py"
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[2:]])
"""


class Demo:
    """Starts the demo on a database of its own, and looks into its tables."""

    def __init__(self, folder: Path, url: str, database: BaseDatabaseWrapper) -> None:
        self.folder = folder
        self.database = database
        self.environment = {
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "DEMO_FOLDER": str(folder / "demo"),
            "LOG_LEVEL": "INFO",
            # A part of the catalogs shows what all of them do; what a killed worker held is taken over soon.
            "DEMO_GROUPS": ",".join(FEW),
            "DEMO_BATCH": "10",
            "DEMO_LEASE": "1500ms",
            "DEMO_RENEWAL": "500ms",
        }
        self.processes = Processes(folder, url)

    def start(self, *arguments: str) -> Child:
        """Start the demo with these arguments."""
        return self.processes.start("-c", SCRIPT, str(self._output), "demo", *arguments, env=self.environment)

    def run(self, *arguments: str) -> str:
        """Run the demo to its end and return what it printed on standard output."""
        child = self.start(*arguments)
        status = child.wait(DEMO_TAKES)
        assert status == 0, f"the demo ended with {status}:\n{child.output()}\n{self.worker_log()}"
        return self._output.read_text()

    def run_json(self) -> dict[str, Any]:
        """Run `demo --json` to its end and return its object."""
        printed = json.loads(self.run("--json"))
        assert isinstance(printed, dict)
        return printed

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; none while its tables are not there yet."""
        with self.database.cursor() as cursor:
            try:
                cursor.execute(statement)
            except DatabaseError:
                return []
            return list(cursor.fetchall())

    def count(self, statement: str) -> int:
        """Return the one number that a statement selects; 0 while its tables are not there yet."""
        rows = self.query(statement)
        return int(rows[0][0]) if rows else 0

    def worker_log(self) -> str:
        """Return what the worker of the latest run logged."""
        log = self.folder / "demo" / "worker.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def worker_pid(self, child: Child) -> int:
        """Return the process id of the worker that a running demo says it has started."""
        output = child.wait_for_output("started, its log is")
        return int(output.partition("worker ")[2].split()[0])

    @property
    def _output(self) -> Path:
        return self.folder / "stdout"


def is_alive(pid: int) -> bool:
    """Whether there is a process of that id that has not ended; one whose parent has yet to notice has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def wait_until_ended(pid: int) -> None:
    """Wait until that process has ended; it is killed if it does not."""
    try:
        wait_for(lambda: not is_alive(pid), f"process {pid} ends")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise


@contextmanager
def own_database(folder: Path, *, like: str = "") -> Iterator[str]:
    """Make a database for the length of the block, empty or a copy of the one of the name `like`; yield its name."""
    if connection.vendor == "sqlite":
        name = str(folder / "demo.sqlite3")
        if like:
            shutil.copy(like, name)
        yield name
        return
    name = f"demo_{uuid4().hex}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} {f'TEMPLATE {like}' if like else ''}")
    try:
        yield name
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def url_of(name: str) -> str:
    """Return what tells a process of a database."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{quote(name)}"
    return _with_secret(os.environ["DATABASE_URL"], name)


@contextmanager
def demo_on(name: str, folder: Path) -> Iterator[Demo]:
    """Yield the demo on a database. What it leaves running is ended after the block."""
    opened = connection.copy()
    opened.settings_dict["NAME"] = name
    demo = Demo(folder, url_of(name), opened)
    try:
        with demo.processes:
            yield demo
    finally:
        opened.close()


def _with_secret(url: str, name: str) -> str:
    """Return the URL of another database of that server, with a password where it asks for none."""
    parts = urlsplit(url)
    parts = parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}")
    if not parts.password:
        user, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{user.rstrip(':') or 'postgres'}:{SECRET}@{host}")
    return parts.geturl()


@pytest.fixture(scope="session")
def migrated(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """A database with the tables of the demo, to be copied: to make them takes about as long as the demo's work."""
    folder = tmp_path_factory.mktemp("migrated")
    with django_db_blocker.unblock(), own_database(folder) as name:
        with demo_on(name, folder) as demo:
            demo.processes.run("migrate", env=demo.environment)
        yield name


@pytest.fixture
def demo(tmp_path: Path, migrated: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Demo]:
    """The demo on a database whose tables are there and empty."""
    with django_db_blocker.unblock(), own_database(tmp_path, like=migrated) as name, demo_on(name, tmp_path) as started:
        yield started


@pytest.fixture
def first_demo(tmp_path: Path, vendor: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Demo]:
    """The demo on a database that nobody has migrated yet."""
    with django_db_blocker.unblock(), own_database(tmp_path) as name, demo_on(name, tmp_path) as started:
        yield started
