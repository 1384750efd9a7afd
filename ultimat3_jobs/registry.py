"""The jobs that the installed code declares, by name."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.errors import DuplicateJob

_lock = threading.Lock()
_by_name: dict[str, JobDefinition] = {}


def register(definition: JobDefinition) -> None:
    """Make a job known under its name and its aliases.

    Declaring the same function again in the same place, as a reload does, replaces it.

    Raises:
        DuplicateJob: where another job has one of the names, or the function is declared under another name.
    """
    names = definition.names
    with _lock:
        for name in names:
            other = _by_name.get(name)
            if other is not None and _place(other.func) != _place(definition.func):
                raise DuplicateJob(
                    f"{name!r} is declared by {_where(other.func)} and by {_where(definition.func)}",
                    fix=f'pin another name: @job(name="{name}_2", ...)',
                )
        for other in _by_name.values():
            if other.func is definition.func and other.name != definition.name:
                raise DuplicateJob(
                    f"{_where(definition.func)} is declared under two names, {other.name!r} and {definition.name!r}",
                    fix=f'keep one: @job(name="{definition.name}", aliases=["{other.name}"], ...)',
                )
        for stale in [name for name, other in _by_name.items() if other.name == definition.name]:
            del _by_name[stale]
        _by_name.update(dict.fromkeys(names, definition))


def find(name: str) -> JobDefinition | None:
    """Return the job of this name or alias, or None where no installed code declares it."""
    return _by_name.get(name)


def names_of(name: str) -> tuple[str, ...]:
    """Return all names of the job that has this one, the present one first; this one alone where none has it."""
    declared = find(name)
    return (name,) if declared is None else declared.names


def all_jobs() -> list[JobDefinition]:
    """Return every job once, by name in the order of code points."""
    return sorted(set(_by_name.values()), key=lambda definition: definition.name)


@contextmanager
def isolated() -> Iterator[None]:
    """Forget, at the end of the block, whatever was declared in it. For tests."""
    with _lock:
        before = dict(_by_name)
    try:
        yield
    finally:
        with _lock:
            _by_name.clear()
            _by_name.update(before)


def _place(func: Callable[..., Any]) -> tuple[str, str, str, int]:
    code = inspect.unwrap(func).__code__
    return (func.__module__, func.__qualname__, code.co_filename, code.co_firstlineno)


def _where(func: Callable[..., Any]) -> str:
    return f"{func.__module__}.{func.__qualname__} (line {_place(func)[3]})"
