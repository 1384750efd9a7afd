"""Idempotency keys and tenants: declared once, worked out from the decoded input alone."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from enum import Enum
from typing import Any, Final
from uuid import UUID

from ultimat3_jobs.errors import DeclarationInvalid, IdempotencyRequired, InputInvalid, TenantRequired
from ultimat3_jobs.text import fault_of_text

MAX_KEY = 255
MAX_TENANT = 128


class NoTenant:
    """The type of NO_TENANT: work that belongs to no tenant, said out loud."""

    def __repr__(self) -> str:
        return "NO_TENANT"


NO_TENANT: Final = NoTenant()

KeyRule = str | Callable[..., str]
"""A template over the parameters ("onboard:{org_id}"), or a callable that names the parameters it needs."""

TenantRule = str | NoTenant | Callable[..., object]
"""A parameter's name, NO_TENANT, or a callable that names the parameters it needs."""

Resolver = Callable[[Mapping[str, Any]], Any]


class _Template(string.Formatter):
    """Formats values so that equal inputs give equal keys on every host and release."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Enum):
            value = value.value
        if not format_spec and isinstance(value, (date, time)):  # a datetime is a date
            return value.isoformat()
        return format(value, format_spec)


def key_resolver(rule: KeyRule, *, owner: str, names: Sequence[str]) -> Callable[[Mapping[str, Any]], str]:
    """Return what works out the key of an input.

    Args:
        rule: as declared.
        owner: name of the job, for messages.
        names: the parameters of the job.

    Raises:
        DeclarationInvalid: where the rule names what the signature does not have.
    """
    if isinstance(rule, str):
        resolve = _template(rule, owner=owner, names=names)
    else:
        resolve = by_keyword(rule, what="idempotency_key", owner=owner, names=names)

    def key(values: Mapping[str, Any]) -> str:
        return _check_key(resolve(values), owner)

    return key


def tenant_resolver(rule: TenantRule, *, owner: str, names: Sequence[str]) -> Callable[[Mapping[str, Any]], str | None]:
    """Return what works out the tenant of an input: text, or None for NO_TENANT.

    Raises:
        DeclarationInvalid: where the rule names what the signature does not have.
    """
    if isinstance(rule, NoTenant):
        return lambda _: None
    if isinstance(rule, str):
        if rule not in names:
            raise DeclarationInvalid(
                f'tenant="{rule}" of {owner} is no parameter of its signature ({_listed(names)})',
                fix=f'tenant="{names[0]}"' if names else "tenant=NO_TENANT",
            )
        resolve: Resolver = lambda values: values[rule]  # noqa: E731
    else:
        resolve = by_keyword(rule, what="tenant", owner=owner, names=names)

    def tenant(values: Mapping[str, Any]) -> str | None:
        return _check_tenant(resolve(values), owner)

    return tenant


def by_keyword(rule: Callable[..., Any], *, what: str, owner: str, names: Sequence[str]) -> Resolver:
    """Return a resolver that calls `rule` with just the parameters it names, by keyword."""
    if not callable(rule):
        raise DeclarationInvalid(
            f"{what}={rule!r} of {owner} is neither text nor a callable",
            fix=f"{what}=lambda {names[0] if names else ''}: ...",
        )
    if inspect.iscoroutinefunction(rule) or inspect.iscoroutinefunction(getattr(rule, "__call__", None)):  # noqa: B004
        raise DeclarationInvalid(f"the {what} callable of {owner} is async", fix=f"write the {what} callable with def")
    try:
        parameters = inspect.signature(rule).parameters
    except (ValueError, TypeError) as error:
        raise DeclarationInvalid(
            f"the parameters of the {what} callable of {owner} cannot be read: {error}",
            fix=f"{what}=lambda {names[0] if names else ''}: ...",
        ) from None
    for name, parameter in parameters.items():
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if not by_name or name not in names:
            raise DeclarationInvalid(
                f"the {what} callable of {owner} takes {str(parameter)!r}, which its signature does not have "
                f"({_listed(names)})",
                fix=f"name only parameters of {owner} in the {what} callable",
            )

    def resolve(values: Mapping[str, Any]) -> Any:
        return rule(**{name: values[name] for name in parameters})

    return resolve


def _template(rule: str, *, owner: str, names: Sequence[str]) -> Resolver:
    if not rule.strip():
        raise IdempotencyRequired(
            f"the idempotency_key template of {owner} is blank",
            fix=f'idempotency_key="{owner}:{{{names[0] if names else ""}}}"',
        )
    formatter = _Template()
    try:
        fields = list(_fields(formatter, rule))
    except ValueError as error:
        raise DeclarationInvalid(
            f"the idempotency_key template {rule!r} of {owner} is malformed: {error}",
            fix='write it as "name:{parameter}"',
        ) from None
    for field in fields:
        if field not in names:
            raise DeclarationInvalid(
                f"the idempotency_key template {rule!r} of {owner} names {field!r}, which its signature does not have "
                f"({_listed(names)})",
                fix=f"name only parameters of {owner}, or pass a callable for more",
            )

    def resolve(values: Mapping[str, Any]) -> str:
        try:
            return formatter.vformat(rule, (), values)
        except (ValueError, TypeError) as error:
            raise InputInvalid(
                f"the idempotency_key template {rule!r} of {owner} cannot be filled in: {error}",
                fix="leave the format out of the template, or pass a callable",
            ) from None

    return resolve


def _fields(formatter: string.Formatter, template: str) -> Iterator[str]:
    """Yield the fields of a template, and those inside their formats."""
    for _, field, format_spec, conversion in formatter.parse(template):
        if field is not None:
            yield field
        if conversion:
            formatter.convert_field("", conversion)
        if format_spec:
            yield from _fields(formatter, format_spec)


def _check_key(key: Any, owner: str) -> str:
    if key is None or (isinstance(key, str) and not key.strip()):
        raise IdempotencyRequired(
            f"the idempotency key of {owner} came out as {key!r}",
            fix="put an input that is never blank into the key",
        )
    if not isinstance(key, str):
        raise InputInvalid(
            f"the value at `idempotency_key` of {owner} is of type {type(key).__name__}, not str",
            fix="return str(...) from the key callable",
        )
    fix = "hash the long part: hashlib.sha256(value.encode()).hexdigest()"
    return _checked_text(str.__str__(key), "idempotency_key", owner, MAX_KEY, fix)


def _check_tenant(tenant: Any, owner: str) -> str | None:
    if isinstance(tenant, NoTenant):
        return None
    if isinstance(tenant, Enum):
        tenant = tenant.value
    if tenant is None or (isinstance(tenant, str) and not tenant.strip()):
        raise TenantRequired(
            f"the tenant of {owner} came out as {tenant!r}",
            fix="pass the tenant's id, or return NO_TENANT for work that belongs to none",
        )
    if isinstance(tenant, bool) or not isinstance(tenant, (str, UUID, int)):
        raise InputInvalid(
            f"the value at `tenant` of {owner} is of type {type(tenant).__name__}, not str, UUID or int",
            fix="pass the tenant's id",
        )
    text = str.__str__(tenant) if isinstance(tenant, str) else str(tenant)
    return _checked_text(text, "tenant", owner, MAX_TENANT, "use the tenant's id, not its name")


def _checked_text(text: str, what: str, owner: str, limit: int, fix: str) -> str:
    if len(text) > limit:
        raise InputInvalid(f"the value at `{what}` of {owner} is {len(text)} characters long, over {limit}", fix=fix)
    fault = fault_of_text(text)
    if fault is not None:
        raise InputInvalid(f"the value at `{what}` of {owner} is text with {fault}", fix=f"leave it out of the {what}")
    return text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "it has none"
