"""What is enqueued comes back to the body as the declared type, through the outbox and the queue of a real database."""

from __future__ import annotations

import dataclasses
import math
import random
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from django.utils.safestring import SafeString

from tests.declaring import job_taking
from ultimat3_jobs import Job
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.outbox.relay import relay_all
from ultimat3_jobs.records import QueueSelection

pytestmark = pytest.mark.usefixtures("isolated_registry", "db")

ID = UUID("0190a5b4-7e57-7abc-8def-0123456789ab")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Rights(IntFlag):
    READ = 1
    WRITE = 2


class Shade(StrEnum):
    DARK = "dark"


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal
    colour: Colour = Colour.RED
    made: datetime | None = None


@dataclasses.dataclass
class Order:
    id: UUID
    lines: list[Line]
    due: tuple[date, time]
    by_id: dict[UUID, Line] = dataclasses.field(default_factory=dict)


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


class Named(msgspec.Struct, rename="camel", omit_defaults=True):
    first_name: str
    last_name: str = "Doe"
    nick: str | msgspec.UnsetType = msgspec.UNSET


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: float


class Row(msgspec.Struct, tag=True, array_like=True):
    number: int
    cells: list[Decimal] = []


class Tree(msgspec.Struct):
    label: str
    children: list[Tree] = []


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Address(TypedDict, total=False):
    street: str
    number: int


class SubText(str):
    __slots__ = ()


class SubInteger(int):
    pass


class SubFloat(float):
    pass


class SubDecimal(Decimal):
    pass


class SubDatetime(datetime):
    pass


class SubUUID(UUID):
    pass


class SubDict(dict[str, int]):
    pass


CustomerId = NewType("CustomerId", int)
LINE = Line("a-1", Decimal("1.10"), Colour.BLUE, datetime(2026, 5, 3, 12, 30, 0, 123456, tzinfo=UTC))

SAME: list[tuple[Any, Any]] = [
    (str, "text"),
    (str, ""),
    (str, 'snow ☃, clef 𝄞, line \u2028, tab \t, quote " and \\ backslash, bell \x07, digits 1e16 and 2E-3'),
    (str, "x" * 20_000),
    (int, 0),
    (int, 2**63 - 1),
    (int, -(2**63)),
    (bool, True),
    (None, None),
    (float, 0.1),
    (float, 1.0),
    (float, 1e16),
    (float, 1e300),
    (float, -1.7976931348623157e308),
    (float, 5e-324),
    (float, 1e-7),
    (UUID, ID),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("-0")),
    (Decimal, Decimal("1E+400")),
    (Decimal, Decimal("3.14159265358979323846264338327950288419716939937510")),
    (datetime, datetime(2026, 5, 3, 1, 2, 3, 4)),
    (datetime, datetime(2026, 5, 3, tzinfo=UTC)),
    (datetime, datetime(2026, 5, 3, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))),
    (datetime, datetime.max),
    (datetime, datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))),
    (date, date.min),
    (date, date.max),
    (time, time(23, 59, 59, 999999)),
    (time, time(1, 2, tzinfo=UTC)),
    (timedelta, timedelta(days=3, microseconds=1)),
    (timedelta, timedelta(microseconds=-1)),
    (timedelta, timedelta.max),
    (timedelta, timedelta.min),
    (Colour, Colour.BLUE),
    (Level, Level.LOW),
    (Rights, Rights.READ | Rights.WRITE),
    (Shade, Shade.DARK),
    (Line, LINE),
    (Order, Order(ID, [LINE, Line("b", Decimal(2))], (date(2026, 5, 3), time(9)), {ID: LINE})),
    (Point, Point(1e16, -2.5)),
    (Named, Named("Ada")),
    (Named, Named("Ada", "Lovelace", "A")),
    (Circle | Square, Circle(1.5)),
    (Circle | Square, Square(2.0)),
    (Row, Row(1, [Decimal("2.50")])),
    (Tree, Tree("root", [Tree("leaf"), Tree("branch", [Tree("twig")])])),
    (Pair, Pair(1)),
    (Address, {"street": "Main", "number": 5}),
    (Address, {}),
    (list[int], [3, 1, 2]),
    (list[list[float]], [[1.0], []]),
    (tuple[int, str], (1, "a")),
    (tuple[UUID, ...], (ID, ID)),
    (dict[str, Decimal], {"b": Decimal("2.50"), "a": Decimal(1)}),
    (dict[int, str], {2: "two", 10: "ten", -1: "minus"}),
    (dict[UUID, list[int]], {ID: [1]}),
    (dict[date, int], {date(2026, 5, 3): 1}),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[float, int], {1.5: 1, 1e16: 2}),
    (dict[str, int], {"a b": 1, "": 2, "☃": 3}),
    (int | None, None),
    (int | None, 5),
    (int | float, 5),
    (int | float, 1e16),
    (int | str, "5"),
    (Literal["a", "b"], "b"),
    (Literal[1, 2], 2),
    (CustomerId, 9),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
    (list[Any], [1, 1.0, 1e16, 1e300, 1e-7, "1e16", True, None, {"a": [5e-324]}]),
    (dict, {"deep": {"er": [1, {"b": 2.0}]}}),
    (Any, {"n": -1e22}),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
]

