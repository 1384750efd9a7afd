"""Typed input from a signature: encode, decode, refuse.

What is accepted at the enqueue comes back at the run as the type that the signature declares. Whatever would not is
refused before a row is written, with the path of the value: `$.order.lines[3].price`.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Model
from msgspec import inspect as types

from ultimat3_jobs.errors import DeclarationInvalid, InputInvalid

INTEGER_BITS = 64
_SCALARS = (UUID, datetime, date, time, timedelta)
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
_IMMUTABLE = (str, int, float, bool, type(None), Decimal, Enum, *_SCALARS)


class InputCodec:
    """Encodes and decodes the input of one job.

    Args:
        func: the body; its first parameter is the run, the others make the input.

    Raises:
        DeclarationInvalid: where the signature cannot be a schema.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self._owner = func.__name__
        self._signature = _input_signature(func)
        hints = _hints(func)
        self.names: tuple[str, ...] = tuple(self._signature.parameters)
        fields: list[tuple[str, Any, Any] | tuple[str, Any]] = []
        self._json_only: set[str] = set()
        for name, parameter in self._signature.parameters.items():
            if name not in hints:
                raise DeclarationInvalid(
                    f"parameter {name!r} of {self._owner} has no type hint",
                    fix=f"def {self._owner}(run, {name}: str, ...)",
                )
            if self._check_hint(name, hints[name]):
                self._json_only.add(name)
            fields.append((name, hints[name], *_default(parameter)))
        self._type = msgspec.defstruct("Input", fields, kw_only=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(self._type)
        self._check_defaults()

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, max_bytes: int) -> EncodedInput:
        """Validate and encode an input.

        Args:
            args: positional arguments after the run.
            kwargs: keyword arguments.
            max_bytes: size of the encoded input at most.

        Raises:
            InputInvalid: naming the path of what cannot be stored and read back as what it is.
        """
        given = self._bind(args, kwargs)
        plain = {name: _plain(value, f"$.{name}", json_only=name in self._json_only) for name, value in given.items()}
        try:
            decoded = self._decoder.decode(msgspec.json.encode(plain))
        except msgspec.ValidationError as error:
            raise self._refuse(str(error)) from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._refuse(f"it cannot be encoded: {error}") from None
        encoded = msgspec.json.encode(decoded, order="deterministic")
        if len(encoded) > max_bytes:
            raise InputInvalid(
                f"the input of {self._owner} is {len(encoded)} bytes, over the {max_bytes} of MAX_INPUT_BYTES - at `$`",
                fix='store the data in a model or a file and pass its key; or raise ULTIMAT3_JOBS["MAX_INPUT_BYTES"]',
            )
        return EncodedInput(encoded.decode(), {name: getattr(decoded, name) for name in self.names})

    def decode(self, text: str) -> dict[str, Any]:
        """Return a fresh copy of the arguments that a stored input holds.

        Raises:
            InputInvalid: where the stored input no longer fits the signature.
        """
        try:
            decoded = self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InputInvalid(
                f"the stored input no longer fits the signature {self._owner}{self._signature}: {error}",
                fix=f"give {self._owner} a signature that takes it (a default for what is new), then retry the job",
            ) from None
        return {name: getattr(decoded, name) for name in self.names}

    def describe(self) -> dict[str, object]:
        """Return the JSON schema of the input."""
        try:
            return msgspec.json.schema(self._type)
        except TypeError:
            return {"properties": {name: str(p.annotation) for name, p in self._signature.parameters.items()}}

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        for name in kwargs:
            if name not in self.names:
                raise self._refuse(f"unknown argument - at `$.{name}`")
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            given = {*self.names[: len(args)], *kwargs}
            missing = next(
                (n for n, p in self._signature.parameters.items() if n not in given and p.default is p.empty),
                None,
            )
            where = f"missing argument - at `$.{missing}`" if missing else f"{error} - at `$`"
            raise self._refuse(where) from None

    def _refuse(self, what: str) -> InputInvalid:
        return InputInvalid(
            f"the input of {self._owner} does not fit its signature: {what}",
            fix=f"call it as {self._owner}.enqueue{self._signature}",
        )

    def _check_hint(self, name: str, hint: Any) -> bool:
        """Refuse a hint that does not survive storage; tell whether it leaves room for any JSON value."""
        try:
            info = types.type_info(hint)
        except TypeError as error:
            raise self._refuse_hint(name, hint, str(error)) from None
        anything = False
        for part, in_record in _walk(info):
            if isinstance(part, _UNSTORABLE):
                raise self._refuse_hint(name, hint, "it does not come back as what it is from JSON")
            if isinstance(part, types.AnyType):
                if in_record:
                    raise self._refuse_hint(name, hint, "a record's field says which type comes back")
                anything = True
        return anything

    def _refuse_hint(self, name: str, hint: Any, why: str) -> DeclarationInvalid:
        return DeclarationInvalid(
            f"parameter {name!r} of {self._owner} is declared as {hint!r}, which cannot be an input: {why}",
            fix=f"declare {name} as str, int, float, bool, UUID, datetime, date, time, timedelta, Decimal, an Enum, "
            "a dataclass, a msgspec.Struct, or a list, tuple or dict of them",
        )

    def _check_defaults(self) -> None:
        for name, parameter in self._signature.parameters.items():
            if parameter.default is parameter.empty:
                continue
            try:
                plain = _plain(parameter.default, f"$.{name}", json_only=name in self._json_only)
                hint = next(field.type for field in msgspec.structs.fields(self._type) if field.name == name)
                msgspec.json.decode(msgspec.json.encode(plain), type=hint)
            except (InputInvalid, msgspec.ValidationError, TypeError) as error:
                why = error.cause if isinstance(error, InputInvalid) else str(error)
                raise DeclarationInvalid(
                    f"the default of {name!r} of {self._owner} is no input of its type: {why}",
                    fix=f"give {name} a default of the type it declares",
                ) from None


