"""Keys and tenants: how they are declared, what they come out as, and the namespace in which a key is held."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from django.utils.safestring import SafeString

from tests.declaring import body_taking, refused
from ultimat3_jobs import NO_TENANT, Job, job
from ultimat3_jobs.errors import DeclarationInvalid, IdempotencyRequired, JobsError
from ultimat3_jobs.models import Job as JobRow

pytestmark = pytest.mark.usefixtures("isolated_registry")

ID = UUID("0190a5b4-7e57-7abc-8def-0123456789ab")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Shade(StrEnum):
    DARK = "dark"


class Keyed:
    """An object that is called, as a key or a tenant."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __call__(self, a: int) -> Any:
        return self.answer


class AsyncKeyed:
    async def __call__(self, a: int) -> str:
        return str(a)


async def async_key(a: int) -> str:
    return str(a)


def declare(key: Any = "key", tenant: Any = NO_TENANT, *, name: str = "tests.body", **hints: Any) -> Job[..., None]:
    body = body_taking(**hints or {"a": int, "b": str})
    body.__qualname__ = name  # another function for another job
    return job(name=name, idempotency_key=key, tenant=tenant)(body)


def key_of(key: Any, hint: Any, value: Any) -> str:
    return declare(key, x=hint).call(x=value).request.idempotency_key


def tenant_of(tenant: Any, hint: Any, value: Any) -> str | None:
    return declare(tenant=tenant, x=hint).call(x=value).request.tenant_id


@pytest.mark.parametrize(
    ("template", "hint", "value", "key"),
    [
        ("nightly", int, 1, "nightly"),
        ("k:{x}", int, 5, "k:5"),
        ("k:{x}", UUID, ID, f"k:{ID}"),
        ("k:{x}", UUID, str(ID).upper(), f"k:{ID}"),
        ("k:{x}", float, 1, "k:1.0"),
        ("k:{x}", Decimal, Decimal("1.10"), "k:1.10"),
        ("k:{x}", date, date(2026, 5, 3), "k:2026-05-03"),
        ("k:{x}", time, time(9, 30), "k:09:30:00"),
        ("k:{x}", datetime, datetime(2026, 5, 3, 1, tzinfo=UTC), "k:2026-05-03T01:00:00+00:00"),
        ("k:{x:%Y}", date, date(2026, 5, 3), "k:2026"),
        ("k:{x}", Colour, Colour.RED, "k:red"),
        ("k:{x}", Level, Level.LOW, "k:1"),
        ("k:{x}", Shade, Shade.DARK, "k:dark"),
        ("k:{x:>5}", Colour, "red", "k:  red"),
        ("k:{x!r}", str, "a", "k:'a'"),
        ("{{{x}}}", int, 5, "{5}"),
        ("{x:{x}}", int, 3, "  3"),
        ("k:{x}", dict[str, int], {"b": 1, "a": 2}, "k:{'a': 2, 'b': 1}"),
        ("☃ {x}", str, "𝄞", "☃ 𝄞"),
        ("{x}", str, "x" * 255, "x" * 255),
        ("{x}", str, "𝄞" * 255, "𝄞" * 255),
        (" {x}", int, 5, " 5"),
        (lambda x: f"call:{x + 1}", int, 5, "call:6"),
        (lambda: "fixed", int, 5, "fixed"),
        (lambda x: SafeString("safe"), int, 5, "safe"),
        (lambda x: Shade.DARK, int, 5, "dark"),
    ],
)
def test_a_key_comes_out_of_the_decoded_input(template: Any, hint: Any, value: Any, key: str) -> None:
    found = key_of(template, hint, value)

    assert found == key
    assert type(found) is str