CHANGED: list[tuple[Any, Any, Any]] = [
    # What is given, and what the declared type makes of it.
    (float, 5, 5.0),
    (float, -0.0, 0.0),
    (list[float], [-0.0, 1], [0.0, 1.0]),
    (dict[str, Any], {"x": -0.0}, {"x": 0.0}),
    (Point, Point(-0.0), Point(0.0)),
    (Decimal, 1.5, Decimal("1.5")),
    (Decimal, 7, Decimal(7)),
    (UUID, str(ID), ID),
    (str, ID, str(ID)),
    (str, Shade.DARK, "dark"),
    (Colour, "blue", Colour.BLUE),
    (date, "2026-05-03", date(2026, 5, 3)),
    (Line, {"sku": "a", "price": "2.50"}, Line("a", Decimal("2.50"))),
    (list[int], (1, 2), [1, 2]),
    (tuple[int, ...], [1, 2], (1, 2)),
    (Pair, (1, "x"), Pair(1, "x")),
    (dict[str, int], {5: 1}, {"5": 1}),
    (str, SubText("sub"), "sub"),
    (str, SafeString("<b>"), "<b>"),
    (int, SubInteger(5), 5),
    (float, SubFloat(2.5), 2.5),
    (Decimal, SubDecimal("2.50"), Decimal("2.50")),
    (datetime, SubDatetime(2026, 5, 3, tzinfo=UTC), datetime(2026, 5, 3, tzinfo=UTC)),
    (UUID, SubUUID(int=5), UUID(int=5)),
    (dict[str, int], SubDict(a=1), {"a": 1}),
    # The zone's name is not kept, its offset is.
    (
        datetime,
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
        datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=1))),
    ),
    # An offset with seconds has no text: the instant is kept.
    (
        datetime,
        datetime(1900, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32))),
        datetime(1899, 12, 31, 23, 40, 28, tzinfo=UTC),
    ),
]


def through_the_database(job: Job[..., None], **given: Any) -> dict[str, Any]:
    """Enqueue, move what was staged, claim, and decode as a worker does."""
    assert job.enqueue(**given).staged
    relay_all()
    (claimed,) = get_driver().claim(worker="w", limit=5, lease=timedelta(minutes=1), queues=QueueSelection())
    return job.definition.codec.decode(claimed.input)


def assert_same(found: Any, expected: Any) -> None:
    """Equal, and of the same type, all the way down."""
    assert type(found) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert found == expected
        for key in expected:
            assert_same(next(other for other in found if other == key), key)
            assert_same(found[key], expected[key])
    elif isinstance(expected, msgspec.Struct):
        for name in expected.__struct_fields__:
            assert_same(getattr(found, name), getattr(expected, name))
    elif dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            assert_same(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, datetime):
        assert (found, found.utcoffset()) == (expected, expected.utcoffset())
    else:
        assert repr(found) == repr(expected)


def shown(case: Any) -> str:
    return repr(case)[:50]


@pytest.mark.parametrize(("hint", "value"), SAME, ids=shown)
def test_the_declared_type_comes_back(hint: Any, value: Any) -> None:
    assert_same(through_the_database(job_taking(x=hint), x=value), {"x": value})


@pytest.mark.parametrize(("hint", "value", "expected"), CHANGED, ids=shown)
def test_a_fitting_value_becomes_the_declared_type(hint: Any, value: Any, expected: Any) -> None:
    assert_same(through_the_database(job_taking(x=hint), x=value), {"x": expected})


def test_queued_in_the_callers_transaction_the_same_comes_back(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}
    cases = [case for case in SAME if case[1] is not None]
    job = job_taking(**{f"x{number}": hint for number, (hint, _) in enumerate(cases)})
    given = {f"x{number}": value for number, (_, value) in enumerate(cases)}

    assert not job.enqueue(**given).staged
    (claimed,) = get_driver().claim(worker="w", limit=5, lease=timedelta(minutes=1), queues=QueueSelection())

    assert_same(job.definition.codec.decode(claimed.input), given)


def test_every_float_comes_back_to_its_last_bit() -> None:
    drawn = random.Random(20260503)
    floats = [struct.unpack("<d", drawn.randbytes(8))[0] for _ in range(500)]
    finite = [number for number in floats if math.isfinite(number)]

    found = through_the_database(job_taking(typed=list[float], untyped=list[Any]), typed=finite, untyped=finite)

    assert_same(found, {"typed": finite, "untyped": finite})


def test_each_attempt_gets_a_fresh_copy() -> None:
    job = job_taking(x=list[int])
    text = job.call(x=[1]).request.input

    first, second = job.definition.codec.decode(text), job.definition.codec.decode(text)
    first["x"].append(2)

    assert second == {"x": [1]}
    assert job.definition.codec.decode(text) == {"x": [1]}
