"""Python values as plain JSON values, or a refusal that names the path of what cannot be one.

Whatever a database would change or refuse, and whatever would come back as something else, is refused here, before
any statement.
"""

from __future__ import annotations

import dataclasses
import math
import re
import reprlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Model, QuerySet
from django.utils.functional import Promise

from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.text import fault_of_text

INTEGER_BITS = 64
MAX_DEPTH = 100
"""Levels of nesting at most: far below what databases, decoders and stacks of calls take."""

_SCALARS = (UUID, Decimal, date, time, timedelta)  # a datetime is a date
_MINUTE = timedelta(minutes=1)
# Strings are matched too, so that digits inside them are left alone.
_NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?[eE][+-]?\d+')
_DROPPED = object()
_KEY_PLACE = re.compile(r"^`key` in `(.*)`$")

_FIXES: tuple[tuple[type, str], ...] = (
    (Model, "pass its primary key: value.pk"),
    (QuerySet, 'pass its primary keys: list(value.values_list("pk", flat=True))'),
    (Promise, "pass its text: str(value)"),
    (bytes, "pass text: base64.b64encode(value).decode()"),
    (set, "pass a list: sorted(value)"),
    (frozenset, "pass a list: sorted(value)"),
    (Mapping, "pass a dict: dict(value)"),
    (Iterator, "pass a list: list(value)"),
)
_ANY_FIX = "pass plain data: str, int, UUID, datetime, a dataclass, lists and dicts of them"


def to_plain(value: Any, path: str, *, json_only: bool = False, limit: int = sys.maxsize) -> Any:
    """Return `value` as dicts with text keys, lists, text, numbers, booleans and None.

    Args:
        value: what is to be stored.
        path: where it stands, for messages: `$.order.lines[3].price`.
        json_only: no type hint will read it back: take only what JSON itself can tell apart.
        limit: values at most, so that a small object which unfolds into a huge one is not unfolded.

    Raises:
        InputInvalid: where it cannot be stored and read back as what it is.
    """
    try:
        return _Walk(json_only=json_only, limit=limit).plain(value, path, 0)
    except RecursionError:  # the caller's own stack was nearly used up
        raise _bad(path, "nested too deeply", "flatten it") from None


def without_exponents(text: str) -> str:
    """Return JSON with its numbers written out.

    PostgreSQL's jsonb writes them so, and `1e16` as 10000000000000000: a float without a declared type would come back
    as an int from one database, and not from the other.
    """

    def write_out(match: re.Match[str]) -> str:
        token = match.group()
        if token.startswith('"'):
            return token
        number = format(Decimal(token), "f")
        return number if "." in number else f"{number}.0"

    return _NUMBERS.sub(write_out, text)


def where(error: Exception) -> str:
    """Return msgspec's message with the place of the value first."""
    what, _, place = str(error).rpartition(" - at ")
    if not what:
        return place
    place = _KEY_PLACE.sub(r"`\1.<key>`", place)
    return f"at {place}, {what[:1].lower()}{what[1:]}"


def find_dropped(plain: Any, kept: Any, path: str) -> str | None:
    """Return the path of the first value in `plain` that `kept`, decoded from it, has no place for, or None.

    Decoders pass over what a dataclass, a TypedDict or a Struct does not have: data would be lost in silence.
    """
    if kept is _DROPPED:
        return path
    for below, part, counterpart in _parts(plain, kept, path):
        found = find_dropped(part, counterpart, below)
        if found is not None:
            return found
    return None


