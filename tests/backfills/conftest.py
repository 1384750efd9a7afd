"""A scratch project on an empty database of the kind that the tests run on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from tests.processes import Processes
from tests.scratch_project import ScratchProject
from ultimat3_jobs import registry


def scratch_database() -> str:
    """Return the name of the scratch project's database on a server: runs side by side have one each."""
    return f"{connection.settings_dict['NAME']}_scratch"


@pytest.fixture
def nothing_declared(queue: None) -> None:
    """A registry without the backfills that installed apps declare, until the end of the test."""
    for name, one in [*registry._by_name.items()]:
        if one.backfill is not None:
            del registry._by_name[name]


@pytest.fixture
def scratch_here(transactional_db: None, tmp_path: Path, vendor: str) -> Iterator[ScratchProject]:
    """A project of the test's own, on an empty database."""
    url = f"sqlite:///{tmp_path}/empty.sqlite3"
    if vendor == "postgresql":
        name = scratch_database()
        _execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f'CREATE DATABASE "{name}"')
        given = urlsplit(os.environ["DATABASE_URL"])
        # All but the last part of a path names the folder of a Unix socket.
        url = given._replace(path=f"{given.path.rpartition('/')[0]}/{name}").geturl()
    folder = tmp_path / "project"
    folder.mkdir()
    with Processes(tmp_path, url) as processes:
        yield ScratchProject(folder, processes)
    if vendor == "postgresql":
        _execute(f'DROP DATABASE IF EXISTS "{scratch_database()}" WITH (FORCE)')


def _execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
