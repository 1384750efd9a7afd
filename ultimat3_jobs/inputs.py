"""Typed input from a signature: encode, decode, refuse.

What is accepted at the enqueue comes back at the run as the type that the signature declares. Whatever would not is
refused before a row is written, with the path of the value: `$.order.lines[3].price`.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
from django.db.models import Model

from ultimat3_jobs.errors import DeclarationInvalid, InputInvalid
from ultimat3_jobs.hints import STORABLE, UnstorableHintError, examine
from ultimat3_jobs.plain import find_dropped, to_plain, where, without_exponents


class EncodedInput(typing.NamedTuple):
    """An input ready to be stored, and as the body will get it."""

    text: str
    """Canonical JSON: equal inputs have equal text."""
    values: dict[str, Any]
    """Decoded arguments, defaults included: what key, tenant and limit callables receive."""


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
        self.names: tuple[str, ...] = tuple(self._signature.parameters)
        self._hints = _hints(func, self._signature)
        self._json_only: set[str] = set()
        self._has_floats = False
        self._has_remakers = False  # records that may change themselves when they are made
        for name in self.names:
            if name not in self._hints:
                raise DeclarationInvalid(
                    f"parameter {name!r} of {self._owner} has no type hint",
                    fix=f"def {self._owner}(run, {name}: str, ...)",
                )
            self._check_hint(name)
        self._type = self._make_type()
        self._decoder = msgspec.json.Decoder(self._type)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, max_bytes: int) -> EncodedInput:
        """Validate and encode an input.

        Args:
            args: positional arguments after the run.
            kwargs: keyword arguments.
            max_bytes: size of the encoded input at most.

        Raises:
            InputInvalid: naming the path of what cannot be stored and read back as what it is.
        """
        plain = self._plain(self._bind(args, kwargs), limit=max_bytes)
        sent = msgspec.json.encode(plain, order="sorted")
        try:
            decoded = self._decoder.decode(sent)
        except msgspec.ValidationError as error:
            raise self._refuse(where(error)) from None
        if self._has_remakers:
            kept: Any = self._plain({name: getattr(decoded, name) for name in self.names}, limit=max_bytes)
        else:
            kept = msgspec.to_builtins(decoded, str_keys=True)
        text = msgspec.json.encode(kept, order="sorted")
        if text != sent:
            self._refuse_dropped(plain, decoded)
        if self._has_floats:
            text = without_exponents(text.decode()).encode()
        if len(text) > max_bytes:
            raise InputInvalid(
                f"the input of {self._owner} at `$` is {len(text)} bytes, over the {max_bytes} of MAX_INPUT_BYTES",
                fix='store the data in a model or a file and pass its key; or raise ULTIMAT3_JOBS["MAX_INPUT_BYTES"]',
            )
        return EncodedInput(text.decode(), {name: getattr(decoded, name) for name in self.names})

    def decode(self, text: str) -> dict[str, Any]:
        """Return a fresh copy of the arguments that a stored input holds.

        Raises:
            InputInvalid: where the stored input no longer fits the signature.
        """
        try:
            decoded = self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:  # TypeError: it is NULL
            raise InputInvalid(
                f"the stored input no longer fits {self._owner}({self._declared()}): {where(error)}",
                fix=f"give {self._owner} a signature that takes it (a default for what is new), then retry the job",
            ) from None
        return {name: getattr(decoded, name) for name in self.names}

    def convert(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return some of the arguments as a body would get them.

        Raises:
            InputInvalid: naming the path of what the signature does not take.
        """
        self._refuse_unknown(given)
        converted = {}
        for name, part in self._plain(given, limit=sys.maxsize).items():
            try:
                converted[name] = msgspec.json.decode(msgspec.json.encode(part), type=self._hints[name])
            except msgspec.ValidationError as error:
                raise self._refuse(f"at `$.{name}`, {error}") from None
        return converted

    def describe(self) -> dict[str, object]:
        """Return the JSON schema of the input; it holds no default."""
        return msgspec.json.schema(self._type)

    def _refuse_unknown(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self.names:
                near = difflib.get_close_matches(str(name), self.names, n=1)
                did_you_mean = f"; did you mean {near[0]!r}?" if near else ""
                raise self._refuse(f"`$` has no argument {str(name)!r}{did_you_mean}")

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        self._refuse_unknown(kwargs)
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            given = {*self.names[: len(args)], *kwargs}
            missing = [name for name in self.names if name not in given and not self._has_default(name)]
            raise self._refuse(f"`$.{missing[0]}` is missing" if missing else f"at `$`, {error}") from None

    def _plain(self, given: Mapping[str, Any], *, limit: int) -> dict[str, Any]:
        try:
            return {
                name: to_plain(value, f"$.{name}", json_only=name in self._json_only, limit=limit)
                for name, value in given.items()
            }
        except InputInvalid as error:
            raise InputInvalid(f"the input of {self._owner} cannot be stored: {error.cause}", fix=error.fix) from None

    def _refuse(self, what: str) -> InputInvalid:
        shown = ", ".join(f"{name}=..." for name in self.names)
        return InputInvalid(
            f"the input of {self._owner} does not fit its signature: {what}",
            fix=f"{self._owner}.enqueue({shown})  # {self._declared() or 'it takes no input'}",
        )

    def _refuse_dropped(self, plain: Mapping[str, Any], decoded: Any) -> None:
        for name, part in plain.items():
            path = find_dropped(part, getattr(decoded, name), f"$.{name}")
            if path is not None:
                raise self._refuse(f"the value at `{path}` has no place in the declared type and would be lost")

    def _declared(self) -> str:
        return ", ".join(
            f"{name}: {inspect.formatannotation(self._hints[name])}" + (" = ..." if self._has_default(name) else "")
            for name in self.names
        )

    def _has_default(self, name: str) -> bool:
        return self._signature.parameters[name].default is not inspect.Parameter.empty

    def _make_type(self) -> Any:
        fields: list[tuple[str, Any, Any] | tuple[str, Any]] = []
        for name, parameter in self._signature.parameters.items():
            if self._has_default(name):
                default = self._default_factory(name, parameter.default)
                fields.append((name, self._hints[name], msgspec.field(default_factory=default)))
            else:
                fields.append((name, self._hints[name]))
        try:
            return msgspec.defstruct("Input", fields, kw_only=True, forbid_unknown_fields=True)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DeclarationInvalid(
                f"the parameters of {self._owner} cannot be an input: {error}", fix="give them other names"
            ) from None

    def _default_factory(self, name: str, default: Any) -> Callable[[], Any]:
        """Return what makes a fresh default as a stored input would give it: `1` is 1.0 where a float is declared."""
        decoder = msgspec.json.Decoder(self._hints[name])
        try:
            text = msgspec.json.encode(to_plain(default, f"$.{name}", json_only=name in self._json_only))
            decoder.decode(text)
        except (InputInvalid, msgspec.ValidationError) as error:
            why = error.cause if isinstance(error, InputInvalid) else where(error)
            raise DeclarationInvalid(
                f"the default of {name!r} of {self._owner} is no input of its type: {why}",
                fix=f"give {name} a default of the type it declares",
            ) from None
        return lambda: decoder.decode(text)

    def _check_hint(self, name: str) -> None:
        """Refuse a hint that does not survive storage; note one that leaves room for any JSON value."""
        try:
            examined = examine(self._hints[name])
        except UnstorableHintError as error:
            raise self._refuse_hint(name, str(error)) from None
        if examined.has_any:
            self._json_only.add(name)
        self._has_floats |= examined.has_floats
        self._has_remakers |= examined.has_remakers

    def _refuse_hint(self, name: str, why: str) -> DeclarationInvalid:
        hint = self._hints[name]
        fix = f"declare {name} as {STORABLE}"
        if isinstance(hint, type) and issubclass(hint, Model):
            fix = f"declare the primary key: def {self._owner}(run, {name}_id: int, ...)"
        return DeclarationInvalid(
            f"parameter {name!r} of {self._owner} is declared as {inspect.formatannotation(hint)}, "
            f"which cannot be an input: {why}",
            fix=fix,
        )


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
            shown = parameter.replace(annotation=parameter.empty, default=parameter.empty)
            raise DeclarationInvalid(
                f"parameter {shown} of {func.__name__} cannot be named in a stored input",
                fix=f"name each input: def {func.__name__}(run, order_id: int)",
            )
    return signature.replace(parameters=parameters[1:], return_annotation=inspect.Signature.empty)


def _hints(func: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """Resolve the hints of the input alone: those of the run and the result may stand under `if TYPE_CHECKING:`."""
    written = {name: one.annotation for name, one in signature.parameters.items() if one.annotation is not one.empty}
    namespace = getattr(inspect.unwrap(func), "__globals__", {})
    try:
        return typing.get_type_hints(SimpleNamespace(__annotations__=written), namespace, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise DeclarationInvalid(
            f"a type hint of {func.__name__} cannot be resolved when the module is imported: {error}",
            fix="import the type at the top of the module, outside `if TYPE_CHECKING:`",
        ) from None