class _Walk:
    """One pass over one value."""

    def __init__(self, *, json_only: bool, limit: int) -> None:
        self._json_only = json_only
        self._limit = limit
        self._seen = 0

    def plain(self, value: Any, path: str, depth: int) -> Any:  # noqa: C901, PLR0911, PLR0912 - one branch a kind
        """Return `value`, which stands `depth` levels deep, as plain JSON."""
        self._seen += 1
        if self._seen > self._limit:
            raise _bad(path, f"the first after {self._limit} others, too many", "pass the key of a row that holds them")
        if depth > MAX_DEPTH:
            raise _bad(path, f"over {MAX_DEPTH} levels deep, or inside itself", "flatten it")
        kind = type(value)  # a lazy object pretends, to isinstance, to be what it stands for
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return _text(value, path)
        if issubclass(kind, Enum) and not self._json_only:
            return self.plain(value.value, path, depth)
        if issubclass(kind, int):
            return _integer(value, path)
        if issubclass(kind, float):
            return _float(value, path)
        if issubclass(kind, dict):
            return self._dict(value, path, depth)
        if issubclass(kind, list) or (issubclass(kind, tuple) and not self._json_only):
            return [self.plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        if self._json_only:
            raise _unfit(value, path, json_only=True)
        if issubclass(kind, _SCALARS):
            return _scalar(value, path)
        if issubclass(kind, msgspec.Struct):
            return self._struct(value, path, depth)
        if dataclasses.is_dataclass(kind):
            given = {field.name: getattr(value, field.name, msgspec.UNSET) for field in dataclasses.fields(kind)}
            return self._record(given, path, depth)
        raise _unfit(value, path)

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, item in value.items():
            text = self._key(key, path, depth)
            if text in plain:
                raise _bad(path, f"a dict with two keys that JSON writes as {text!r}", "use keys of one type")
            plain[text] = self.plain(item, _below(path, text), depth + 1)
        return plain

    def _key(self, key: Any, path: str, depth: int) -> str:
        where = f"{path}.<key>"
        if self._json_only and not isinstance(key, str):
            raise _unfit(key, where, json_only=True)
        plain = self.plain(key, where, depth)
        if isinstance(plain, str):
            return plain
        if plain is None or isinstance(plain, (bool, list, dict)):
            raise _bad(where, f"{reprlib.repr(key)}, which cannot be a key in JSON", "use str, int, UUID or date keys")
        return msgspec.json.encode(plain).decode()

    def _record(self, given: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        return {
            name: self.plain(item, f"{path}.{name}", depth + 1)
            for name, item in given.items()
            if item is not msgspec.UNSET
        }

    def _struct(self, value: msgspec.Struct, path: str, depth: int) -> Any:
        if value.__struct_config__.array_like:
            return [self.plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(_items(value))]
        return self._record(_members_of_struct(value), path, depth)


def _text(value: str, path: str) -> str:
    text = str.__str__(value)  # of a subclass such as SafeString: what it holds, not what it makes of it
    fault = fault_of_text(text)
    if fault is not None:
        fix = r'pass value.replace("\0", "")' if "\x00" in text else 'pass value.encode(errors="replace").decode()'
        raise _bad(path, f"text with {fault}", fix)
    return text


def _integer(value: int, path: str) -> int:
    number = int.__index__(value)
    if not -(2 ** (INTEGER_BITS - 1)) <= number < 2 ** (INTEGER_BITS - 1):
        raise _bad(path, f"an integer beyond {INTEGER_BITS} bits", "pass it as text: str(value)")
    return number


def _float(value: float, path: str) -> float:
    number = float.__float__(value)
    if not math.isfinite(number):
        raise _bad(path, f"{number!r}, which JSON cannot hold", "pass None, or leave the job out")
    return number + 0.0  # PostgreSQL knows no negative zero


def _scalar(value: Any, path: str) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _bad(path, f"Decimal('{value}'), which has no finite value", "pass None, or leave the job out")
        return Decimal.__str__(value)
    if isinstance(value, UUID):
        return UUID.__str__(value)
    if isinstance(value, timedelta):
        return str(msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds)))
    if isinstance(value, datetime):
        # The text of an offset ends at its minutes; zones of the 19th century do not.
        exact = not (value.utcoffset() or timedelta()) % _MINUTE
        return datetime.isoformat(value if exact else value.astimezone(UTC))
    if isinstance(value, time) and value.tzinfo is not None:
        offset = value.utcoffset()
        if offset is None or offset % _MINUTE:
            raise _bad(path, "a time whose offset from UTC depends on the date", "pass a datetime")
    return str(value.isoformat())


def _unfit(value: Any, path: str, *, json_only: bool = False) -> InputInvalid:
    kind = type(value).__name__
    fix = next((fix for kinds, fix in _FIXES if isinstance(value, kinds)), _ANY_FIX)
    if isinstance(value, Model):
        return _bad(path, f"a model instance ({value._meta.label})", fix)
    if isinstance(value, Promise):
        return _bad(path, "a lazy translation, whose text depends on the language of the moment", fix)
    if json_only and fix is _ANY_FIX:
        return _bad(
            path, f"of type {kind}, where the hint lets in plain JSON alone", "declare its type in the signature"
        )
    return _bad(path, f"of type {kind}, which an input cannot hold", fix)


def _bad(path: str, what: str, fix: str) -> InputInvalid:
    return InputInvalid(f"the value at `{path}` is {what}", fix=fix)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{reprlib.repr(key)}]"


def _parts(plain: Any, kept: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each part of `plain`, the part, and its counterpart in `kept`."""
    if isinstance(plain, list):
        items = _items(kept) or plain
        for index, part in enumerate(plain):
            yield f"{path}[{index}]", part, items[index] if index < len(items) else _DROPPED
    elif isinstance(plain, dict):
        members = _members(kept, plain)
        for key, part in plain.items():
            yield _below(path, key), part, members.get(key, _DROPPED)


def _items(kept: Any) -> Sequence[Any]:
    if isinstance(kept, msgspec.Struct):
        config = kept.__struct_config__
        values = [getattr(kept, name) for name in kept.__struct_fields__]
        return values if config.tag is None else [config.tag, *values]
    return kept if isinstance(kept, (list, tuple)) else ()


def _members(kept: Any, plain: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(kept, msgspec.Struct):
        return _members_of_struct(kept)
    if dataclasses.is_dataclass(kept):
        return {field.name: getattr(kept, field.name, None) for field in dataclasses.fields(kept)}
    if isinstance(kept, dict):
        # Decoding gives keys their types and keeps their order, which is that of the sorted text.
        return dict(zip(sorted(plain), kept.values(), strict=True)) if len(kept) == len(plain) else kept
    return plain


def _members_of_struct(value: msgspec.Struct) -> dict[str, Any]:
    config = value.__struct_config__
    tag = {} if config.tag is None else {str(config.tag_field): config.tag}
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return tag | {encoded: getattr(value, name) for encoded, name in names}
