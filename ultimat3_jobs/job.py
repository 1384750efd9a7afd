"""`@job`: the declaration of a job, and the handle through which it is enqueued."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

import msgspec
from asgiref.sync import sync_to_async

from ultimat3_jobs import options as checked
from ultimat3_jobs import registry
from ultimat3_jobs.async_run import AsyncRun
from ultimat3_jobs.context import Run
from ultimat3_jobs.definition import JobDefinition, OnConflict, OnKeyReuse, WhileRunning
from ultimat3_jobs.durations import Duration
from ultimat3_jobs.enqueue import EnqueueOptions, EnqueueResult, build_batch, build_request, submit
from ultimat3_jobs.errors import IdempotencyRequired, NotCallable, TenantRequired
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.inputs import InputCodec
from ultimat3_jobs.keys import KeyRule, NoTenant, TenantRule, key_resolver, tenant_resolver
from ultimat3_jobs.options import MISSING, Missing
from ultimat3_jobs.records import EnqueueRequest
from ultimat3_jobs.retry import Retry

P = ParamSpec("P")
RunT = TypeVar("RunT", Run, AsyncRun)
R = TypeVar("R")


class JobCall(msgspec.Struct, frozen=True):
    """A job and its input as one value: checked, not yet enqueued."""

    request: EnqueueRequest
    on_conflict: OnConflict
    database: str | None = None

    def enqueue(self) -> EnqueueResult:
        """Enqueue it, as the handle would have. Each enqueue is a row of its own or joins the one before."""
        request = msgspec.structs.replace(self.request, id=uuid7())
        return submit([request], on_conflict=self.on_conflict, database=self.database)[0]


class Job(Generic[P, R]):
    """The handle of a declared job. Calling it is refused: `.enqueue(...)` queues it, `.func` is the plain function."""

    def __init__(self, definition: JobDefinition, options: EnqueueOptions) -> None:
        self.definition = definition
        self._options = options
        functools.update_wrapper(self, definition.func)

    @property
    def name(self) -> str:
        """The durable name of the job."""
        return self.definition.name

    @property
    def func(self) -> Callable[Concatenate[Any, P], R]:
        """The plain function, for unit tests."""
        return self.definition.func

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """Queue the job with this input: staged in the open transaction, or straight where none is open.

        Raises:
            InputInvalid: where the input does not fit the signature or cannot be stored.
            KeyReused: where a job with another input holds the key.
            DuplicateJob: where `using(on_conflict="error")` asked for it.
        """
        request = build_request(self.definition, self._options, args, kwargs)
        return submit([request], on_conflict=self._options.on_conflict, database=self._database)[0]

    def enqueue_many(self, inputs: Iterable[Mapping[str, Any]]) -> list[EnqueueResult]:
        """Queue the job once for each input, all or none, in a few statements.

        Args:
            inputs: keyword arguments of each.

        Returns:
            One result for each input, in order.

        Raises:
            JobsError: of the first input that is refused, with its position. None of the batch is queued then.
        """
        requests = build_batch(self.definition, self._options, inputs)
        return submit(requests, on_conflict=self._options.on_conflict, database=self._database)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """`enqueue` for async callers."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    async def aenqueue_many(self, inputs: Iterable[Mapping[str, Any]]) -> list[EnqueueResult]:
        """`enqueue_many` for async callers."""
        return await sync_to_async(self.enqueue_many)(inputs)

    def using(
        self,
        *,
        run_after: datetime | Duration | None = None,
        priority: int | None = None,
        queue: str | None = None,
        on_conflict: OnConflict | None = None,
        database: str | None = None,
    ) -> Self:
        """Return a handle that enqueues with these options.

        Args:
            run_after: not before this moment, or after this delay. A naive datetime is in the current time zone.
            priority: -100 to 100; higher goes first.
            queue: instead of the declared one.
            on_conflict: "join" the job that holds the key, or raise an "error".
            database: alias on whose outbox it is staged, instead of the declared one.
        """
        options = self._options
        if run_after is not None:
            run_at, delay = checked.parse_run_after(run_after)
            options = replace(options, run_at=run_at, delay=delay)
        if priority is not None:
            options = replace(options, priority=checked.check_priority(priority))
        if queue is not None:
            options = replace(options, queue=checked.check_queue(queue))
        if on_conflict is not None:
            checked.one_of("on_conflict", on_conflict, ("join", "error"))
            options = replace(options, on_conflict=on_conflict)
        if database is not None:
            options = replace(options, database=checked.check_database(database))
        return self._with(options)

    def on_behalf_of(self, user: object) -> Self:
        """Return a handle that records who asked. Attribution for the audit, never authority for the body.

        Args:
            user: a saved model instance ("auth.user:7"), or text.
        """
        return self._with(replace(self._options, enqueued_by=checked.attribution(user)))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> JobCall:
        """Return the job and its input as a value, checked now and enqueued later."""
        request = build_request(self.definition, self._options, args, kwargs)
        return JobCall(request, self._options.on_conflict, self._database)

    def describe(self) -> dict[str, object]:
        """Return the declaration as a plain JSON dict; it holds no key and no input."""
        return self.definition.describe()

    def _with(self, options: EnqueueOptions) -> Self:
        return type(self)(self.definition, options)

    @property
    def _database(self) -> str | None:
        return self._options.database or self.definition.database

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotCallable(
            f"the job {self.name} was called like a function",
            fix=f"{self.__name__}.enqueue(...) queues it; {self.__name__}.func(run, ...) is the plain function",  # type: ignore[attr-defined]
        )

    def __repr__(self) -> str:
        return f"<Job {self.name}>"


