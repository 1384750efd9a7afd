"""Type hints whose values survive storage: what a hint must be so that JSON gives its values back as what they were."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect as types

_UNSTORABLE = (
    types.BytesType,
    types.ByteArrayType,
    types.MemoryViewType,
    types.SetType,
    types.FrozenSetType,
    types.RawType,
    types.ExtType,
    types.CustomType,
)
_RECORDS = (types.DataclassType, types.StructType, types.TypedDictType, types.NamedTupleType)
_UNTOLD_KEYS = (types.UnionType, types.BoolType, types.NoneType, types.VarTupleType, types.TupleType, *_RECORDS)
_FLOATS = (types.AnyType, types.FloatType)

STORABLE = (
    "str, int, float, bool, UUID, datetime, date, time, timedelta, Decimal, an Enum, a dataclass, a msgspec.Struct, "
    "or a list, tuple or dict of them"
)
"""What a hint may be, for messages."""


class UnstorableHintError(Exception):
    """A hint whose values would not come back as what they are; its text says why."""


@dataclass(frozen=True)
class Examined:
    """What encoding and decoding must know of a hint."""

    has_any: bool
    """It leaves room for any JSON value."""
    has_floats: bool
    has_remakers: bool
    """It holds records that may change themselves when they are made."""


def examine(hint: Any) -> Examined:
    """Return what a hint asks of its codec.

    Raises:
        UnstorableHintError: where its values do not survive storage.
    """
    try:
        msgspec.json.Decoder(hint)
        info = types.type_info(hint)
    except TypeError as error:
        raise UnstorableHintError(str(error)) from None
    has_any = has_floats = has_remakers = False
    for part, in_record in _walk(info):
        if isinstance(part, _UNSTORABLE):
            raise UnstorableHintError("it does not come back as what it is from JSON")
        if isinstance(part, types.DictType) and isinstance(part.key_type, _UNTOLD_KEYS):
            raise UnstorableHintError("the keys of a dict do not come back as what they are")
        if isinstance(part, types.AnyType):
            if in_record:
                raise UnstorableHintError("a record's field says which type comes back")
            has_any = True
        has_floats |= isinstance(part, _FLOATS)
        if isinstance(part, _RECORDS):
            has_remakers |= hasattr(typing.get_origin(part.cls) or part.cls, "__post_init__")
    return Examined(has_any, has_floats, has_remakers)


def _walk(info: Any, *, in_record: bool = False, seen: frozenset[Any] = frozenset()) -> Iterator[tuple[Any, bool]]:
    """Yield every part of a type, and whether it stands inside a record."""
    yield info, in_record
    if isinstance(info, _RECORDS):
        if info.cls in seen:
            return
        seen, in_record = seen | {info.cls}, True
    inner: list[Any] = [field.type for field in getattr(info, "fields", ())]
    inner += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    inner += [getattr(info, part) for part in ("item_type", "key_type", "value_type") if hasattr(info, part)]
    for part in inner:
        yield from _walk(part, in_record=in_record, seen=seen)
