"""Two databases: one with the callers' tables and an outbox, one with the queue. A pytest plugin of these tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.test.utils import override_settings
from pytest_django import DjangoDbBlocker

from tests.processes import database_url
from ultimat3_jobs.models import Job, JobAttempt, JobEvent, JobStep, OutboxEntry

SECOND = "second"
ROUTERS = ["ultimat3_jobs.routers.QueueRouter"]
SPLIT: dict[str, Any] = {"POLL": "50ms", "QUEUE_DATABASE": SECOND, "OUTBOX": {"DATABASES": ["default"]}}


def split(**outbox: Any) -> dict[str, Any]:
    """Return the settings of a queue in the second database, with these of the outbox beside."""
    return SPLIT | {"OUTBOX": SPLIT["OUTBOX"] | outbox}


def environment() -> dict[str, str]:
    """Return what tells a child process of the two databases."""
    return {"TEST_SECOND_URL": database_url(SECOND), "TEST_ROUTERS": ",".join(ROUTERS)}


@pytest.fixture(scope="session")
def second_database(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Make a second database of the same kind with the app's tables, and name it in DATABASES; its alias."""
    settings = copy.deepcopy(connection.settings_dict)
    with django_db_blocker.unblock():
        if connection.vendor == "postgresql":
            settings["NAME"] = f"{settings['NAME']}_second"
            _execute(
                f'DROP DATABASE IF EXISTS "{settings["NAME"]}" WITH (FORCE)', f'CREATE DATABASE "{settings["NAME"]}"'
            )
        else:
            settings["NAME"] = str(tmp_path_factory.mktemp("second") / "second.sqlite3")
        connections.databases[SECOND] = settings
        executor = MigrationExecutor(connections[SECOND])
        executor.migrate([node for node in executor.loader.graph.leaf_nodes() if node[0] == "ultimat3_jobs"])
    yield SECOND
    with django_db_blocker.unblock():
        connections[SECOND].close()
        del connections[SECOND]
        del connections.databases[SECOND]
        if connection.vendor == "postgresql":
            _drop(settings["NAME"])


@pytest.fixture
def second(second_database: str, outbox: None) -> Iterator[str]:
    """Two databases whose tables are empty, and emptied again; the alias of the second."""
    yield second_database
    for alias in ("default", second_database):
        for model in (Job, JobAttempt, JobEvent, JobStep, OutboxEntry):
            model._default_manager.using(alias).all().delete()


@pytest.fixture
def apart(second: str) -> Iterator[str]:
    """The queue in the second database, the outbox beside the callers' tables; the queue's alias."""
    with override_settings(DATABASE_ROUTERS=ROUTERS, ULTIMAT3_JOBS=SPLIT):
        yield second


@pytest.fixture
def two_outboxes(second: str) -> Iterator[str]:
    """The queue and an outbox in the first database, another outbox in the second; the alias of the second."""
    setting = {"POLL": "50ms", "QUEUE_DATABASE": "default", "OUTBOX": {"DATABASES": ["default", second]}}
    with override_settings(DATABASE_ROUTERS=ROUTERS, ULTIMAT3_JOBS=setting):
        yield second


def _drop(name: str) -> None:
    _execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
