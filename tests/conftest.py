"""Fixtures of the whole suite: the database, further connections to it, threads and processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import setup_databases, teardown_databases
from pytest_django import DjangoDbBlocker

from tests import emptying
from tests.emptying import empty_tables, let_go
from tests.processes import TIMEOUT, Processes, database_url

pytest_plugins = ["tests.selection", "tests.declaring", "tests.scratch_project", "tests.working", "tests.outbox.two"]

database = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give SQLite's test database a file of its own, which threads and child processes can open too.

    `TEST_SQLITE_FILE` names a file that runs with `--reuse-db` share.
    """
    if connection.vendor == "sqlite":
        named = os.environ.get("TEST_SQLITE_FILE")
        file = Path(named) if named else tmp_path_factory.mktemp("database") / "test.sqlite3"
        connection.settings_dict["TEST"]["NAME"] = str(file)


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest,
    django_test_environment: None,
    django_db_modify_db_settings: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """Make the test database for whatever tests run, and note what it says it is.

    The plugin's own fixture makes none where no test has its marker, and a test would then write to the real one.
    """
    keep = bool(request.config.getoption("reuse_db"))
    if keep and os.environ.get(emptying.MADE):
        emptying.take_made_database()
        if os.environ[emptying.MADE] == emptying.LEFT:
            with django_db_blocker.unblock():
                empty_tables()
        yield
        return
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases=["default"], keepdb=keep)
        with connection.cursor() as cursor:
            statement = "SHOW server_version" if connection.vendor == "postgresql" else "SELECT sqlite_version()"
            cursor.execute(statement)
            request.config.stash[database] = f"{connection.display_name} {cursor.fetchone()[0]}"
    yield
    with django_db_blocker.unblock():
        emptying.close()
        teardown_databases(made, verbosity=0, keepdb=keep)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which database the tests were run on."""
    terminalreporter.line(f"database: {config.stash.get(database, 'none was opened')}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Show what the child processes of a failed test had to say."""
    report = yield
    if report.failed:
        processes = getattr(item, "funcargs", {}).get("processes")
        for child in processes.children if processes else ():
            report.sections.append((f"{child.command} (process {child.pid})", child.output()))
    return report


@pytest.fixture
def vendor() -> str:
    """The database of this run: "postgresql" or "sqlite"."""
    return connection.vendor


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The database outside any transaction, in place of pytest-django's fixture of this name.

    It empties the tables that a test has filled: to flush them all takes longer than most tests do.
    """
    with django_db_blocker.unblock():
        yield
        let_go(connection)
        empty_tables()


@pytest.fixture
def processes(transactional_db: None, tmp_path: Path) -> Iterator[Processes]:
    """Child processes on the test database; they are ended, then the tables are emptied."""
    with Processes(tmp_path, database_url()) as started:
        yield started


@pytest.fixture
def new_connection(transactional_db: None) -> Iterator[Callable[[], BaseDatabaseWrapper]]:
    """Make a connection to the test database beside the thread's own; closed after the test."""
    opened: list[BaseDatabaseWrapper] = []

    def connect() -> BaseDatabaseWrapper:
        opened.append(connection.copy())
        return opened[-1]

    yield connect
    for further in opened:
        further.close()


class InThreads(Protocol):
    """Runs callables at the same time and returns what they returned, in their order."""

    def __call__(self, *callables: Callable[[], Any], timeout: float = TIMEOUT) -> list[Any]: ...


@pytest.fixture
def in_threads(transactional_db: None) -> InThreads:
    """Run callables at the same time, each in a thread with its own Django connections, which are closed at
    its end.

    All threads are there before the first callable starts. Inside, let a `threading.Barrier(n, timeout=30)`
    or an event decide who does what when. The error of one is raised as it is, those of several as a group; a
    thread that does not end within `timeout` seconds is an AssertionError.
    """

    def run(*callables: Callable[[], Any], timeout: float = TIMEOUT) -> list[Any]:
        results: list[Any] = [None] * len(callables)
        errors: list[Exception] = []
        all_there = threading.Barrier(len(callables), timeout=timeout)

        def body(position: int) -> None:
            try:
                all_there.wait()
                results[position] = callables[position]()
            except Exception as error:
                errors.append(error)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=body, args=[n], daemon=True) for n in range(len(callables))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
        if len(errors) > 1:
            raise ExceptionGroup("several threads failed", errors)
        if errors:
            raise errors[0]
        stuck = [thread.name for thread in threads if thread.is_alive()]
        assert not stuck, f"still running after {timeout:g} s: {', '.join(stuck)}"
        return results

    return run
