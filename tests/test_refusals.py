"""Every input, key and tenant that is refused: before any statement, and in a transaction that goes on.

Each case says what is given and what the error must say, and is tried by every way to enqueue.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from tests.app.models import Organization
from tests.declaring import body_taking, error_of, written
from ultimat3_jobs import NO_TENANT, Job, job
from ultimat3_jobs.errors import JobsError

pytestmark = pytest.mark.usefixtures("isolated_registry", "outside")

INPUT, KEY, TENANT = "X_JOB_INPUT_INVALID", "X_IDEMPOTENCY_REQUIRED", "X_JOB_TENANT_REQUIRED"
STORED = "the input of body cannot be stored: the value at "
FITS = "the input of body does not fit its signature: "


class Colour(Enum):
    RED = "red"


class Named(NamedTuple):
    n: int


class Point(msgspec.Struct):
    label: str
    x: float = 0.0
    inner: Point | None = None


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal = Decimal(0)


@dataclass
class Case:
    """A job of these parameters, what it is given, and the refusal."""

    cause: str
    fix: str
    hints: dict[str, Any]
    given: dict[str, Any]
    args: tuple[Any, ...] = ()
    code: str = INPUT
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def declare(self) -> Job[..., None]:
        """Return the job."""
        options = {"idempotency_key": "key", "tenant": NO_TENANT} | self.options
        return job(name="tests.body", **options)(body_taking(**self.hints))

    def __str__(self) -> str:
        return self.cause.removeprefix(STORED).removeprefix(FITS)[:60]


def stored(hint: Any, value: Any, cause: str, fix: str) -> Case:
    """A value of the parameter `x` that cannot be stored."""
    return Case(STORED + cause, fix, {"x": hint}, {"x": value})


def fits(hint: Any, value: Any, cause: str) -> Case:
    """A value of the parameter `x` that is no value of its type."""
    return Case(FITS + cause, "body.enqueue(x=...)  # x: ", {"x": hint}, {"x": value})


def keyed(value: str | None, cause: str, fix: str, *, key: Any = None, code: str = INPUT) -> Case:
    """A key that cannot be stored."""
    return Case(cause, fix, {"x": str | None}, {"x": value}, code=code, options={"idempotency_key": key or "{x}"})


def tenanted(value: Any, cause: str, fix: str, *, tenant: Any = None, code: str = INPUT) -> Case:
    """A tenant that cannot be stored."""
    hint = type(value) if value is not None else int | None
    return Case(cause, fix, {"x": hint}, {"x": value}, code=code, options={"tenant": tenant or "x"})


def no_tenant_at_all() -> list[str]:
    return []


def inside_itself(container: Any) -> Any:
    container.append(container) if isinstance(container, list) else container.update(me=container)
    return container


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


loop = Point("loop")
loop.inner = loop

NUL_FIX = r'pass value.replace("\0", "")'
SURROGATE_FIX = 'pass value.encode(errors="replace").decode()'
NULL_FIX = "pass None, or leave the job out"

CASES = [
    # Text.
    stored(str, "a\0b", "`$.x` is text with a NUL character", NUL_FIX),
    stored(str, "a\ud800b", "`$.x` is text with a lone surrogate", SURROGATE_FIX),
    stored(list[str], ["ok", "\0"], "`$.x[1]` is text with a NUL character", NUL_FIX),
    stored(dict[str, int], {"\0": 1}, "`$.x.<key>` is text with a NUL character", NUL_FIX),
    stored(dict[str, int], {"\udfff": 1}, "`$.x.<key>` is text with a lone surrogate", SURROGATE_FIX),
    stored(dict, {"a": {"b c": ["\0"]}}, "`$.x.a['b c'][0]` is text with a NUL character", NUL_FIX),
    stored(Line, Line("\0"), "`$.x.sku` is text with a NUL character", NUL_FIX),
    stored(list[Point], [Point("p"), Point("\ud800")], "`$.x[1].label` is text with a lone surrogate", SURROGATE_FIX),
    stored(Literal["a"], "\0", "`$.x` is text with a NUL character", NUL_FIX),
    # Numbers.
    stored(float, float("nan"), "`$.x` is nan, which JSON cannot hold", NULL_FIX),
    stored(float, float("inf"), "`$.x` is inf, which JSON cannot hold", NULL_FIX),
    stored(float, float("-inf"), "`$.x` is -inf, which JSON cannot hold", NULL_FIX),
    stored(dict, {"a": [float("nan")]}, "`$.x.a[0]` is nan, which JSON cannot hold", NULL_FIX),
    stored(Point, Point("p", float("nan")), "`$.x.x` is nan, which JSON cannot hold", NULL_FIX),
    stored(dict[float, int], {float("inf"): 1}, "`$.x.<key>` is inf, which JSON cannot hold", NULL_FIX),
    stored(Decimal, Decimal("NaN"), "`$.x` is Decimal('NaN'), which has no finite value", NULL_FIX),
    stored(Decimal, Decimal("sNaN"), "`$.x` is Decimal('sNaN'), which has no finite value", NULL_FIX),
    stored(Decimal, Decimal("-Infinity"), "`$.x` is Decimal('-Infinity'), which has no finite value", NULL_FIX),
    stored(Line, Line("a", Decimal("NaN")), "`$.x.price` is Decimal('NaN'), which has no finite value", NULL_FIX),
    stored(int, 2**63, "`$.x` is an integer beyond 64 bits", "pass it as text: str(value)"),
    stored(int, -(2**63) - 1, "`$.x` is an integer beyond 64 bits", "pass it as text: str(value)"),
    stored(list, [{"n": 10**30}], "`$.x[0].n` is an integer beyond 64 bits", "pass it as text: str(value)"),
    stored(dict[int, int], {2**64: 1}, "`$.x.<key>` is an integer beyond 64 bits", "pass it as text: str(value)"),
    # Other types.
    stored(
        int, Organization(name="o"), "`$.x` is a model instance (app.Organization)", "pass its primary key: value.pk"
    ),
    stored(
        Any,
        {"by": SimpleLazyObject(lambda: Organization(name="lazy"))},
        "`$.x.by` is a model instance (app.Organization)",
        "pass its primary key: value.pk",
    ),
    stored(
        list[int],
        Organization.objects.none(),
        "`$.x` is of type QuerySet, which an input cannot hold",
        'pass its primary keys: list(value.values_list("pk", flat=True))',
    ),
    stored(str, gettext_lazy("May"), "`$.x` is a lazy translation, whose text depends on", "pass its text: str(value)"),
    stored(str, SimpleLazyObject(lambda: "x"), "`$.x` is of type SimpleLazyObject, which an input cannot hold", "pass"),
    stored(str, b"x", "`$.x` is of type bytes", "pass text: base64.b64encode(value).decode()"),
    stored(list[int], {1}, "`$.x` is of type set", "pass a list: sorted(value)"),
    stored(list[int], frozenset({1}), "`$.x` is of type frozenset", "pass a list: sorted(value)"),
    stored(list[int], (n for n in [1]), "`$.x` is of type generator", "pass a list: list(value)"),
    stored(dict[str, int], types.MappingProxyType({}), "`$.x` is of type mappingproxy", "pass a dict: dict(value)"),
    stored(list[int], range(3), "`$.x` is of type range", "pass plain data"),
    stored(int, object(), "`$.x` is of type object", "pass plain data"),
    stored(str, str, "`$.x` is of type type", "pass plain data"),
    stored(Line, Line, "`$.x` is of type type", "pass plain data"),
    stored(dict[str, int], {None: 1}, "`$.x.<key>` is None, which cannot be a key in JSON", "use str, int, UUID"),
    stored(dict[str, int], {True: 1}, "`$.x.<key>` is True, which cannot be a key in JSON", "use str, int, UUID"),
    stored(dict[str, int], {(1, 2): 1}, "`$.x.<key>` is (1, 2), which cannot be a key in JSON", "use str, int, UUID"),
    stored(
        dict[str, int], {1: 1, "1": 2}, "`$.x` is a dict with two keys that JSON writes as '1'", "use keys of one type"
    ),
    stored(time, time(1, tzinfo=ZoneInfo("Europe/Paris")), "`$.x` is a time whose offset from UTC", "pass a datetime"),
    stored(
        time,
        time(1, tzinfo=timezone(timedelta(seconds=30))),
        "`$.x` is a time whose offset from UTC",
        "pass a datetime",
    ),
    # Where no type hint says what comes back.
    stored(Any, UUID(int=1), "`$.x` is of type UUID, where the hint lets in plain JSON", "declare its type"),
    stored(dict, {"a": date(2026, 5, 3)}, "`$.x.a` is of type date, where the hint lets in plain JSON", "declare its"),
    stored(list, [(1, 2)], "`$.x[0]` is of type tuple, where the hint lets in plain JSON", "declare its type"),
    stored(list[Any], [Line("a")], "`$.x[0]` is of type Line, where the hint lets in plain JSON", "declare its type"),
    stored(dict, {5: 1}, "`$.x.<key>` is of type int, where the hint lets in plain JSON", "declare its type"),
    stored(dict, {"a": Colour.RED}, "`$.x.a` is of type Colour, where the hint lets in plain JSON", "declare its type"),
    stored(dict, {"a": {1}}, "`$.x.a` is of type set", "pass a list: sorted(value)"),
    # Depth.
    stored(list, nested(150), "`$.x" + "[0]" * 101 + "` is over 100 levels deep, or inside itself", "flatten it"),
    stored(list, inside_itself([]), "`$.x" + "[0]" * 101 + "` is over 100 levels deep, or inside itself", "flatten it"),
    stored(dict, inside_itself({}), "`$.x" + ".me" * 101 + "` is over 100 levels deep, or inside itself", "flatten it"),
    stored(Point, loop, "`$.x" + ".inner" * 100 + ".label` is over 100 levels deep, or inside itself", "flatten it"),
    # Another type than the declared one.
    fits(int, "5", "at `$.x`, expected `int`, got `str`"),
    fits(int, True, "at `$.x`, expected `int`, got `bool`"),
    fits(int, 1.0, "at `$.x`, expected `int`, got `float`"),
    fits(int, None, "at `$.x`, expected `int`, got `null`"),
    fits(bool, 1, "at `$.x`, expected `bool`, got `int`"),
    fits(str, 5, "at `$.x`, expected `str`, got `int`"),
    fits(UUID, "not-a-uuid", "at `$.x`, invalid UUID"),
    fits(date, datetime(2026, 5, 3, 1), "at `$.x`, invalid RFC3339 encoded date"),
    fits(datetime, date(2026, 5, 3), "at `$.x`, invalid RFC3339 encoded datetime"),
    fits(Colour, "green", "at `$.x`, invalid enum value 'green'"),
    fits(Literal["a", "b"], "c", "at `$.x`, invalid enum value 'c'"),
    fits(Annotated[str, msgspec.Meta(max_length=2)], "abc", "at `$.x`, expected `str` of length <= 2"),
    fits(list[int], [1, "2"], "at `$.x[1]`, expected `int`, got `str`"),
    fits(dict[int, int], {"a": 1}, "at `$.x.<key>`, expected `int`, got `str`"),
    fits(tuple[int, int], (1,), "at `$.x`, expected `array` of length 2"),
    fits(Named, Named("n"), "at `$.x[0]`, expected `int`, got `str`"),  # type: ignore[arg-type]
    fits(Line, Line(5), "at `$.x.sku`, expected `str`, got `int`"),  # type: ignore[arg-type]
    fits(Line, {}, "at `$.x`, object missing required field `sku`"),
    fits(Line, {"sku": "a", "gift": True}, "the value at `$.x.gift` has no place in the declared type"),
    # Arguments.
    Case(FITS + "`$.x` is missing", "body.enqueue(x=...)  # x: int", {"x": int}, {}),
    Case(FITS + "`$` has no argument 'y'", "body.enqueue(x=...)  # x: int", {"x": int}, {"x": 1, "y": 2}),
    Case(FITS + "`$` has no argument 'ordr'; did you mean 'order'?", "body.enqueue", {"order": int}, {"ordr": 1}),
    Case(FITS + "`$` has no argument '\\ud800'", "body.enqueue", {"x": int}, {"x": 1, "\ud800": 2}),
    Case(FITS + "`$` has no argument 'y'", "body.enqueue()  # it takes no input", {}, {"y": 2}),
    Case(FITS + "at `$`, too many positional arguments", "body.enqueue(x=...)", {"x": int}, {}, args=(1, 2)),
    Case(FITS + "at `$`, multiple values for argument 'x'", "body.enqueue(x=...)", {"x": int}, {"x": 1}, args=(1,)),
    # Size.
    Case(
        "the input of body at `$` is 300008 bytes, over the 262144 of MAX_INPUT_BYTES",
        'store the data in a model or a file and pass its key; or raise ULTIMAT3_JOBS["MAX_INPUT_BYTES"]',
        {"x": str},
        {"x": "x" * 300_000},
    ),
    # Keys.
    keyed("", "the idempotency key of tests.body came out as ''", "put an input", code=KEY),
    keyed(" \t", "the idempotency key of tests.body came out as ' \\t'", "put an input", code=KEY),
    keyed(None, "the idempotency key of tests.body came out as None", "put an input", key=lambda x: x, code=KEY),
    keyed(
        "1",
        "the value at `idempotency_key` of tests.body is of type int, not str",
        "return str",
        key=lambda x: x.count(x),
    ),
    keyed("x" * 256, "the value at `idempotency_key` of tests.body is 256 characters long, over 255", "hash the long"),
    keyed(
        "x" * 4096, "the value at `idempotency_key` of tests.body is 4096 characters long, over 255", "hash the long"
    ),
    keyed("a", "the value at `idempotency_key` of tests.body is text with a NUL", "leave it out", key=lambda x: "\0"),
    keyed(
        "a", "the value at `idempotency_key` of tests.body is text with a lone", "leave it out", key=lambda x: "\ud800"
    ),
    keyed(
        "a", "the idempotency_key template '{x:d}' of tests.body cannot be filled in", "leave the format", key="{x:d}"
    ),
    # Tenants.
    tenanted(
        None, "the tenant of tests.body came out as None", "pass the tenant's id, or return NO_TENANT", code=TENANT
    ),
    tenanted("", "the tenant of tests.body came out as ''", "pass the tenant's id, or return NO_TENANT", code=TENANT),
    tenanted(" \n", "the tenant of tests.body came out as ' \\n'", "pass the tenant's id, or return", code=TENANT),
    tenanted(True, "the value at `tenant` of tests.body is of type bool, not str, UUID or int", "pass the tenant's id"),
    tenanted(1.5, "the value at `tenant` of tests.body is of type float, not str, UUID or int", "pass the tenant's id"),
    tenanted("x" * 129, "the value at `tenant` of tests.body is 129 characters long, over 128", "use the tenant's id"),
    tenanted("a", "the value at `tenant` of tests.body is text with a NUL", "leave it out", tenant=lambda x: "\0"),
    tenanted("a", "the value at `tenant` of tests.body is text with a lone", "leave it out", tenant=lambda x: "\udc00"),
    tenanted("a", "the value at `tenant` of tests.body is of type list", "pass the", tenant=no_tenant_at_all),
]


def ways(handle: Job[..., None], case: Case) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every way to enqueue what the case gives."""
    yield "enqueue", lambda: handle.enqueue(*case.args, **case.given)
    yield "call", lambda: handle.call(*case.args, **case.given)
    yield "using", lambda: handle.using(priority=5).enqueue(*case.args, **case.given)
    yield "aenqueue", lambda: async_to_sync(handle.aenqueue)(*case.args, **case.given)
    if not case.args:
        yield "enqueue_many", lambda: handle.enqueue_many([case.given])
        yield "aenqueue_many", lambda: async_to_sync(handle.aenqueue_many)([case.given])


def check(error: JobsError, case: Case, way: str) -> None:
    prefix = "input 0 of the batch: " if "many" in way else ""
    assert error.cause.startswith(prefix + case.cause.encode(errors="backslashreplace").decode())
    assert error.fix.startswith(case.fix)
    str(error).encode()  # it can be printed whatever was refused


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_refused_before_any_statement(case: Case) -> None:
    handle = case.declare()
    for way, attempt in ways(handle, case):
        with CaptureQueriesContext(connection) as statements:
            error = error_of(case.code, attempt)
        assert not statements.captured_queries, way
        check(error, case, way)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_transaction_in_which_it_is_refused_goes_on(case: Case) -> None:
    handle = case.declare()
    with transaction.atomic():
        Organization.objects.create(name="before")
        for way, attempt in ways(handle, case):
            check(error_of(case.code, attempt), case, way)
            assert Organization.objects.count() == 1, way
        Organization.objects.create(name="after")
    assert Organization.objects.count() == 2
    assert written() == (0, 0)
