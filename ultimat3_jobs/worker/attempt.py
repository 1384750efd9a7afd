"""The surroundings of one attempt: its context, its tenant, its connections."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from django.utils.module_loading import import_string

from ultimat3_jobs.context import install_tenant
from ultimat3_jobs.settings import get_settings
from ultimat3_jobs.worker.connections import prepare_connections, replace_spoilt_connections

T = TypeVar("T")


class OwnConnections:
    """The connections of a worker's thread: sound before the run and sound again after it."""

    def __enter__(self) -> None:
        self._in_transaction = prepare_connections()

    def __exit__(self, *raised: object) -> None:
        replace_spoilt_connections(self._in_transaction)


connections_of_a_run: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "ultimat3_jobs_connections_of_a_run", default=OwnConnections
)
"""What is entered around every body. A test that runs bodies inline lends them its own connections instead."""


def in_surroundings(tenant: str | None, work: Callable[[], T]) -> T:
    """Call `work` as the body of a run.

    It gets a context of its own, so that nothing set in one run (a tenant, a language) is seen by the next; the
    tenant; and connections that are sound before it and sound again after it.
    """
    return copy_context().run(_call, tenant, work)


def _call(tenant: str | None, work: Callable[[], T]) -> T:
    install_tenant(tenant)
    with connections_of_a_run.get()():
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


def _tenant_context(tenant: str | None) -> AbstractContextManager[Any]:
    path = get_settings().tenant_context
    if tenant is None or path is None:
        return nullcontext()
    context: AbstractContextManager[Any] = import_string(path)(tenant)
    return context
