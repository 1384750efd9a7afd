"""Every error the package raises: what is (`cause`), what mends it (`fix`), and a stable `code`.

Abort and suspension are signals, not errors: see `ultimat3_jobs.control`.
"""

from __future__ import annotations

from typing import ClassVar


class JobsError(Exception):
    """Base of every error of this package.

    Args:
        cause: what is, with the values that made it so.
        fix: one line that can be run or typed as it stands.
    """

    code: ClassVar[str] = "X_JOBS"

    def __init__(self, cause: str, *, fix: str) -> None:
        super().__init__(cause, fix)
        self.cause = cause
        self.fix = fix

    @property
    def docs(self) -> str:
        """Where the documentation explains this code."""
        return f"docs/errors.md#{self.code.lower()}"

    def __str__(self) -> str:
        return f"{self.code}: {self.cause}\n  fix: {self.fix}\n  docs: {self.docs}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.cause, self.fix))


def _rebuild(kind: type[JobsError], cause: str, fix: str) -> JobsError:
    return kind(cause, fix=fix)


class SettingsInvalid(JobsError):
    """`ULTIMAT3_JOBS` holds an unknown key or a value that cannot work."""

    code = "X_SETTINGS_INVALID"


class DeclarationInvalid(JobsError):
    """A `@job` declaration cannot work: its signature, template, policy or name."""

    code = "X_JOB_DECLARATION_INVALID"


class IdempotencyRequired(JobsError):
    """A job was declared without a key, or its key came out empty or blank."""

    code = "X_IDEMPOTENCY_REQUIRED"


class TenantRequired(JobsError):
    """A job was declared without a tenant, or its tenant came out empty or blank."""

    code = "X_JOB_TENANT_REQUIRED"


class InputInvalid(JobsError):
    """An input, key or tenant cannot be stored and read back as what it is."""

    code = "X_JOB_INPUT_INVALID"


class EventInvalid(JobsError):
    """An event's name, match, payload or time to live cannot be stored, or no queue here takes events."""

    code = "X_EVENT_INVALID"


class ResultInvalid(JobsError):
    """A body ended, but what it returned cannot be stored."""

    code = "X_JOB_RESULT_INVALID"


class DuplicateJob(JobsError):
    """A name is declared twice, or a key is held and the caller asked for an error."""

    code = "X_JOB_DUPLICATE"


class KeyReused(JobsError):
    """A key is held by a row with another input."""

    code = "X_JOB_KEY_REUSED"


class UnknownJob(JobsError):
    """No job of this name is declared in the installed apps, or no row has this id."""

    code = "X_JOB_UNKNOWN"


class AmbiguousId(JobsError):
    """Several rows have ids that begin with these digits."""

    code = "X_JOB_ID_AMBIGUOUS"


class NotCallable(JobsError, TypeError):
    """A job's handle was called as if it were its function."""

    code = "X_JOB_NOT_CALLABLE"


class LeaseLost(JobsError):
    """A run that ended no longer owned its job; what its transaction held was rolled back."""

    code = "X_JOB_LEASE_LOST"


class JobTimeout(JobsError):
    """An attempt, or a step of it, took longer than its job allows."""

    code = "X_JOB_TIMEOUT"


class NotRetryable(JobsError):
    """A row cannot be started again from the state it is in."""

    code = "X_JOB_NOT_RETRYABLE"


class NotCancellable(JobsError):
    """A row has ended, or is in a state that cannot be cancelled."""

    code = "X_JOB_NOT_CANCELLABLE"


class RowStatusUnknown(JobsError):
    """A row carries a state that this build does not know."""

    code = "X_JOB_ROW_STATUS_UNKNOWN"


class OutboxNeedsTransaction(JobsError):
    """`OUTBOX.MODE` is "required" and no transaction is open."""

    code = "X_OUTBOX_NO_TX"


