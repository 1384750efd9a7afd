"""The checksum of a declaration: what its handler does and which rows its source gives, not how it is written down.

Neither what the handler calls nor the values that it closes over are in it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from django.core.exceptions import EmptyResultSet
from django.db import connections

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from ultimat3_jobs.backfills.definition import BackfillDefinition

_LEFT_OUT = frozenset({"ctx", "type_comment"})  # fields of the tree that say nothing of what is done
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLACEHOLDERS = re.compile(r"%[%s]")
_LISTS = re.compile(r"\bIN \((%s(?:, %s)*)\)")


def checksum(definition: BackfillDefinition, queryset: QuerySet[Any]) -> str:
    """Return the SHA-256, as hex digits, of a backfill's handler and of the SQL of its source.

    Comments, layout, docstrings, the handler's name and its decorators are not in it. A date or a time that the source
    filters by counts as its type: it is often worked out from now. The SQL is that of the rows' database and of the
    running version of Django.

    Args:
        definition: of the backfill.
        queryset: what its source gave.

    Returns:
        "" where the handler's source code cannot be had, as of code that was compiled without a file.
    """
    tree = _tree(definition.handler)
    if tree is None:
        return ""
    parts = [*_code(tree), "source", *_sql(queryset)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tree(handler: Callable[..., Any]) -> ast.AST | None:
    try:
        source = inspect.getsource(handler)
        # In a block of its own, code that is indented stands as it is, and so do the lines of its long strings.
        block = ast.parse(f"if 1:\n{source}" if source[:1].isspace() else source)
    except (OSError, TypeError, SyntaxError):
        return None
    found = next((node for node in ast.walk(block) if isinstance(node, _FUNCTIONS)), None)
    if found is None:
        return None
    found.decorator_list = []
    found.name = ""
    return found


def _code(node: ast.AST) -> Iterator[str]:
    """Yield the tree in lines of ASCII: fields that are empty are left out, since each version of Python adds some."""
    yield type(node).__name__
    if isinstance(node, ast.Constant):
        yield _value(node.value)
        return
    for name in node._fields:
        value = getattr(node, name, None)
        if name in _LEFT_OUT or value in (None, [], ""):
            continue
        yield f".{name}"
        if isinstance(value, list):
            yield "["
            for part in _without_docstring(node, value) if name == "body" else value:
                yield from _code(part) if isinstance(part, ast.AST) else (_value(part),)
            yield "]"
        else:
            yield from _code(value) if isinstance(value, ast.AST) else (_value(value),)
    yield ";"


def _without_docstring(node: ast.AST, body: list[Any]) -> list[Any]:
    if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return body
    first = body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _sql(queryset: QuerySet[Any]) -> Iterator[str]:
    """Yield the SQL that selects the keys of the rows, and its parameters."""
    # Not the columns: that a model has got another field does not change which rows are swept.
    query = queryset.values("pk").query
    connection = connections[queryset.db].copy()
    _keep_moments(connection)
    try:
        sql, parameters = query.get_compiler(connection=connection).as_sql()
    except EmptyResultSet:
        sql, parameters = "", ()
    finally:
        connection.close()
    yield sql
    values = [_value(value) for value in parameters]
    for start, end in _unordered(sql):
        values[start:end] = sorted(values[start:end])
    yield from values


def _keep_moments(connection: BaseDatabaseWrapper) -> None:
    """Have a connection pass dates and times on as such: on SQLite they would be text among others."""

    def as_it_is(value: Any) -> Any:
        return value

    for name in ("adapt_datefield_value", "adapt_datetimefield_value", "adapt_timefield_value"):
        setattr(connection.ops, name, as_it_is)


def _unordered(sql: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the parameters that are in one list: the order of a set is another in each process."""
    for found in _LISTS.finditer(sql):
        before = sum(one == "%s" for one in _PLACEHOLDERS.findall(sql[: found.start()]))
        yield before, before + found[1].count("%s")


@singledispatch
def _value(value: Any) -> str:
    """Return a value as ASCII that is alike in every process and version."""
    if hasattr(value, "obj"):  # JSON, as the driver for PostgreSQL wraps it
        return f"json {_value(value.obj)}"
    text = repr(value)
    # The plain representation of an object holds its address.
    return f"{type(value).__name__} {'' if ' at 0x' in text else ascii(text)}"


# What a driver or an enumeration makes of a plain type counts as that type does.


@_value.register(datetime)
@_value.register(date)
@_value.register(time)
def _(value: Any) -> str:
    return next(kind.__name__ for kind in (datetime, date, time) if isinstance(value, kind))


@_value.register(bool)
@_value.register(type(None))
def _(value: bool | None) -> str:
    return repr(value)


@_value.register
def _(value: int) -> str:
    return f"int {hex(int.__int__(value))}"  # Python limits how many decimal digits it writes


@_value.register
def _(value: str) -> str:
    return f"str {str.__str__(value)!a}"  # which characters are printable changes with the version


@_value.register(bytes)
@_value.register(memoryview)
def _(value: bytes | memoryview) -> str:
    return f"bytes {bytes(value).hex()}"


@_value.register(list)
@_value.register(tuple)
def _(value: Any) -> str:
    return f"[{','.join(map(_value, value))}]"


@_value.register
def _(value: dict) -> str:  # type: ignore[type-arg]
    return f"{{{','.join(sorted(f'{_value(key)}:{_value(one)}' for key, one in value.items()))}}}"
