"""`ULTIMAT3_JOBS`, parsed once into one frozen value and parsed again when the setting changes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeGuard, get_args

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.db import connections
from django.utils.module_loading import import_string

from ultimat3_jobs.durations import parse_duration
from ultimat3_jobs.errors import SettingsInvalid
from ultimat3_jobs.text import MAX_QUEUE, is_label, is_queue_name, nearest

NAME = "ULTIMAT3_JOBS"
MAX_CONCURRENCY = 1_000
"""Threads that one process starts at most; each has a database connection."""
MAX_LABEL = 100
OutboxMode = Literal["auto", "required", "direct"]


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """How work gets from a caller's transaction into the queue."""

    mode: OutboxMode = "auto"
    """auto: staged inside a transaction, straight to the queue outside; required: refused outside; direct: queue rows
    in the caller's own transaction."""
    batch: int = 500
    """Rows that one move of the relay takes at most."""
    databases: tuple[str, ...] | None = None
    """Aliases that have an outbox of their own; the first is where work is staged that names none. None: the one that
    the router gives for the outbox."""
    claim_lease: timedelta = timedelta(seconds=30)
    """How long a relay that publishes to another database may be silent before another takes its rows over."""


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long what is done with is kept. None keeps it for ever."""

    outbox: timedelta | None = timedelta(days=7)
    """Rows of the outbox, from when they were published or joined a job."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force. Lengths of time are timedeltas; sizes are bytes."""

    default_queue: str = "default"
    concurrency: int = 10
    """Jobs that one worker process runs at once."""
    lease: timedelta = timedelta(seconds=30)
    """How long a worker may be silent before its jobs are taken over."""
    renewal: timedelta = timedelta(seconds=10)
    """How often a worker renews its leases; at most a third of `lease`."""
    drain_timeout: timedelta = timedelta(seconds=30)
    """How long a worker that was told to stop lets its jobs run."""
    cancel_grace: timedelta = timedelta(seconds=5)
    """How long a body that is past a deadline may take to stop before its thread is given up."""
    poll: timedelta = timedelta(seconds=1)
    """How often an idle worker or relay looks for work."""
    max_input_bytes: int = 256 * 1024
    """Size of a job's encoded input at most."""
    max_result_bytes: int = 256 * 1024
    """Size of what a body returns, encoded, at most."""
    release: str = ""
    """Name of the deployed code (a version, a commit), kept with every failure: in which one it was seen."""
    environment: str = ""
    """Name of the environment that the code runs in ("staging", "production"), for backfills that are meant for some
    alone. Empty: it has none, and such backfills are refused."""
    tenant_context: str | None = None
    """Dotted path of a context manager taking a tenant (str), entered around every body that has one."""
    outbox: OutboxSettings = field(default_factory=OutboxSettings)
    queue_database: str | None = None
    """Alias of the database that holds the queue, as `ultimat3_jobs.routers.QueueRouter` answers it. None: the
    project's routers decide."""
    retention: Retention = field(default_factory=Retention)


def get_settings() -> Settings:
    """Return the settings in force.

    Raises:
        SettingsInvalid: where `ULTIMAT3_JOBS` holds an unknown key or a value that cannot work.
    """
    return _load()


@cache
def _load() -> Settings:
    raw = getattr(django_settings, NAME, {})
    if not isinstance(raw, Mapping):
        raise _refuse(NAME, raw, "a dict", "{}")
    values = _read(NAME, raw, _READERS)
    return Settings(**values)


def _forget(*, setting: str, **_: object) -> None:
    if setting == NAME:
        _load.cache_clear()


setting_changed.connect(_forget, dispatch_uid="ultimat3_jobs.settings")

Reader = Callable[[str, Any], Any]


def _read(path: str, raw: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    values = {}
    for key, value in raw.items():
        if key not in readers:
            near = difflib.get_close_matches(key.upper(), readers, n=1, cutoff=0.5) if isinstance(key, str) else []
            did_you_mean = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(sorted(readers))}"
            fix = f"del {path}[{key!r}]" + (f'  # or name it "{near[0]}"' if near else "")
            raise SettingsInvalid(f"{path} has no key {key!r}; {did_you_mean}", fix=fix)
        values[key.lower()] = readers[key](f'{path}["{key}"]', value)
    return values


def _refuse(path: str, value: object, wanted: str, example: str) -> SettingsInvalid:
    return SettingsInvalid(f"{path} is {value!r}, not {wanted}", fix=f"{path} = {example}")


def _positive_duration(path: str, value: Any) -> timedelta:
    try:
        length = parse_duration(value)
    except ValueError:
        length = timedelta(0)
    if length <= timedelta(0):
        raise _refuse(path, value, "a positive length of time", '"30s"')
    return length


