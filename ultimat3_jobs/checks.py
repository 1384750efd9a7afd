"""System checks: what would fail later is said at the start, with a hint.

Errors are for what breaks a guarantee, warnings for what hurts. Where `ULTIMAT3_JOBS` itself cannot be read, E001 says
so alone. A check never raises, and connects to a database only where Django asks for checks of that database.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, Warning, register  # noqa: A004 - Django names it so
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from ultimat3_jobs import registry
from ultimat3_jobs.durations import format_duration
from ultimat3_jobs.errors import SettingsInvalid
from ultimat3_jobs.settings import Settings, get_settings
from ultimat3_jobs.sql import VENDORS
from ultimat3_jobs.text import environment_line, nearest

RENEWALS_A_LEASE = 3
SPARE_CONNECTIONS = 5
"""What a worker process needs beside one connection for each body: to claim, to renew, to keep house, to relay, to
write progress."""
OLDEST_SQLITE = (3, 35)
"""The first with UPDATE ... FROM and RETURNING."""
SHORTEST_TIMEOUT = 10
"""Seconds that a writer should wait for its turn on SQLite; Python's default is 5."""
READ_COMMITTED = 2
"""As psycopg numbers the isolation levels."""
DEFAULT_POOL = 4
"""Connections in a pool of psycopg that is not told how many."""
SQLITE_OPTIONS = '{"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"}'

_NO_OPTIONS = 'its "OPTIONS" are no dict'
_WAL = re.compile(r"journal_mode\s*[=(]\s*['\"]?wal\b", re.IGNORECASE)
_STRICTER = re.compile(r"default_transaction_isolation\s*=\s*['\"\\]*(serializable|repeatable)", re.IGNORECASE)
_WRITES_WAL = slice(18, 20)
"""Where the header of a SQLite file has the versions of its format; both are 2 in WAL mode."""