def job(
    func: Callable[..., Any] | None = None,
    /,
    *,
    idempotency_key: KeyRule | Missing = MISSING,
    tenant: TenantRule | Missing = MISSING,
    retry: Retry | None = None,
    queue: str | None = None,
    priority: int = 0,
    name: str | None = None,
    aliases: Sequence[str] = (),
    dedupe_for: Duration | None = None,
    while_running: WhileRunning = "join",
    on_key_reuse: OnKeyReuse = "error",
    atomic: bool = False,
    database: str | None = None,
    timeout: Duration | None = None,
    step_timeout: Duration | None = None,
    event_poll: Duration = "30s",
) -> Callable[[Callable[Concatenate[RunT, P], R]], Job[P, R]]:
    """Declare a job. The body's first parameter is `run`; the others, with their type hints, are its input.

    A body may be an `async def`: its `run` is an `AsyncRun`.

    Args:
        idempotency_key: required. What makes two enqueues the same work: a template over the parameters
            ("onboard:{org_id}") or a callable that names those it needs. 1 to 255 characters.
        tenant: required. A parameter's name, a callable, or NO_TENANT. Keys are unique within a tenant.
        retry: how often and when a failed attempt is tried again.
        queue: name of the queue; None is the default queue.
        priority: -100 to 100; higher goes first.
        name: the durable name of queued rows; "<app label>.<function>" where it is None.
        aliases: earlier names, under which rows may still be queued.
        dedupe_for: for how long after the enqueue a done job goes on holding its key.
        while_running: what an enqueue does that meets a job which has begun: "join" it, or ask for it "again".
        on_key_reuse: what an enqueue does whose key is held with another input: an "error", or "warn" and join.
        atomic: run the body and its ack in one transaction on the queue's database: what the body writes there
            happens exactly once. The transaction is open for as long as the body works.
        database: alias of the database whose transactions stage it, where several have an outbox.
        timeout: how long one attempt may take, from when a thread begins it; time in the queue and time asleep do not
            count. The run is then told to stop, and the attempt fails with `JobTimeout`. None: no limit.
        step_timeout: the same for each step of an attempt; at most `timeout`.
        event_poll: how often a run that waits for an event is looked at, should no publication wake it.

    Raises:
        IdempotencyRequired, TenantRequired: where one of the two is left out.
        DeclarationInvalid: where the declaration cannot work.
        DuplicateJob: where the name is taken.
    """

    def declare(body: Callable[Concatenate[RunT, P], R]) -> Job[P, R]:
        checked.check_body(body)
        codec = InputCodec(body)
        first = next(iter(codec.names), None)
        if isinstance(idempotency_key, Missing):
            template = f"{body.__name__}:{{{first}}}" if first else body.__name__
            raise IdempotencyRequired(
                f"the job {body.__name__} is declared without an idempotency_key",
                fix=f'@job(idempotency_key="{template}", tenant=...)',
            )
        if isinstance(tenant, Missing):
            rule = f'tenant="{first}")  # or tenant=NO_TENANT' if first else "tenant=NO_TENANT)  #"
            raise TenantRequired(
                f"the job {body.__name__} is declared without a tenant",
                fix=f"@job(idempotency_key=..., {rule} for work that belongs to none",
            )
        full_name = checked.job_name(name, body)
        attempt_limit, step_limit = checked.check_limits(timeout, step_timeout)
        definition = JobDefinition(
            name=full_name,
            func=body,
            codec=codec,
            key_of=key_resolver(idempotency_key, owner=full_name, names=codec.names),
            tenant_of=tenant_resolver(tenant, owner=full_name, names=codec.names),
            has_tenant=not isinstance(tenant, NoTenant),
            retry=checked.check_retry(retry),
            queue=None if queue is None else checked.check_queue(queue),
            priority=checked.check_priority(priority),
            dedupe_for=checked.check_dedupe_for(dedupe_for),
            while_running=checked.one_of("while_running", while_running, ("join", "again")),
            on_key_reuse=checked.one_of("on_key_reuse", on_key_reuse, ("error", "warn")),
            aliases=checked.check_aliases(aliases),
            atomic=checked.check_atomic(atomic, body),
            database=None if database is None else checked.check_database(database),
            timeout=attempt_limit,
            step_timeout=step_limit,
            event_poll=checked.check_positive_duration("event_poll", event_poll, example="30s"),
        )
        registry.register(definition)
        return Job(definition, EnqueueOptions())

    # `@job` without parentheses hands the function in here: it lacks the key, and is told so.
    return declare if func is None else declare(func)