class DriverUnavailable(JobsError):
    """The queue cannot be used: its tables, its database or its driver is not there."""

    code = "X_DRIVER_UNAVAILABLE"


class MigrationMissing(DriverUnavailable):
    """The tables of this app do not exist yet on the database that is worked with."""

    code = "X_MIGRATION_MISSING"


class TransactionBroken(JobsError):
    """A body broke the transaction around it: an atomic job's, or, in a test, the caller's."""

    code = "X_TRANSACTION_BROKEN"


class StepInvalid(JobsError):
    """A step, a sleep or a wait was asked for in a way that cannot work: its name, its function, its type, its time."""

    code = "X_STEP_INVALID"


class StepDuplicate(JobsError):
    """Two steps of one run have the same name."""

    code = "X_STEP_DUPLICATE"


class StepChanged(JobsError):
    """What a run recorded under a name no longer fits what its code asks for under it."""

    code = "X_STEP_CHANGED"


class StepUnknown(JobsError):
    """A run has recorded no step of this name."""

    code = "X_STEP_UNKNOWN"


class StepNotAtomic(JobsError):
    """What was asked for cannot commit in one transaction with the record of the step."""

    code = "X_STEP_NOT_ATOMIC"


class StepInTransaction(JobsError):
    """A step would be recorded in a transaction that the body has open, and be forgotten with it."""

    code = "X_STEP_IN_TRANSACTION"


class SignalSwallowed(JobsError):
    """A body went on after the signal that suspends its run."""

    code = "X_SIGNAL_SWALLOWED"


class EventTimeout(JobsError):
    """A required event did not come in time."""

    code = "X_EVENT_TIMEOUT"


class BackfillUnknown(JobsError):
    """No backfill of this name is declared in the installed apps."""

    code = "X_BACKFILL_UNKNOWN"


class BackfillPending(JobsError):
    """A migration needs a backfill whose pass has not completed, or whose rows are not all handled."""

    code = "X_BACKFILL_PENDING"


class BackfillApplied(JobsError):
    """A pass of this backfill has completed, and no other was asked for by force."""

    code = "X_BACKFILL_APPLIED"


class BackfillEnvironment(JobsError):
    """A backfill is declared for other environments than this one, or this one has no name."""

    code = "X_BACKFILL_ENVIRONMENT"


class BackfillMigrationPending(JobsError):
    """The migration that a backfill requires is not applied."""

    code = "X_BACKFILL_MIGRATION_PENDING"


class BackfillRunning(JobsError):
    """A pass of this backfill is live already."""

    code = "X_BACKFILL_RUNNING"


class BackfillNotLive(JobsError):
    """A pass that was to be paused, resumed or paced has ended, or never was."""

    code = "X_BACKFILL_NOT_LIVE"


class BackfillStalled(JobsError):
    """A pass went through all of its rows, and the backfill's own count says that some are left."""

    code = "X_BACKFILL_STALLED"


class BackfillCountInvalid(JobsError):
    """A backfill's count answered something that is no whole number of 0 or more."""

    code = "X_BACKFILL_COUNT_INVALID"


class BackfillSourceInvalid(JobsError):
    """A backfill's source is no queryset that can be swept by its primary key."""

    code = "X_BACKFILL_SOURCE_INVALID"


class BackfillSourceChanged(JobsError):
    """A backfill's source gives rows of another table, or another database, than the pass began with."""

    code = "X_BACKFILL_SOURCE_CHANGED"


class BackfillKeysMoved(JobsError):
    """The primary keys of rows were changed while their page was read, so that nobody knows where it ends."""

    code = "X_BACKFILL_KEYS_MOVED"


class DrainFailed(JobsError, AssertionError):
    """In a test: work that was to be drained did not end well, and no exception of a body says why."""

    code = "X_DRAIN_FAILED"


class DrainEndless(JobsError, AssertionError):
    """In a test: draining started as many jobs as it may, and more are due."""

    code = "X_DRAIN_ENDLESS"
