"""The databases of the chaos run: fresh ones, and their sessions as the storm sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from django.db import connection

STORM = "chaos storm"


@contextmanager
def fresh_sqlite(folder: Path) -> Iterator[str]:
    """Yield the URL of a new SQLite file."""
    yield f"sqlite:///{folder / 'chaos.sqlite3'}"


@contextmanager
def fresh_postgresql(server: str) -> Iterator[str]:
    """Make a database on a server, yield its URL, and drop it."""
    name = f"chaos_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as opened:
        opened.execute(f"CREATE DATABASE {name}")
    parts = urlsplit(server)
    try:
        yield parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as opened:
            opened.execute(f"DROP DATABASE {name} WITH (FORCE)")


def name_session() -> None:
    """Tell this thread's session from those of the workers: it is not to be cut."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('application_name', %s, false)", [STORM])


def sessions() -> list[tuple[int, str]]:
    """Return process id and state of the workers' sessions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, coalesce(state, '') FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND application_name <> %s ORDER BY pid",
            [STORM],
        )
        return cursor.fetchall()


def cut(session: int) -> bool:
    """End a session; return whether it was there."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [session])
        return bool(cursor.fetchone()[0])