def _positive_int(path: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refuse(path, value, "a whole number of 1 or more", "100")
    return value


def _concurrency(path: str, value: Any) -> int:
    if _positive_int(path, value) > MAX_CONCURRENCY:
        raise _refuse(path, value, f"a whole number from 1 to {MAX_CONCURRENCY}", "100")
    return int(value)


def _queue_name(path: str, value: Any) -> str:
    if not is_queue_name(value):
        wanted = f"text of 1 to {MAX_QUEUE} printable characters, no comma, no space around them"
        meant = value.strip() if isinstance(value, str) else ""
        raise _refuse(path, value, wanted, repr(meant) if is_queue_name(meant) else '"default"')
    return value


def _release(path: str, value: Any) -> str:
    return _label(path, value, "or the name of the deployed code")


def _environment(path: str, value: Any) -> str:
    return _label(path, value, "or the name of the place that this runs in; where it is empty, none has been told")


def _label(path: str, value: Any, instead: str) -> str:
    if value != "" and not is_label(value, MAX_LABEL):
        wanted = f"text of up to {MAX_LABEL} printable characters, no space around them"
        # Never an example: it would be the name of something else.
        meant = value.strip() if isinstance(value, str) else ""
        raise _refuse(path, value, wanted, repr(meant) if is_label(meant, MAX_LABEL) else f'""  # {instead}')
    return str(value)


def _dotted_path(path: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        found = import_string(value)
    except (ImportError, AttributeError, ValueError, TypeError):
        found = None
    if not callable(found):
        meant = _meant_path(value)
        without = "None  # bodies then run outside of any tenant's context"
        wanted = "the dotted path of an importable context manager"
        raise _refuse(path, value, wanted, without if meant is None else repr(meant))
    return str(value)


def _meant_path(value: object) -> str | None:
    """Return the path of the callable for which this one is mistyped, where its module can be imported."""
    module, _, name = value.rpartition(".") if isinstance(value, str) else ("", "", "")
    try:
        found = vars(import_module(module))
    except (ImportError, ValueError, TypeError):
        return None
    meant = nearest(name, [one for one, value in found.items() if callable(value)])
    return None if meant is None else f"{module}.{meant}"


def _outbox_mode(path: str, value: Any) -> Any:
    modes = get_args(OutboxMode)
    if value not in modes:
        raise _refuse(path, value, '"auto", "required" or "direct"', f'"{nearest(value, modes) or "auto"}"')
    return value


def _outbox(path: str, value: Any) -> OutboxSettings:
    if not isinstance(value, Mapping):
        raise _refuse(path, value, "a dict", "{}")
    return OutboxSettings(**_read(path, value, _OUTBOX_READERS))


def _retention(path: str, value: Any) -> Retention:
    if not isinstance(value, Mapping):
        raise _refuse(path, value, "a dict", "{}")
    return Retention(**_read(path, value, {"OUTBOX": _optional_duration}))


def _optional_duration(path: str, value: Any) -> timedelta | None:
    if value is None:
        return None
    try:
        return _positive_duration(path, value)
    except SettingsInvalid:
        raise _refuse(path, value, "a positive length of time, or None to keep all", '"7d"') from None


def _optional_alias(path: str, value: Any) -> str | None:
    if value is None:
        return None
    if _is_alias(value):
        return value
    meant = nearest(value, connections.databases)
    raise _refuse(path, value, _an_alias(), _routed("the queue") if meant is None else repr(meant))


def _aliases(path: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    one = isinstance(value, str)
    if one or not isinstance(value, Sequence) or not value or len({repr(alias) for alias in value}) < len(value):
        wanted = "a list of different aliases of DATABASES"
        raise _refuse(path, value, wanted, _meant_aliases([value] if one else value))
    wrong = [alias for alias in value if not _is_alias(alias)]
    if wrong:
        raise _refuse(path, wrong[0], _an_alias(), _meant_aliases(value))
    return tuple(value)


def _is_alias(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value in connections.databases


def _an_alias() -> str:
    return f"an alias of DATABASES, which has {', '.join(connections.databases)}"


def _routed(what: str) -> str:
    # It moves what is there already: whoever types it must know.
    return (
        f"None  # {what} is then where the routers put it; DATABASES has {', '.join(map(repr, connections.databases))}"
    )


def _meant_aliases(value: Any) -> str:
    """Return the list that was meant, as code; None where one of it is like no alias."""
    given = value if isinstance(value, Sequence) else ()
    meant = [alias if _is_alias(alias) else nearest(alias, connections.databases) for alias in given]
    return _routed("the outbox") if not meant or None in meant else repr(list(dict.fromkeys(meant)))


_OUTBOX_READERS: dict[str, Reader] = {
    "MODE": _outbox_mode,
    "BATCH": _positive_int,
    "DATABASES": _aliases,
    "CLAIM_LEASE": _positive_duration,
}


_READERS: dict[str, Reader] = {
    "DEFAULT_QUEUE": _queue_name,
    "CONCURRENCY": _concurrency,
    "LEASE": _positive_duration,
    "RENEWAL": _positive_duration,
    "DRAIN_TIMEOUT": _positive_duration,
    "CANCEL_GRACE": _positive_duration,
    "POLL": _positive_duration,
    "MAX_INPUT_BYTES": _positive_int,
    "MAX_RESULT_BYTES": _positive_int,
    "RELEASE": _release,
    "ENVIRONMENT": _environment,
    "TENANT_CONTEXT": _dotted_path,
    "OUTBOX": _outbox,
    "QUEUE_DATABASE": _optional_alias,
    "RETENTION": _retention,
}
