"""A tenant's own scoping around work that is done for it, be it a run or a look at what a run would do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any, TypeVar

from django.utils.module_loading import import_string

from ultimat3_jobs.context import install_tenant
from ultimat3_jobs.settings import get_settings

T = TypeVar("T")


def as_tenant(tenant: str | None, work: Callable[[], T]) -> T:
    """Call `work` as a run of this tenant would, on the caller's own connections and in a context of its own."""
    return copy_context().run(_as_tenant, tenant, work)


def in_tenant_context(tenant: str | None, work: Callable[[], T]) -> T:
    """Call `work` in the project's own scoping, the context manager that the setting TENANT_CONTEXT names.

    Raises:
        BaseException: what `work` raised, also where the project's context manager keeps it to itself.
    """
    failures: list[BaseException] = []
    try:
        with _tenant_context(tenant):
            try:
                return work()
            except BaseException as error:
                failures.append(error)
                raise
        # The project's context manager kept the exception to itself: work that failed has failed all the same.
        raise failures[0]
    finally:
        failures.clear()  # or the exception and this frame keep one another alive


def _as_tenant(tenant: str | None, work: Callable[[], T]) -> T:
    install_tenant(tenant)
    return in_tenant_context(tenant, work)


def _tenant_context(tenant: str | None) -> AbstractContextManager[Any]:
    path = get_settings().tenant_context
    if tenant is None or path is None:
        return nullcontext()
    context: AbstractContextManager[Any] = import_string(path)(tenant)
    return context
