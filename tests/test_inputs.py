"""Defaults, equal inputs, what would be lost, sizes, and stored inputs that no longer fit."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import types
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest

from tests.app.models import Organization
from tests.declaring import body_taking
from ultimat3_jobs import Run
from ultimat3_jobs.errors import InputInvalid
from ultimat3_jobs.inputs import InputCodec
from ultimat3_jobs.outputs import encode_result

T = TypeVar("T")


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


class Point(msgspec.Struct):
    x: float = 0.0


class Row(msgspec.Struct, array_like=True):
    a: int
    b: int = 0


class Address(TypedDict):
    street: str


def codec(**hints: Any) -> InputCodec:
    return InputCodec(body_taking(**hints))


def text_of(body: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    return InputCodec(body).encode(args, kwargs, max_bytes=100_000).text


def test_equal_inputs_have_equal_text() -> None:
    def body(
        run: Run, a: dict[str, int], b: Line, *, c: float = 1, d: tuple[int, ...] = (1,), e: UUID | None = None
    ) -> None: ...

    first = text_of(body, {"x": 1, "y": 2}, Line("s"))

    assert first == '{"a":{"x":1,"y":2},"b":{"count":1,"sku":"s"},"c":1.0,"d":[1],"e":null}'
    assert text_of(body, b={"count": 1, "sku": "s"}, a={"y": 2, "x": 1}) == first
    assert text_of(body, {"y": 2, "x": 1}, b=Line("s", 1), d=[1], c=1.0, e=None) == first


def test_equal_values_written_otherwise_have_equal_text() -> None:
    pairs: list[tuple[Any, Any, Any]] = [
        (UUID, UUID(int=10), str(UUID(int=10)).upper()),
        (float, 0.0, -0.0),
        (dict[UUID, int], {UUID(int=10): 1}, {str(UUID(int=10)).upper(): 1}),
        (dict[int, int], {2: 1, 10: 2}, {10: 2, 2: 1}),
        (Decimal, Decimal(5), 5),
    ]
    for hint, one, other in pairs:
        body = body_taking(x=hint)
        assert text_of(body, x=one) == text_of(body, x=other)


def test_key_callables_see_decoded_values_in_one_order() -> None:
    def body(run: Run, when: date, sizes: dict[str, int], scale: float = 1) -> None: ...

    encoded = InputCodec(body).encode((), {"when": "2026-05-03", "sizes": {"b": 1, "a": 2}}, max_bytes=1000)

    assert encoded.values == {"when": date(2026, 5, 3), "sizes": {"a": 2, "b": 1}, "scale": 1.0}
    assert list(encoded.values["sizes"]) == ["a", "b"]
    assert type(encoded.values["scale"]) is float


def test_a_default_comes_as_the_declared_type_and_fresh_each_time() -> None:
    def body(run: Run, tags: list[str] = ("a",), line: Line = Line("d"), scale: float = 1) -> None: ...  # type: ignore[assignment] # noqa: B008

    decode = InputCodec(body).decode
    first, second = decode("{}"), decode("{}")

    assert first == {"tags": ["a"], "line": Line("d"), "scale": 1.0}
    assert type(first["scale"]) is float
    first["tags"].append("b")
    first["line"].count = 9
    assert second == decode("{}") == {"tags": ["a"], "line": Line("d"), "scale": 1.0}


@pytest.mark.parametrize(
    ("hint", "value", "path"),
    [
        (Line, {"sku": "a", "colour": "red"}, "$.x.colour"),
        (list[Line], [{"sku": "a"}, {"sku": "b", "Count": 2}], "$.x[1].Count"),
        (dict[str, Line], {"k k": {"sku": "a", "n": 1}}, "$.x['k k'].n"),
        (Point, {"x": 1.0, "z": 2.0}, "$.x.z"),
        (Row, [1, 2, 3], "$.x[2]"),
        (Address, {"street": "Main", "number": 5}, "$.x.number"),
        (dict[UUID, int], {str(UUID(int=10)): 1, str(UUID(int=10)).upper(): 2}, "$.x["),
    ],
)
def test_what_a_record_would_drop_in_silence_is_refused(hint: Any, value: Any, path: str) -> None:
    with pytest.raises(InputInvalid) as refused:
        codec(x=hint).encode((), {"x": value}, max_bytes=1000)

    assert f"the value at `{path}" in refused.value.cause
    assert "has no place in the declared type and would be lost" in refused.value.cause


def test_a_subclass_with_more_fields_than_the_declared_record_is_refused() -> None:
    @dataclasses.dataclass
    class Special(Line):
        gift: bool = True

    with pytest.raises(InputInvalid, match=r"\$\.x\.gift"):
        codec(x=Line).encode((), {"x": Special("a")}, max_bytes=1000)


def test_two_keys_that_json_writes_alike_are_refused() -> None:
    with pytest.raises(InputInvalid, match="a dict with two keys that JSON writes as '1'"):
        codec(x=dict[str, int]).encode((), {"x": {1: 5, "1": 6}}, max_bytes=1000)


@pytest.mark.parametrize("size", [100, 1000])
def test_an_input_of_the_allowed_size_is_taken_and_one_byte_more_is_not(size: int) -> None:
    text = "x" * (size - len('{"x":""}'))

    assert len(codec(x=str).encode((text,), {}, max_bytes=size).text) == size
    with pytest.raises(InputInvalid) as refused:
        codec(x=str).encode((text + "x",), {}, max_bytes=size)
    assert refused.value.cause == f"the input of body at `$` is {size + 1} bytes, over the {size} of MAX_INPUT_BYTES"


def test_size_is_counted_in_bytes_as_stored() -> None:
    with pytest.raises(InputInvalid, match="is 12 bytes"):
        codec(x=str).encode(("𝄞",), {}, max_bytes=11)
    with pytest.raises(InputInvalid, match="is 309 bytes"):  # PostgreSQL writes 1e300 out
        codec(x=float).encode((1e300,), {}, max_bytes=308)


def test_a_small_object_that_unfolds_into_a_huge_one_is_refused_at_once() -> None:
    nested: list[Any] = []
    for _ in range(20):  # over a million lists where it is unfolded
        nested = [nested, nested]

    with pytest.raises(InputInvalid, match="is the first after 1000 others, too many"):
        codec(x=list).encode((nested,), {}, max_bytes=1000)


def test_a_callers_stack_that_is_nearly_used_up_is_no_recursion_error() -> None:
    nested: list[Any] = []
    for _ in range(90):
        nested = [nested]
    taking = codec(x=list)
    limit = sys.getrecursionlimit()

    sys.setrecursionlimit(len(inspect.stack()) + 60)
    try:
        with pytest.raises(InputInvalid, match=r"the value at `\$\.x` is nested too deeply"):
            taking.encode((nested,), {}, max_bytes=1000)
    finally:
        sys.setrecursionlimit(limit)


@dataclasses.dataclass
class Remade(Generic[T]):
    """Changes itself when it is made."""

    value: T
    label: str = ""

    def __post_init__(self) -> None:
        made: dict[object, Any] = {"nan": float("nan"), "nul": "\0", "map": types.MappingProxyType({}), "ok": "OK"}
        self.value = made.get(self.label, self.value)


@pytest.mark.parametrize("hint", [Remade[str], list[Remade[str]], dict[str, Remade[str]]], ids=str)
@pytest.mark.parametrize(
    ("label", "what"), [("nan", "nan"), ("nul", "text with a NUL"), ("map", "of type mappingproxy")]
)
def test_what_a_record_makes_of_itself_is_looked_at_too(hint: Any, label: str, what: str) -> None:
    given: dict[str, Any] = {"value": "v", "label": label}
    value = {Remade[str]: given, list[Remade[str]]: [given]}.get(hint, {"k": given})

    with pytest.raises(InputInvalid, match=rf"the value at `\$\.x(\[0\]|\.k)?\.value` is {what}"):
        codec(x=hint).encode((), {"x": value}, max_bytes=1000)


def test_what_a_record_makes_of_itself_is_what_is_stored() -> None:
    given = {"value": "v", "label": "ok"}

    assert text_of(body_taking(x=Remade[str]), given) == '{"x":{"label":"ok","value":"OK"}}'


@pytest.mark.parametrize(
    ("before", "stored", "after", "cause"),
    [
        ("n: int", {"n": 1}, "n: str", "at `$.n`, expected `str`, got `int`"),
        ("n: int", {"n": 1}, "n: int, m: int", "missing required field `m`"),
        ("n: int, m: int", {"n": 1, "m": 2}, "n: int", "unknown field `m`"),
        ("n: str", {"n": "x"}, "n: Literal['y']", "at `$.n`, invalid enum value 'x'"),
        ("n: list[int]", {"n": [1]}, "n: list[str]", "at `$.n[0]`, expected `str`, got `int`"),
        ("n: dict[str, int]", {"n": {"a": 1}}, "n: dict[int, int]", "at `$.n.<key>`, expected `int`, got `str`"),
    ],
)
def test_a_stored_input_that_no_longer_fits_says_where(
    before: str, stored: dict[str, Any], after: str, cause: str
) -> None:
    namespace: dict[str, Any] = {"Literal": Literal}
    exec(f"def old(run, {before}): ...\ndef new(run, {after}): ...", namespace)
    text = text_of(namespace["old"], **stored)

    with pytest.raises(InputInvalid) as refused:
        InputCodec(namespace["new"]).decode(text)

    assert refused.value.code == "X_JOB_INPUT_INVALID"
    assert refused.value.cause.startswith("the stored input no longer fits new(")
    assert cause in refused.value.cause.lower()
    assert refused.value.fix.endswith("(a default for what is new), then retry the job")


def test_a_stored_input_that_is_damaged_is_an_input_error() -> None:
    for text in ("", "{", "[]", "null", '{"x": NaN}', '{"x": "\ud800"}', '{"x":' + "[" * 100_000):
        with pytest.raises(InputInvalid):
            codec(x=Any).decode(text)


def test_a_stored_input_fits_a_signature_that_gained_a_default() -> None:
    def body(run: Run, n: float, tags: list[str] = []) -> None: ...  # noqa: B006

    assert InputCodec(body).decode('{"n": 5}') == {"n": 5.0, "tags": []}


def test_constraints_of_a_hint_are_checked() -> None:
    positive = codec(x=Annotated[int, msgspec.Meta(ge=1)])
    with pytest.raises(InputInvalid, match=r"at `\$\.x`, expected `int` >= 1"):
        positive.encode((0,), {}, max_bytes=1000)


def test_the_schema_is_plain_json_and_holds_no_default() -> None:
    def body(
        run: Run, line: Line, by_id: dict[UUID, int], secret: str = "hunter2", colour: Colour = Colour.RED
    ) -> None: ...

    schema = json.dumps(InputCodec(body).describe())

    assert json.loads(schema)["$defs"]["Input"]["required"] == ["line", "by_id"]
    assert "hunter2" not in schema


@pytest.mark.parametrize("value", [b"x", {1, 2}, float("nan"), "\x00", "\ud800", 2**63, Organization(), object()])
def test_a_result_that_cannot_be_stored_is_refused_with_its_path(value: Any) -> None:
    with pytest.raises(InputInvalid, match=r"the value at `\$\.a\[0\]` is "):
        encode_result({"a": [value]}, max_bytes=1_000)


def test_a_result_is_kept_as_plain_json() -> None:
    assert encode_result(None, max_bytes=1) is None
    assert encode_result({"id": UUID(int=1), 5: (Decimal("1.0"), Line("a"))}, max_bytes=1_000) == (
        '{"id":"00000000-0000-0000-0000-000000000001","5":["1.0",{"sku":"a","count":1}]}'
    )
