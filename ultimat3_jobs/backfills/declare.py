"""`@backfill`: the declaration of a backfill, and the handle through which a pass is started."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from ultimat3_jobs import options as checked
from ultimat3_jobs import registry
from ultimat3_jobs.backfills import definition as checks
from ultimat3_jobs.backfills import passes
from ultimat3_jobs.backfills.declared import backfill_of
from ultimat3_jobs.backfills.definition import BackfillDefinition, Batch
from ultimat3_jobs.backfills.facts import facts_of
from ultimat3_jobs.backfills.gate import Verdict, judge, running
from ultimat3_jobs.backfills.pacing import check_batch, check_rate
from ultimat3_jobs.backfills.signals import DEFAULT_SIGNALS, Signal, check_signals
from ultimat3_jobs.backfills.source import rows_of
from ultimat3_jobs.backfills.sweep import sweep
from ultimat3_jobs.backfills.throttle import check_throttle
from ultimat3_jobs.backfills.windows import Window, parse_window
from ultimat3_jobs.context import Run
from ultimat3_jobs.definition import JobDefinition
from ultimat3_jobs.durations import Duration
from ultimat3_jobs.enqueue import EnqueueOptions, EnqueueResult
from ultimat3_jobs.errors import NotCallable, TenantRequired
from ultimat3_jobs.inputs import InputCodec
from ultimat3_jobs.job import Job, JobCall
from ultimat3_jobs.keys import NoTenant, TenantRule, key_resolver, tenant_resolver
from ultimat3_jobs.options import MISSING, Missing
from ultimat3_jobs.retry import Retry
from ultimat3_jobs.tenancy import as_tenant

DEFAULT_RATE = 10.0
"""Pages a second."""
DEFAULT_RETRY = Retry(attempts=10, delay="2s", max_delay="5m")
"""Attempts in a row that got nowhere; a page that lands lets them count anew."""


class Backfill(Job[..., dict[str, Any]]):
    """The handle of a declared backfill: `.enqueue()` starts a pass, `.func` is the plain handler."""

    @property
    def backfill(self) -> BackfillDefinition:
        """What was declared."""
        declared = backfill_of(self.definition)
        assert declared is not None  # noqa: S101 - made by `backfill()` alone
        return declared

    @property
    def func(self) -> Callable[..., Any]:
        """The plain handler, for unit tests."""
        return self.backfill.handler

    def judged(self, *, forced: bool = False) -> Verdict:
        """Return whether a pass may start, as things stand. Nothing is counted or written.

        Args:
            forced: whether it would sweep although another pass has completed.

        Raises:
            BackfillSourceInvalid: where the source gives nothing that can be swept.
        """
        tenant = passes.named(self.definition).tenant
        facts = as_tenant(tenant, lambda: facts_of(self.definition, self.backfill, rows_of(self.backfill)))
        return judge(self.backfill, facts, forced=forced)

    def enqueue(self, *, forced: bool = False) -> EnqueueResult:
        """Start a pass: queue its job.

        Args:
            forced: sweep although another pass has completed.

        Raises:
            BackfillSourceInvalid: where its rows cannot be swept.
            BackfillEnvironment, BackfillMigrationPending: where it is not to run here, or not yet.
            BackfillApplied: where a pass has completed and this one is not forced.
            BackfillRunning: where a pass is live.
        """
        return self.start(lambda: super(Backfill, self).enqueue(forced=forced), forced=forced)[0]

    def enqueue_many(self, inputs: Iterable[Mapping[str, Any]]) -> NoReturn:
        """Refused: a backfill has one live pass.

        Raises:
            NotCallable: always.
        """
        raise NotCallable(
            f"the backfill {self.name} has one live pass, and enqueue_many was asked for several",
            fix=f"{self.__name__}.enqueue()",  # type: ignore[attr-defined]
        )

    async def aenqueue_many(self, inputs: Iterable[Mapping[str, Any]]) -> NoReturn:
        """Refused, as `enqueue_many`."""
        self.enqueue_many(inputs)

    def call(self, *, forced: bool = False) -> PassCall:
        """Return a pass as a value. Whether it may start is asked where it is enqueued.

        Args:
            forced: sweep although another pass has completed.
        """
        one = super().call(forced=forced)
        return PassCall(one.request, one.on_conflict, one.database, handle=self, forced=forced)

    def start(self, enqueue: Callable[[], EnqueueResult], *, forced: bool) -> tuple[EnqueueResult, tuple[str, ...]]:
        """Start a pass where it may start: what every way of enqueueing one comes through.

        Returns:
            What was queued, and what should be known of it.

        Args:
            enqueue: queues its job.
            forced: whether it sweeps although another pass has completed.

        Raises:
            JobsError: as for `enqueue()`.
        """
        verdict = self.judged(forced=forced)
        if verdict.error is not None:
            raise verdict.error
        result = enqueue()
        if result.deduped:
            raise running(self.name, result.id)  # another was first, since the gate looked
        return result, verdict.warnings

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotCallable(
            f"the backfill {self.name} was called like a function",
            fix=f"{self.__name__}.enqueue() starts a pass; {self.__name__}.func(run, rows) is the plain handler",  # type: ignore[attr-defined]
        )

    def __repr__(self) -> str:
        return f"<Backfill {self.name}>"


class PassCall(JobCall, frozen=True, kw_only=True):
    """A pass of a backfill as a value: not yet enqueued.

    Attributes:
        handle: of the backfill.
        forced: whether it sweeps although another pass has completed.
    """

    handle: Backfill
    forced: bool

    def enqueue(self) -> EnqueueResult:
        """Start the pass, with the same refusals as the handle's own `enqueue()`."""
        return self.handle.start(lambda: JobCall.enqueue(self), forced=self.forced)[0]


