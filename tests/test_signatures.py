"""The signature as a schema: which hints and parameters can be declared."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
import pytest

from tests.app.models import Organization
from tests.declaring import body_taking
from ultimat3_jobs import Run
from ultimat3_jobs.errors import DeclarationInvalid
from ultimat3_jobs.inputs import InputCodec

if typing.TYPE_CHECKING:
    from collections import OrderedDict as OnlyForTypeCheckers

T = TypeVar("T")


class Mixed(Enum):
    ONE = 1
    TWO = "two"


class Half(Enum):
    HALF = 0.5


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Other:
    sku: str


@dataclasses.dataclass
class Loose:
    payload: dict  # type: ignore[type-arg]


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Row(msgspec.Struct, array_like=True):
    a: int
    b: int = 0


def codec(**hints: Any) -> InputCodec:
    return InputCodec(body_taking(**hints))


def text_of(body: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    return InputCodec(body).encode(args, kwargs, max_bytes=100_000).text


@pytest.mark.parametrize(
    "hint",
    [
        bytes,
        bytearray,
        memoryview,
        set,
        set[int],
        frozenset[str],
        list[set[int]],
        dict[str, bytes],
        object,
        complex,
        Path,
        deque[int],
        Callable[[], None],
        Generator[int],
        type[int],
        Organization,
        Mixed,
        Half,
        Line | Other,
        str | UUID,
        Loose,
        Box,
        list[Box[Any]],
        dict[bool, int],
        dict[None, int],
        dict[tuple[int, int], str],
        dict[int | str, int],
        dict[Row, int],
        msgspec.Raw,
        5,
    ],
    ids=str,
)
def test_a_hint_that_does_not_survive_storage_is_refused(hint: Any) -> None:
    with pytest.raises(DeclarationInvalid) as refused:
        codec(order=hint)

    assert "parameter 'order' of body is declared as" in refused.value.cause
    assert refused.value.fix.startswith("declare ")


def test_a_model_as_a_hint_is_told_to_take_the_primary_key() -> None:
    with pytest.raises(DeclarationInvalid) as refused:
        codec(organization=Organization)

    assert refused.value.fix == "declare the primary key: def body(run, organization_id: int, ...)"


def test_a_generic_record_is_taken_with_its_type() -> None:
    assert codec(box=Box[int]).decode('{"box": {"content": 5}}') == {"box": Box(5)}


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("def body(): ...", "the first parameter of body is not `run`"),
        ("def body(org_id: int): ...", "the first parameter of body is not `run`"),
        ("def body(*run): ...", "the first parameter of body is not `run`"),
        ("def body(org_id: int, run): ...", "the first parameter of body is not `run`"),
        ("def body(run, *ids: int): ...", "parameter *ids of body cannot be named in a stored input"),
        ("def body(run, **ids: int): ...", "parameter **ids of body cannot be named in a stored input"),
        ("def body(run, n: int, /): ...", "parameter n of body cannot be named in a stored input"),
        ("def body(run, n): ...", "parameter 'n' of body has no type hint"),
        ("def body(run, n: 'Nowhere'): ...", "a type hint of body cannot be resolved"),
        ("def body(run, n: 'list['): ...", "a type hint of body cannot be resolved"),
        ("def body(run, n: 'json.Nothing'): ...", "a type hint of body cannot be resolved"),
        ("def body(run, n: int = 'x'): ...", "the default of 'n' of body is no input of its type: Expected `int`"),
        ("def body(run, n: int = None): ...", "the default of 'n' of body is no input of its type"),
        ("def body(run, n: int = 2**64): ...", "the value at `$.n` is an integer beyond 64 bits"),
        ("def body(run, n: str = '\\0'): ...", "the value at `$.n` is text with a NUL character"),
        ("def body(run, n: list[int] = {1}): ...", "the value at `$.n` is of type set"),
        ("def body(run, __n: int): ...", "the parameters of body cannot be an input"),
    ],
)
def test_a_signature_that_is_no_schema_is_refused(source: str, cause: str) -> None:
    namespace: dict[str, Any] = {"json": json}
    exec(source, namespace)

    with pytest.raises(DeclarationInvalid) as refused:
        InputCodec(namespace["body"])

    assert cause in refused.value.cause
    assert refused.value.fix


def test_the_hints_of_the_run_and_the_result_need_not_be_importable() -> None:
    def body(run: OnlyForTypeCheckers[str, Run], n: int) -> OnlyForTypeCheckers[str, int]: ...

    assert text_of(body, n=1) == '{"n":1}'


def test_the_run_may_be_positional_only_and_inputs_keyword_only() -> None:
    def body(run: Run, /, n: int, *, m: int = 2) -> None: ...

    assert InputCodec(body).names == ("n", "m")
    assert text_of(body, 1) == '{"m":2,"n":1}'
