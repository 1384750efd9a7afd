"""The surroundings of one attempt: its context, its tenant, its connections, its process."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from ultimat3_jobs.async_run import AsyncRun
from ultimat3_jobs.context import Run, install_tenant
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.forks import leave_if_forked
from ultimat3_jobs.records import ClaimedJob
from ultimat3_jobs.tenancy import in_tenant_context
from ultimat3_jobs.worker import stacks
from ultimat3_jobs.worker.async_bodies import call_async_body
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


def call_body(definition: JobDefinition, job: ClaimedJob, run: Run, values: Mapping[str, Any]) -> Any:
    """Call a body, of either kind, and return what it returns.

    Raises:
        TypeError: where a plain function returns a coroutine, which nobody awaits.
    """
    process = os.getpid()
    with stacks.running(job.claim.id, job.name):
        try:
            if definition.is_async:
                return call_async_body(definition.func, run.seen_as(AsyncRun, job), values, run.cancelled)
            result = definition.func(run, **values)
        except BaseException as error:
            leave_if_forked(process, error)
            raise
    leave_if_forked(process)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"{definition.name} is a plain function and returned a coroutine: declare it with async def")
    return result


def in_surroundings(tenant: str | None, work: Callable[[], T]) -> T:
    """Call `work` as the body of a run.

    It gets a context of its own, so that nothing set in one run (a tenant, a language) is seen by the next; the
    tenant; and connections that are sound before it and sound again after it.
    """
    return copy_context().run(_call, tenant, work)


def _call(tenant: str | None, work: Callable[[], T]) -> T:
    install_tenant(tenant)
    with connections_of_a_run.get()():
        return in_tenant_context(tenant, work)