@pytest.mark.parametrize(
    ("tenant", "hint", "value", "text"),
    [
        ("x", int, 5, "5"),
        ("x", int, 0, "0"),
        ("x", str, "5", "5"),
        ("x", str, "none", "none"),
        ("x", str, "None", "None"),
        ("x", str, "x" * 128, "x" * 128),
        ("x", UUID, str(ID).upper(), str(ID)),
        ("x", Colour, Colour.RED, "red"),
        ("x", Level, Level.LOW, "1"),
        (lambda x: x * 2, int, 5, "10"),
        (lambda x: SafeString("safe"), int, 5, "safe"),
        (lambda: NO_TENANT, int, 5, None),
        (lambda x: NO_TENANT if x else "some", int, 0, "some"),
        (NO_TENANT, int, 5, None),
    ],
)
def test_a_tenant_comes_out_as_text_or_as_none_at_all(tenant: Any, hint: Any, value: Any, text: str | None) -> None:
    found = tenant_of(tenant, hint, value)

    assert found == text
    assert type(found) in (str, type(None))


def test_callables_get_just_the_parameters_they_name_with_defaults_filled_in() -> None:
    seen: list[dict[str, Any]] = []

    def body(run: Any, a: int, b: float = 2, *, c: str = "d") -> None: ...

    def key(c: str, *, b: float) -> str:
        seen.append({"b": b, "c": c})
        return c

    job(name="tests.body", idempotency_key=key, tenant=lambda a: a)(body).call("7" and 7)

    assert seen == [{"b": 2.0, "c": "d"}]


@pytest.mark.parametrize("rule", [Keyed("k").__call__, Keyed("k"), functools.partial(lambda a: "k")])
def test_anything_that_can_be_called_is_a_callable(rule: Callable[..., Any]) -> None:
    handle = declare(rule, rule)

    request = handle.call(a=1, b="x").request

    assert (request.idempotency_key, request.tenant_id) == ("k", "k")


@pytest.mark.parametrize(
    ("key", "cause"),
    [
        ("k:{z}", "template 'k:{z}' of tests.body names 'z', which its signature does not have (a, b)"),
        ("k:{}", "names '', which its signature does not have"),
        ("k:{0}", "names '0', which its signature does not have"),
        ("k:{a.real}", "names 'a.real', which its signature does not have"),
        ("k:{b[0]}", "names 'b[0]', which its signature does not have"),
        ("k:{run}", "names 'run', which its signature does not have"),
        ("k:{a:{z}}", "names 'z', which its signature does not have"),
        ("k:{a", "is malformed"),
        ("k:}", "is malformed"),
        ("k:{a!q}", "is malformed"),
        (
            lambda z: "k",
            "the idempotency_key callable of tests.body takes 'z', which its signature does not have (a, b)",
        ),
        (lambda run: "k", "takes 'run', which its signature does not have"),
        (lambda a, z=1: "k", "takes 'z=1', which its signature does not have"),
        (lambda *a: "k", "takes '*a', which its signature does not have"),
        (lambda **a: "k", "takes '**a', which its signature does not have"),
        (lambda a, /: "k", "takes 'a', which its signature does not have"),
        (str, "the parameters of the idempotency_key callable of tests.body cannot be read"),
        (async_key, "the idempotency_key callable of tests.body is async"),
        (AsyncKeyed(), "the idempotency_key callable of tests.body is async"),
        (5, "idempotency_key=5 of tests.body is neither text nor a callable"),
        (None, "idempotency_key=None of tests.body is neither text nor a callable"),
        (NO_TENANT, "idempotency_key=NO_TENANT of tests.body is neither text nor a callable"),
    ],
)
def test_a_key_that_cannot_work_is_refused_when_declared(key: Any, cause: str) -> None:
    with pytest.raises(DeclarationInvalid) as raised:
        declare(key)

    assert cause in raised.value.cause
    assert raised.value.fix


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_a_blank_template_is_no_key(blank: str) -> None:
    with pytest.raises(IdempotencyRequired) as raised:
        declare(blank)

    assert raised.value.fix == 'idempotency_key="tests.body:{a}"'


