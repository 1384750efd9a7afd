"""What a body or a step returns, as JSON and back.

A step gets the decoded value on its first run too: code that works on the value itself works on a replay.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
from django.db.models import Model

from ultimat3_jobs.errors import InputInvalid, StepInvalid
from ultimat3_jobs.hints import STORABLE, UnstorableHintError, examine
from ultimat3_jobs.plain import find_dropped, to_plain, where, without_exponents

MOST_CODECS = 512
"""Declared types whose codecs are kept; they belong to functions, of which a program has a bounded number."""


def encode_result(value: Any, *, max_bytes: int) -> str | None:
    """Return what a body returned as JSON, or None where it returned nothing.

    Args:
        value: what it returned.
        max_bytes: size of the encoded result at most.

    Raises:
        InputInvalid: where it cannot be stored.
    """
    if value is None:
        return None
    return _bounded(msgspec.json.encode(to_plain(value, "$", limit=max_bytes)), max_bytes)


class OutputCodec:
    """Encodes what a step returns and decodes it to the declared type.

    Args:
        hint: the declared type. `Any` is what JSON gives: a tuple comes back as a list, a UUID as text.

    Raises:
        StepInvalid: where values of this type do not come back from storage as what they are.
    """

    def __init__(self, hint: Any) -> None:
        self._hint = hint
        try:
            self._examined = examine(hint)
        except UnstorableHintError as error:
            raise self._refuse(str(error)) from None
        self._untyped = hint is Any
        self._decoder = msgspec.json.Decoder(hint)

    def encode(self, value: Any, *, max_bytes: int) -> str:
        """Return the value as JSON.

        Args:
            value: what was returned.
            max_bytes: size of the encoded value at most.

        Raises:
            InputInvalid: naming the path of what cannot be stored and read back as the declared type.
        """
        json_only = self._examined.has_any and not self._untyped
        plain = to_plain(value, "$", json_only=json_only, limit=max_bytes)
        text = msgspec.json.encode(plain)
        try:
            decoded = self._decoder.decode(text)
        except msgspec.ValidationError as error:
            raise InputInvalid(
                f"{where(error)}, where {_shown(self._hint)} is declared",
                fix="return what is declared, or declare what is returned: run.step(name, fn, returns=...)",
            ) from None
        if not self._untyped:
            dropped = find_dropped(plain, decoded, "$")
            if dropped is not None:
                raise InputInvalid(
                    f"the value at `{dropped}` has no place in {_shown(self._hint)} and would be lost",
                    fix="run.step(name, fn, returns=...)  # a type that has a place for all of it",
                )
        if self._examined.has_remakers:
            text = msgspec.json.encode(to_plain(decoded, "$", json_only=json_only, limit=max_bytes))
        encoded = without_exponents(text.decode()).encode() if self._examined.has_floats else text
        return _bounded(encoded, max_bytes)

    def decode(self, text: str | None) -> Any:
        """Return the value that a stored text holds: a fresh one for each call.

        Raises:
            InputInvalid: where it is no longer of the declared type.
        """
        try:
            return self._decoder.decode(text or "null")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InputInvalid(
                f"what was recorded is no {_shown(self._hint)}: {where(error)}",
                fix="returns=...  # the type that was recorded or published; or give the step another name",
            ) from None

    def _refuse(self, why: str) -> StepInvalid:
        fix = f"run.step(name, fn, returns=...)  # {STORABLE}"
        if isinstance(self._hint, type) and issubclass(self._hint, Model):
            fix = "return its primary key: value.pk"
        return StepInvalid(f"a step declares {_shown(self._hint)}, which cannot be stored: {why}", fix=fix)


def codec_for(fn: Callable[..., Any], returns: Any) -> OutputCodec:
    """Return the codec of what `fn` returns.

    Args:
        fn: what a step calls.
        returns: the declared type; None is the function's annotation, a class itself, and any JSON value where there
            is neither.

    Raises:
        StepInvalid: where the type cannot be stored, or the annotation cannot be resolved.
    """
    hint = _annotation(fn) if returns is None else returns
    try:
        return _codec(hint)
    except TypeError:  # a hint that cannot be hashed
        return OutputCodec(hint)


_codec = functools.lru_cache(maxsize=MOST_CODECS)(OutputCodec)


def _annotation(fn: Callable[..., Any]) -> Any:
    target: Any = fn
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, type):
        return target
    if not inspect.isroutine(target):
        target = getattr(type(target), "__call__", target)  # noqa: B004 - its annotations are wanted
    written = getattr(target, "__annotations__", {}).get("return", Any)
    if not isinstance(written, str) and not typing.get_args(written):
        return type(None) if written is None else written
    try:
        namespace = getattr(inspect.unwrap(target), "__globals__", {})
        holder = SimpleNamespace(__annotations__={"return": written})
        return typing.get_type_hints(holder, namespace, include_extras=True)["return"]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        name = getattr(target, "__qualname__", repr(target))
        raise StepInvalid(
            f"the type that {name} says it returns cannot be resolved: {error}",
            fix="run.step(name, fn, returns=...)  # or import the type outside `if TYPE_CHECKING:`",
        ) from None


def _bounded(text: bytes, max_bytes: int) -> str:
    if len(text) > max_bytes:
        raise InputInvalid(
            f"at `$`, it is {len(text)} bytes, over the {max_bytes} of MAX_RESULT_BYTES",
            fix='store it in a model or a file and return its key; or raise ULTIMAT3_JOBS["MAX_RESULT_BYTES"]',
        )
    return text.decode()


def _shown(hint: Any) -> str:
    return inspect.formatannotation(hint)