def _input(run: Run, forced: bool = False) -> None:
    """Has the signature of every pass: what its job stores."""


def backfill(
    *,
    source: Callable[[], Any],
    tenant: TenantRule | Missing = MISSING,
    name: str | None = None,
    aliases: Sequence[str] = (),
    batch: Batch = 1_000,
    rate: float = DEFAULT_RATE,
    throttle: Callable[[], Any] | None = None,
    signals: Sequence[Signal] = DEFAULT_SIGNALS,
    window: str | tuple[str, str] | Window | None = None,
    requires: tuple[str, str] | None = None,
    environments: Sequence[str] | None = None,
    count: Callable[[], Any] | None = None,
    lock: bool = True,
    atomic: bool = True,
    exclusive: bool = True,
    retry: Retry = DEFAULT_RETRY,
    queue: str | None = None,
    priority: int = 0,
    database: str | None = None,
    timeout: Duration | None = None,
    page_timeout: Duration | None = None,
) -> Callable[[Callable[[Run, Any], Any]], Backfill]:
    """Declare a backfill: a sweep over the rows of a model, in pages by primary key. It is a job with all that one has.

    Its handler is called with the run and the rows of a page, a list of model instances, locked until the page commits.
    Where the rows are in the queue's database, a page and the cursor that moves behind it are one transaction: what the
    handler writes there happens exactly once. Elsewhere, and with `atomic=False`, the page commits first: it may be
    handled again, so the handler must stand that.

    Args:
        source: gives the queryset of the rows to sweep. Neither sliced, distinct, ordered nor joined.
        tenant: required. NO_TENANT, or a callable that returns the tenant.
        name: the durable name, in the queue and the ledger; "<app label>.<function>" where it is None.
        aliases: earlier names: a pass that completed under one counts.
        batch: rows a page at most, 1 to 100,000; or "auto": tuned so that a page takes half a second.
        rate: pages a second at most, 0.0001 to 1,000. Can be changed while a pass is live.
        throttle: asked before each page: None, False or 0 goes on, True waits 5 seconds, a length of time waits that
            long.
        signals: conditions of the rows' database under which it waits: on PostgreSQL replicas that lag, a vacuum that
            waits for the table, too much write-ahead log. Looked at every 5 seconds.
        window: hours in which it may sweep ("22:00-06:00"), in the project's TIME_ZONE. Can be changed while a pass is
            live.
        requires: app label and name of a migration that must be applied.
        environments: names of the environments that it is meant for; None: all. Compared with the setting ENVIRONMENT.
        count: counts the rows that are left. After the last page it must answer 0, or the pass has not completed.
        lock: lock the rows of a page, so that no edit made meanwhile is overwritten.
        atomic: commit a page and the cursor together, where the rows are in the queue's database.
        exclusive: wait while another pass sweeps the same table.
        retry: how often and when a failed attempt is tried again. Attempts count anew with every page that lands.
        queue: name of the queue; None is the default queue.
        priority: -100 to 100; higher goes first.
        database: alias of the database whose transactions stage it, where several have an outbox.
        timeout: how long one attempt may take; None: no limit.
        page_timeout: how long the handler may take for one page.

    Raises:
        TenantRequired: where the tenant is left out.
        DeclarationInvalid: where the declaration cannot work.
        DuplicateJob: where the name is taken.
    """

    def declare(handler: Callable[[Run, Any], Any]) -> Backfill:
        checked.check_body(handler)
        checks.check_handler(handler)
        if isinstance(tenant, Missing):
            raise TenantRequired(
                f"the backfill {handler.__name__} is declared without a tenant",
                fix="@backfill(tenant=NO_TENANT, ...)  # for rows that belong to none, or to all",
            )
        full_name, names = checked.job_name(name, handler), checked.check_aliases(aliases)
        of_rows = BackfillDefinition(
            name=full_name,
            aliases=names,
            handler=handler,
            source=checks.check_callable("source", source, example="lambda: Post.objects.all()"),
            batch=check_batch(batch),
            rate=check_rate(rate),
            throttle=check_throttle(throttle),
            signals=check_signals(signals),
            window=None if window is None else parse_window(window),
            requires=checks.check_requires(requires),
            environments=checks.check_environments(environments),
            count=None
            if count is None
            else checks.check_callable("count", count, example='lambda: Post.objects.filter(slug="").count()'),
            lock=checks.check_flag("lock", lock),
            atomic=checks.check_flag("atomic", atomic),
            exclusive=checks.check_flag("exclusive", exclusive),
        )
        attempt_limit, page_limit = checked.check_limits(timeout, page_timeout, part="page_timeout")

        @functools.wraps(handler)
        def body(run: Run, forced: bool = False) -> dict[str, Any]:
            return sweep(of_rows, run, forced=forced)

        codec = InputCodec(_input)
        definition = JobDefinition(
            name=full_name,
            func=body,
            codec=codec,
            key_of=key_resolver(passes.KEY, owner=full_name, names=codec.names),
            tenant_of=tenant_resolver(tenant, owner=full_name, names=()),
            has_tenant=not isinstance(tenant, NoTenant),
            retry=checked.check_retry(retry),
            queue=None if queue is None else checked.check_queue(queue),
            priority=checked.check_priority(priority),
            dedupe_for=None,
            while_running="join",
            on_key_reuse="warn",
            aliases=names,
            atomic=False,
            database=None if database is None else checked.check_database(database),
            timeout=attempt_limit,
            step_timeout=page_limit,
            event_poll=checked.check_positive_duration("event_poll", "30s", example="30s"),
            backfill=of_rows,
        )
        registry.register(definition)
        return Backfill(definition, EnqueueOptions())

    return declare