class EncodedInput(typing.NamedTuple):
    """An input ready to be stored, and as the body will get it."""

    text: str
    """Canonical JSON: equal inputs have equal text."""
    values: dict[str, Any]
    """Decoded arguments, defaults included: what key, tenant and limit callables receive."""


def encode_result(value: Any) -> str | None:
    """Return what a body returned as JSON, or None where it returned nothing.

    Raises:
        InputInvalid: where it cannot be stored.
    """
    if value is None:
        return None
    try:
        return msgspec.json.encode(_plain(value, "$", json_only=False)).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputInvalid(f"it cannot be encoded: {error}", fix="return plain data, or None") from None


def _input_signature(func: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(func)
    parameters = list(signature.parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional or parameters[0].name != "run":
        raise DeclarationInvalid(
            f"the first parameter of {func.__name__} is not `run`", fix=f"def {func.__name__}(run, ...)"
        )
    for parameter in parameters[1:]:
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise DeclarationInvalid(
                f"parameter {parameter} of {func.__name__} cannot be named in a stored input",
                fix=f"name each input: def {func.__name__}(run, order_id: int)",
            )
    return signature.replace(parameters=parameters[1:], return_annotation=inspect.Signature.empty)


def _hints(func: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(func, include_extras=True)
    except NameError as error:
        raise DeclarationInvalid(
            f"a type hint of {func.__name__} cannot be resolved when the module is imported: {error}",
            fix="import the type at the top of the module, outside `if TYPE_CHECKING:`",
        ) from None


def _default(parameter: inspect.Parameter) -> tuple[Any, ...]:
    default = parameter.default
    if default is parameter.empty:
        return ()
    if isinstance(default, _IMMUTABLE):
        return (default,)
    return (msgspec.field(default_factory=lambda: copy.deepcopy(default)),)


def _walk(info: Any, *, in_record: bool = False, seen: frozenset[Any] = frozenset()) -> Iterator[tuple[Any, bool]]:
    """Yield every part of a type, and whether it stands inside a record."""
    yield info, in_record
    if isinstance(info, _RECORDS):
        if info.cls in seen:
            return
        seen, in_record = seen | {info.cls}, True
    inner: list[Any] = [field.type for field in getattr(info, "fields", ())]
    inner += list(getattr(info, "types", ())) + list(getattr(info, "item_types", ()))
    inner += [
        part for part in (getattr(info, a, None) for a in ("item_type", "key_type", "value_type")) if part is not None
    ]
    for part in inner:
        yield from _walk(part, in_record=in_record, seen=seen)


def _plain(value: Any, path: str, *, json_only: bool) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case a type
    """Return `value` ready for the encoder; refuse what would come back as something else, or break a database."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum) and not json_only:
        _plain(value.value, path, json_only=False)
        return value
    if isinstance(value, str):
        return _text(value, path)
    if type(value) is int:
        if not -(2 ** (INTEGER_BITS - 1)) <= value < 2 ** (INTEGER_BITS - 1):
            raise _bad(path, "an integer beyond 64 bits", "pass it as a str or a Decimal")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise _bad(path, f"{value!r}, which JSON cannot hold", "pass None, or leave the job out")
        return value
    if isinstance(value, list) or (isinstance(value, tuple) and not json_only):
        return [_plain(item, f"{path}[{index}]", json_only=json_only) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {
            _key(key, path, json_only=json_only): _plain(item, f"{path}.{key}", json_only=json_only)
            for key, item in value.items()
        }
    if isinstance(value, Model):
        raise _bad(path, f"a model instance ({type(value).__name__})", "pass its primary key: .pk")
    if json_only:
        raise _bad(path, f"a {type(value).__name__} where the hint allows plain JSON only", "declare its type")
    if type(value) is Decimal:
        if not value.is_finite():
            raise _bad(path, f"{value!r}, which has no finite value", "pass None, or leave the job out")
        return value
    if isinstance(value, _SCALARS):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name), f"{path}.{field.name}", json_only=False)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _plain(getattr(value, name), f"{path}.{name}", json_only=False)
        return value
    raise _bad(
        path,
        f"a {type(value).__name__}",
        "pass plain data: str, int, UUID, datetime, a dataclass, lists of them",
    )


def _key(key: Any, path: str, *, json_only: bool) -> Any:
    if json_only and not isinstance(key, str):
        raise _bad(path, f"a dict with the key {key!r} where the hint allows plain JSON only", "declare its type")
    if isinstance(key, (list, tuple, dict)) or key is None or isinstance(key, bool):
        raise _bad(path, f"a dict with the key {key!r}, which JSON cannot hold", "use str, int, UUID or date keys")
    return _plain(key, path, json_only=json_only)


def _text(value: str, path: str) -> str:
    text = str.__str__(value) if type(value) is not str else value
    if "\x00" in text:
        raise _bad(path, "text with a NUL character, which PostgreSQL cannot store", r'pass value.replace("\0", "")')
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _bad(
                path,
                "text with a lone surrogate, which is not Unicode",
                'pass value.encode(errors="replace").decode()',
            ) from None
    return text


def _bad(path: str, what: str, fix: str) -> InputInvalid:
    return InputInvalid(f"the value at `{path}` is {what}", fix=fix)
