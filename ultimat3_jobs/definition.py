"""What a declaration says of a job: one frozen value that the enqueue and the worker read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

from ultimat3_jobs.durations import format_duration
from ultimat3_jobs.inputs import InputCodec
from ultimat3_jobs.retry import Retry

WhileRunning = Literal["join", "again"]
OnKeyReuse = Literal["error", "warn"]
OnConflict = Literal["join", "error"]


class Sweep(Protocol):
    """What the job of a backfill sweeps, as far as jobs go; the rest is for the package of backfills."""

    @property
    def name(self) -> str:
        """Of the backfill."""

    @property
    def environments(self) -> tuple[str, ...] | None:
        """Names of the environments that it is meant for; None: all."""

    def describe(self) -> dict[str, object]:
        """Return the declaration as plain JSON values."""


@dataclass(frozen=True, eq=False)
class JobDefinition:
    """A declared job."""

    name: str
    func: Callable[..., Any]
    codec: InputCodec
    key_of: Callable[[Mapping[str, Any]], str]
    tenant_of: Callable[[Mapping[str, Any]], str | None]
    has_tenant: bool
    retry: Retry
    queue: str | None
    """None: the default queue of the settings."""
    priority: int
    dedupe_for: timedelta | None
    while_running: WhileRunning
    on_key_reuse: OnKeyReuse
    aliases: tuple[str, ...]
    atomic: bool
    """Whether body and ack share one transaction."""
    database: str | None
    """Alias on whose outbox its enqueues are staged. None: the one that the routers give for the outbox."""
    timeout: timedelta | None
    """How long an attempt may take, from when its body's thread begins it."""
    step_timeout: timedelta | None
    """How long one step of an attempt may take."""
    event_poll: timedelta
    """How often a run that waits for an event is looked at, should no publication wake it."""
    backfill: Sweep | None = None
    """What its body sweeps, where it is a backfill."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and those that it had before."""
        return (self.name, *self.aliases)

    @property
    def is_async(self) -> bool:
        """Whether the body is an `async def`."""
        return inspect.iscoroutinefunction(self.func)

    def describe(self) -> dict[str, object]:
        """Return the declaration as plain JSON values; it holds no key and no input."""
        return {
            "name": self.name,
            "aliases": sorted(self.aliases),
            "function": f"{self.func.__module__}.{self.func.__qualname__}",
            "is_async": self.is_async,
            "description": (self.func.__doc__ or "").strip().partition("\n")[0],
            "queue": self.queue,
            "priority": self.priority,
            "tenant": self.has_tenant,
            "input": self.codec.describe(),
            "retry": self.retry.describe(),
            "dedupe_for": None if self.dedupe_for is None else format_duration(self.dedupe_for),
            "while_running": self.while_running,
            "on_key_reuse": self.on_key_reuse,
            "atomic": self.atomic,
            "database": self.database,
            "timeout": None if self.timeout is None else format_duration(self.timeout),
            "step_timeout": None if self.step_timeout is None else format_duration(self.step_timeout),
            "event_poll": format_duration(self.event_poll),
            "backfill": None if self.backfill is None else self.backfill.describe(),
        }