@pytest.mark.parametrize(
    ("tenant", "cause"),
    [
        ("z", 'tenant="z" of tests.body is no parameter of its signature (a, b)'),
        ("run", 'tenant="run" of tests.body is no parameter of its signature (a, b)'),
        ("", 'tenant="" of tests.body is no parameter of its signature (a, b)'),
        (lambda z: "t", "the tenant callable of tests.body takes 'z', which its signature does not have (a, b)"),
        (async_key, "the tenant callable of tests.body is async"),
        (5, "tenant=5 of tests.body is neither text nor a callable"),
        (None, "tenant=None of tests.body is neither text nor a callable"),
        (ID, "of tests.body is neither text nor a callable"),
    ],
)
def test_a_tenant_that_cannot_work_is_refused_when_declared(tenant: Any, cause: str) -> None:
    with pytest.raises(DeclarationInvalid) as raised:
        declare(tenant=tenant)

    assert cause in raised.value.cause
    assert raised.value.fix


def test_what_a_key_callable_itself_raises_comes_through() -> None:
    handle = declare(lambda a: str(1 // a))

    with pytest.raises(ZeroDivisionError):
        handle.call(a=0, b="x")


def ids(results: list[Any]) -> int:
    """Return how many different jobs the results stand for."""
    return len({result.id for result in results})


@pytest.mark.usefixtures("outside")
class TestTheNamespaceOfAKey:
    """`(name, tenant or none, key)` among the rows that hold their key."""

    def test_two_tenants_never_meet_in_one_key(self) -> None:
        handle = declare("key", "b")

        first = [handle.enqueue(a=1, b=tenant) for tenant in ("one", "two", "One", "one ", "none", "None", "NO_TENANT")]
        again = handle.enqueue(a=1, b="two")

        assert ids(first) == len(first)
        assert (again.id, again.deduped) == (first[1].id, True)

    def test_two_jobs_may_share_a_key(self) -> None:
        one, other = declare("key", name="tests.one"), declare("key", name="tests.other")

        assert ids([one.enqueue(a=1, b="x"), other.enqueue(a=1, b="x")]) == 2

    def test_tenantless_rows_share_one_namespace(self) -> None:
        without = declare("key", NO_TENANT)
        first, second = without.enqueue(a=1, b="x"), without.enqueue(a=1, b="x")
        assert (second.id, second.deduped) == (first.id, True)

        sometimes = declare("key", lambda b: NO_TENANT if b == "x" else b)
        assert sometimes.enqueue(a=1, b="x").id == first.id
        assert sometimes.enqueue(a=1, b="none").id != first.id
        assert list(JobRow.objects.order_by("id").values_list("tenant_id", flat=True)) == [None, "none"]

    def test_a_tenant_is_its_text_whatever_type_it_had(self) -> None:
        numbered = declare("key", lambda a: a)
        named = declare("key", lambda a: f"{a}")

        assert numbered.enqueue(a=5, b="x").id == named.enqueue(a=5, b="x").id

    def test_the_longest_random_keys_are_taken_and_longer_ones_refused(self) -> None:
        drawn = random.Random(20260503)
        wide = [chr(drawn.randint(0x10000, 0x10FFFF)) for _ in range(4096)]  # four bytes each, and hard to compress
        name, tenant, key = "n." + "".join(drawn.choices("𝄞𝄢𝄡𝄫", k=198)), "".join(wide[:128]), "".join(wide[:255])
        handle = declare(lambda b: b[128:], lambda b: b[:128], name=name)

        first = handle.enqueue(a=1, b=tenant + key)
        assert handle.enqueue(a=1, b=tenant + key).id == first.id
        error = refused("X_JOB_INPUT_INVALID", lambda: handle.enqueue(a=1, b="".join(wide)))

        assert error.cause == f"the value at `idempotency_key` of {name} is 3968 characters long, over 255"
        assert JobRow.objects.get().idempotency_key == key

    def test_errors_name_no_other_tenants_job(self) -> None:
        handle = declare("key", "b")
        other = handle.enqueue(a=1, b="other")
        mine = handle.enqueue(a=1, b="mine")

        with pytest.raises(JobsError) as raised:
            handle.enqueue(a=2, b="mine")

        assert str(mine.id) in raised.value.cause
        assert str(other.id) not in raised.value.cause