@register()
def check_settings(**_: Any) -> list[CheckMessage]:
    """E001: `ULTIMAT3_JOBS` cannot be read. E002: leases are renewed too seldom to survive one missed renewal."""
    try:
        settings = get_settings()
    except SettingsInvalid as error:
        return [Error(error.cause, hint=error.fix, id="ultimat3_jobs.E001")]
    if settings.renewal * RENEWALS_A_LEASE > settings.lease:
        # Whole milliseconds, rounded down: what the hint proposes must itself pass.
        longest = timedelta(milliseconds=settings.lease // timedelta(milliseconds=RENEWALS_A_LEASE))
        return [
            Error(
                f'ULTIMAT3_JOBS["RENEWAL"] is {format_duration(settings.renewal)}, over a third of "LEASE" '
                f"({format_duration(settings.lease)}): one late renewal and a job runs twice at once",
                hint=f'set ULTIMAT3_JOBS["RENEWAL"] to "{format_duration(longest)}" or less'
                if longest
                else 'set ULTIMAT3_JOBS["LEASE"] to "30s"',
                id="ultimat3_jobs.E002",
            )
        ]
    return []


@register()
def check_backfills(**_: Any) -> list[CheckMessage]:
    """W005: backfills are meant for some environments, and nobody says which this one is: they are refused."""
    settings = _settings()
    if settings is None or settings.environment:
        return []
    swept = [job.backfill for job in registry.all_jobs() if job.backfill is not None]
    meant = {one.name: one.environments for one in swept if one.environments is not None}
    if not meant:
        return []
    places = [place for environments in meant.values() for place in environments]
    return [
        Warning(
            'ULTIMAT3_JOBS["ENVIRONMENT"] is not set, and these backfills are meant for some environments: '
            f"{', '.join(meant)}",
            hint=environment_line(places, "this backfill is" if len(meant) == 1 else "these backfills are"),
            id="ultimat3_jobs.W005",
        )
    ]


@register()
def check_databases(**_: Any) -> list[CheckMessage]:
    """E003 to E006 and the warnings: how the databases of queue and outbox are set up. Connects to none."""
    settings = _settings()
    if settings is None:
        return []
    messages: list[CheckMessage] = []
    for alias in _aliases(settings):
        connection = _connection(alias)
        if isinstance(connection, str):
            messages.append(_unusable(alias, connection))
            continue
        of_the_vendor = _OF_SQLITE if connection.vendor == "sqlite" else _OF_POSTGRESQL
        for check in (_autocommit, *of_the_vendor):
            messages += check(connection, settings)
    return messages


@register(Tags.database)
def check_reachable(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """E007: a database of queue or outbox cannot be reached. Asked with `manage.py check --database ALIAS`."""
    settings = _settings()
    if not databases or settings is None:
        return []
    messages: list[CheckMessage] = []
    for alias in _aliases(settings):
        connection = _connection(alias)
        if alias not in databases or isinstance(connection, str):
            continue
        try:
            connection.ensure_connection()
        except Exception as error:
            messages.append(
                Error(
                    f"the database {alias!r}, which holds jobs, cannot be reached: {str(error).strip()}",
                    hint=f"python manage.py dbshell --database {alias}  # must connect; see DATABASES[{alias!r}]",
                    id="ultimat3_jobs.E007",
                )
            )
    return messages


@register()
def check_admin(**_: Any) -> list[CheckMessage]:
    """E008: the admin is installed, but the templates of installed apps are not found."""
    if not apps.is_installed("django.contrib.admin") or _settings() is None:
        return []
    from django.template import engines  # noqa: PLC0415 - where no admin is installed, nobody needs it
    from django.template.backends.django import DjangoTemplates  # noqa: PLC0415

    try:
        ours = [engine for engine in engines.all() if isinstance(engine, DjangoTemplates)]
    except Exception:
        return []  # Django says what is wrong with TEMPLATES
    if not ours or any(_has_template(engine, "admin/change_list.html") for engine in ours):
        return []
    return [
        Error(
            "django.contrib.admin is installed, but no entry of TEMPLATES finds the templates of installed apps: "
            "the pages of jobs and dead letters cannot be shown",
            hint='set "APP_DIRS": True in the DjangoTemplates entry of TEMPLATES',
            id="ultimat3_jobs.E008",
        )
    ]


def _settings() -> Settings | None:
    try:
        return get_settings()
    except SettingsInvalid:
        return None


def _aliases(settings: Settings) -> list[str]:
    """Return the aliases that hold jobs or staged work, as the routers and the settings say."""
    models = (apps.get_model("ultimat3_jobs", name) for name in ("Job", "OutboxEntry"))
    try:
        return sorted({*(str(router.db_for_write(model)) for model in models), *(settings.outbox.databases or ())})
    except Exception:
        return []  # a router that raises says why wherever it is asked


def _connection(alias: str) -> BaseDatabaseWrapper | str:
    """Return the connection of an alias, not opened; or why it can hold no jobs."""
    try:
        connection = connections[alias]
    except Exception as error:
        return str(error).strip()
    if connection.vendor not in VENDORS:
        return f"it is of the kind {connection.vendor!r}"
    if not isinstance(connection.settings_dict["OPTIONS"], dict):
        return _NO_OPTIONS
    return connection


def _unusable(alias: str, why: str) -> CheckMessage:
    if alias not in connections:
        meant = nearest(alias, connections)
        wanted = f"one of {', '.join(map(repr, connections))}" if meant is None else repr(meant)
        hint = f"return {wanted} from db_for_write() for the app ultimat3_jobs"
    elif why == _NO_OPTIONS:
        hint = f'set DATABASES[{alias!r}]["OPTIONS"] to a dict, or remove it'
    else:
        hint = f'set DATABASES[{alias!r}]["ENGINE"] to "django.db.backends.postgresql" or "django.db.backends.sqlite3"'
    return Error(f"the database {alias!r} cannot hold jobs: {why}", hint=hint, id="ultimat3_jobs.E003")


def _autocommit(connection: BaseDatabaseWrapper, _: Settings) -> Iterator[CheckMessage]:
    if not connection.settings_dict["AUTOCOMMIT"]:
        alias = connection.alias
        yield Error(
            f'DATABASES[{alias!r}]["AUTOCOMMIT"] is off: what a worker claims and settles would never be committed',
            hint=f'remove "AUTOCOMMIT" from DATABASES[{alias!r}], or give jobs a database of their own',
            id="ultimat3_jobs.E004",
        )


def _isolation(connection: BaseDatabaseWrapper, _: Settings) -> Iterator[CheckMessage]:
    options = connection.settings_dict["OPTIONS"]
    level = options.get("isolation_level")
    # The other driver that Django takes numbers the levels differently.
    numbered = isinstance(level, int) and importlib.util.find_spec("psycopg") is not None
    if (numbered and level > READ_COMMITTED) or _STRICTER.search(str(options.get("options", ""))):
        yield Error(
            f"the isolation level of {connection.alias!r} is above READ COMMITTED: where two claims, settlements or "
            "enqueues meet, one fails",
            hint=f'remove "isolation_level" and "default_transaction_isolation" from '
            f'DATABASES[{connection.alias!r}]["OPTIONS"], and put stricter work into an alias of its own',
            id="ultimat3_jobs.E005",
        )


def _pool(connection: BaseDatabaseWrapper, settings: Settings) -> Iterator[CheckMessage]:
    pool = connection.settings_dict["OPTIONS"].get("pool")
    if not pool:
        return
    options = pool if isinstance(pool, dict) else {}
    size = options.get("max_size") or options.get("min_size", DEFAULT_POOL)
    further_relays = len(settings.outbox.databases or ("one",)) - 1
    needed = settings.concurrency + SPARE_CONNECTIONS + further_relays
    if isinstance(size, int) and size < needed:
        place = f'DATABASES[{connection.alias!r}]["OPTIONS"]["pool"]'
        setting = f'{place}["max_size"] = {needed}' if options else f'{place} = {{"max_size": {needed}}}'
        yield Warning(
            f"the connection pool of {connection.alias!r} has {size} connections at most, and a worker of concurrency "
            f"{settings.concurrency} needs {needed}: renewals would wait for bodies, and leases lapse",
            hint=f'{setting}  # or lower ULTIMAT3_JOBS["CONCURRENCY"]',
            id="ultimat3_jobs.W004",
        )


def _version(connection: BaseDatabaseWrapper, _: Settings) -> Iterator[CheckMessage]:
    from sqlite3 import sqlite_version, sqlite_version_info  # noqa: PLC0415 - Python can be built without it

    if sqlite_version_info < OLDEST_SQLITE:
        yield Error(
            f"SQLite {sqlite_version} is older than {'.'.join(map(str, OLDEST_SQLITE))}, whose statements the queue in "
            f"{connection.alias!r} is made of",
            hint="use a Python that is built with a newer SQLite, or PostgreSQL",
            id="ultimat3_jobs.E006",
        )


def _transaction_mode(connection: BaseDatabaseWrapper, _: Settings) -> Iterator[CheckMessage]:
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode")
    if str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        yield Warning(
            f"transactions on {connection.alias!r} do not begin IMMEDIATE: one that reads before it writes fails at "
            'once with "database is locked" while another writes',
            hint=f'DATABASES[{connection.alias!r}]["OPTIONS"] = {SQLITE_OPTIONS}',
            id="ultimat3_jobs.W001",
        )


def _write_ahead_log(connection: BaseDatabaseWrapper, _: Settings) -> Iterator[CheckMessage]:
    name = str(connection.settings_dict["NAME"])
    if ":memory:" in name or "mode=memory" in name or _WAL.search(_init_command(connection)) or _is_in_wal_mode(name):
        return
    yield Warning(
        f"the SQLite file of {connection.alias!r} is not in WAL mode: readers and the one writer wait for one another",
        hint=f'DATABASES[{connection.alias!r}]["OPTIONS"] = {SQLITE_OPTIONS}',
        id="ultimat3_jobs.W002",
    )


def _timeout(connection: BaseDatabaseWrapper, _: Settings) -> Iterator[CheckMessage]:
    timeout = connection.settings_dict["OPTIONS"].get("timeout", 5)
    if isinstance(timeout, (int, float)) and timeout < SHORTEST_TIMEOUT:
        yield Warning(
            f"writers on {connection.alias!r} wait {timeout:g} s for their turn: a body that writes for longer makes "
            'the others fail with "database is locked"',
            hint=f'DATABASES[{connection.alias!r}]["OPTIONS"] = {SQLITE_OPTIONS}',
            id="ultimat3_jobs.W003",
        )


def _init_command(connection: BaseDatabaseWrapper) -> str:
    return str(connection.settings_dict["OPTIONS"].get("init_command", ""))


def _is_in_wal_mode(name: str) -> bool:
    """Whether an existing file keeps a write-ahead log: the mode is kept in the file."""
    try:
        with Path(name).open("rb") as file:
            return file.read(_WRITES_WAL.stop)[_WRITES_WAL] == b"\x02\x02"
    except (OSError, ValueError):
        return False


def _has_template(engine: Any, name: str) -> bool:
    try:
        engine.get_template(name)
    except Exception:
        return False
    return True


_Check = Callable[[BaseDatabaseWrapper, Settings], Iterator[CheckMessage]]
_OF_POSTGRESQL: tuple[_Check, ...] = (_isolation, _pool)
_OF_SQLITE: tuple[_Check, ...] = (_version, _transaction_mode, _write_ahead_log, _timeout)
