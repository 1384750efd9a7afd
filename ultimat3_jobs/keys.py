"""Idempotency keys and tenants: declared once, worked out from the decoded input alone."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from enum import Enum
from typing import Any, Final
from uuid import UUID

from ultimat3_jobs.errors import DeclarationInvalid, IdempotencyRequired, InputInvalid, TenantRequired

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
                f'tenant="{rule}" of {owner} is no parameter of its signature ({", ".join(names) or "none"})',
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
    wanted = []
    for parameter in inspect.signature(rule).parameters.values():
        variable = parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        )
        if variable or parameter.name not in names:
            raise DeclarationInvalid(
                f"the {what} callable of {owner} takes {str(parameter)!r}, which its signature does not have "
                f"({', '.join(names) or 'it has none'})",
                fix=f"name only parameters of {owner} in the {what} callable",
            )
        wanted.append(parameter.name)

    def resolve(values: Mapping[str, Any]) -> Any:
        return rule(**{name: values[name] for name in wanted})

    return resolve


def _template(rule: str, *, owner: str, names: Sequence[str]) -> Resolver:
    formatter = _Template()
    try:
        fields = [field for _, field, _, _ in formatter.parse(rule) if field is not None]
    except ValueError as error:
        raise DeclarationInvalid(
            f"the idempotency_key template {rule!r} of {owner} is malformed: {error}",
            fix='write it as "name:{parameter}"',
        ) from None
    for field in fields:
        if field not in names:
            raise DeclarationInvalid(
                f"the idempotency_key template {rule!r} of {owner} names {field!r}, which its signature does not have "
                f"({', '.join(names) or 'it has none'})",
                fix=f"name only parameters of {owner}, or pass a callable for more",
            )
    if not rule.strip():
        raise IdempotencyRequired(
            f"the idempotency_key template of {owner} is blank",
            fix=f'idempotency_key="{owner}:{{{names[0] if names else ""}}}"',
        )
    return lambda values: formatter.vformat(rule, (), values)


def _check_key(key: Any, owner: str) -> str:
    if key is None or (isinstance(key, str) and not key.strip()):
        raise IdempotencyRequired(
            f"the idempotency key of {owner} came out as {key!r}",
            fix="put an input that is never blank into the key",
        )
    if not isinstance(key, str):
        raise InputInvalid(
            f"the idempotency key of {owner} came out as {type(key).__name__}, not str - at `idempotency_key`",
            fix="return str(...) from the key callable",
        )
    return _bounded(
        str.__str__(key),
        "idempotency_key",
        owner,
        MAX_KEY,
        "hash the long part: hashlib.sha256(...).hexdigest()",
    )


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
            f"the tenant of {owner} came out as {type(tenant).__name__}, not str, UUID or int - at `tenant`",
            fix="pass the tenant's id",
        )
    return _bounded(str(tenant), "tenant", owner, MAX_TENANT, "use the tenant's id, not its name")


def _bounded(text: str, what: str, owner: str, limit: int, fix: str) -> str:
    if len(text) > limit:
        raise InputInvalid(f"the {what} of {owner} has {len(text)} characters, over {limit} - at `{what}`", fix=fix)
    if "\x00" in text or (not text.isprintable() and any("\ud800" <= c <= "\udfff" for c in text)):
        raise InputInvalid(
            f"the {what} of {owner} holds a NUL or a lone surrogate - at `{what}`",
            fix=f"leave such characters out of the {what}",
        )
    return text
