"""Retrying and cancelling for people: one outcome for each id, each refusal with its reason and what can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from ultimat3_jobs.aliases import in_transaction, queue_alias
from ultimat3_jobs.backfills.commands import backfill_command, list_command
from ultimat3_jobs.backfills.declared import declared_under
from ultimat3_jobs.backfills.passes import KEY, live_under, needs_another_pass
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import JobsError, NotCancellable, NotRetryable, StepUnknown, UnknownJob
from ultimat3_jobs.inspection.staged import staged_rows
from ultimat3_jobs.inspection.steps import recorded_names, unknown_step
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.outbox.repair import retry_set_aside
from ultimat3_jobs.records import CancelVerdict, RetryVerdict
from ultimat3_jobs.registry import names_of
from ultimat3_jobs.states import RETRYABLE, State
from ultimat3_jobs.text import command_line

BATCH = 500
"""Rows that one transaction of a bulk repair moves."""
MAX_REASON = 255
"""Characters of a reason, as the history keeps it."""


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one id.

    Attributes:
        id: of the job or outbox row.
        done: what was asked for has been done.
        verdict: in one word, for programs.
        error: where it was refused, why.
    """

    id: UUID
    done: bool
    verdict: str
    error: JobsError | None = None


def mending(job: Job) -> tuple[str, str] | None:
    """Return the command that is likely to mend a dead or failed job, and what it does; None where nothing is to mend.

    Args:
        job: with its state, its name and the class of its error.
    """
    if job.state not in RETRYABLE:
        return None
    if needs_another_pass(job.error_class):
        return backfill_command(job.name, "--write"), "starts another pass: in this one no row is left to go on with"
    return command_line("jobs", "retry", str(job.id)), "starts it again, its attempts anew"


def retry(ids: Sequence[UUID], *, by: str, reason: str, from_step: str | None = None) -> list[Outcome]:
    """Start dead letters again, and hand outbox rows that were set aside to the relay again; one outcome for each id.

    Args:
        ids: of jobs or of outbox rows, mixed.
        by: who asks; kept in the history.
        reason: why; kept in the history.
        from_step: of jobs, the recorded step from which on everything is done again; one that has not recorded it is
            refused, as are outbox rows, which have no steps. None: what is recorded is kept.
    """
    beside: dict[UUID, UUID] = {}
    verdicts = _in_batches(ids, lambda batch: _start_again(batch, beside, by=by, reason=reason, from_step=from_step))
    missing = [one for one, verdict in zip(ids, verdicts, strict=True) if verdict is RetryVerdict.NOT_FOUND]
    staged = staged_rows(missing)
    again = [] if from_step is not None else list(dict.fromkeys(one for one in missing if one in staged))
    handed_on = dict(zip(again, retry_set_aside(again, by=by, reason=reason), strict=True))
    jobs = _rows(one for one, verdict in zip(ids, verdicts, strict=True) if verdict is RetryVerdict.NOT_RETRYABLE)
    without = [one for one, verdict in zip(ids, verdicts, strict=True) if verdict is RetryVerdict.NO_STEP]
    known = _known_steps(without[0]) if len(without) == 1 else None  # of many it would be a query each
    outcomes = []
    for one, verdict in zip(ids, verdicts, strict=True):
        if verdict is RetryVerdict.NO_STEP and from_step is not None:
            outcomes.append(Outcome(one, False, verdict, unknown_step(one, from_step, known)))
        elif verdict is RetryVerdict.KEY_HELD and one in beside:
            outcomes.append(Outcome(one, False, verdict, pass_beside(one, beside[one])))
        elif verdict is not RetryVerdict.NOT_FOUND:
            outcomes.append(_retried(one, verdict, jobs.get(one)))
        elif one in staged and from_step is not None:
            outcomes.append(_without_steps(staged[one], from_step))
        elif one in staged:
            outcomes.append(_handed_on(staged[one], handed_on[one]))
        else:
            outcomes.append(_missing(one))
    return outcomes


def cancel(ids: Sequence[UUID], *, by: str, reason: str) -> list[Outcome]:
    """Cancel live jobs for good; one outcome for each id. The arguments are those of `retry`."""
    verdicts = _in_batches(ids, lambda batch: get_driver().cancel(batch, by=by, reason=reason))
    jobs = _rows(one for one, verdict in zip(ids, verdicts, strict=True) if verdict is not CancelVerdict.CANCELLED)
    return [_cancelled(one, verdict, jobs.get(one)) for one, verdict in zip(ids, verdicts, strict=True)]


def _in_batches(ids: Sequence[UUID], move: Callable[[Sequence[UUID]], list[V]]) -> list[V]:
    return [verdict for start in range(0, len(ids), BATCH) for verdict in move(ids[start : start + BATCH])]


def _start_again(
    ids: Sequence[UUID], beside: dict[UUID, UUID], *, by: str, reason: str, from_step: str | None
) -> list[RetryVerdict]:
    """Start dead letters again; of the passes of one backfill the newest, and none where one is live.

    A driver knows the key of a job's own name alone, and the live pass may be under another name of the backfill.

    Args:
        ids: of jobs.
        beside: is told which pass is live in place of one that was refused for that.
        by: who asks.
        reason: why.
        from_step: as for `retry`.
    """
    if in_transaction(queue_alias()):
        # Before anything is read: SQLite refuses a transaction that has read and then comes to write.
        get_driver().take_turn()
    held, later = dict[UUID, UUID](), set[UUID]()
    for names, passes in _dead_passes(ids).items():
        live = live_under(names).values_list("run_id", flat=True).first()
        held |= {} if live is None else dict.fromkeys(passes, live)
        later |= set() if live is not None else set(passes[1:])
    beside |= held
    first = [one for one in ids if one not in held and one not in later]
    verdicts = iter(get_driver().retry(first, by=by, reason=reason, from_step=from_step))
    # Where the newest was started, it is live by now.
    following = [one for one in ids if one in later]
    others = iter(_start_again(following, beside, by=by, reason=reason, from_step=from_step) if following else ())
    return [RetryVerdict.KEY_HELD if one in held else next(others if one in later else verdicts) for one in ids]


def _dead_passes(ids: Iterable[UUID]) -> dict[tuple[str, ...], list[UUID]]:
    """Return the dead and failed passes among some jobs by the names of their backfills, the newest first."""
    letters = Job.objects.using(queue_alias()).filter(pk__in=list(ids), idempotency_key=KEY, state__in=RETRYABLE)
    found: dict[tuple[str, ...], list[UUID]] = {}
    for job_id, name in letters.order_by("-pk").values_list("pk", "name"):
        if declared_under(name) is not None:
            found.setdefault(names_of(name), []).append(job_id)
    return found


def _rows(ids: Iterable[UUID]) -> dict[UUID, Job]:
    return Job.objects.using(queue_alias()).only("name", "state").in_bulk(list(ids))


def _known_steps(job_id: UUID) -> list[str]:
    run_id = Job.objects.using(queue_alias()).values_list("run_id", flat=True).filter(pk=job_id).first()
    return [] if run_id is None else [name for name, _seq, _kind in recorded_names(run_id)]


def _retried(job_id: UUID, verdict: RetryVerdict, job: Job | None) -> Outcome:
    if verdict is RetryVerdict.RETRIED:
        return Outcome(job_id, True, verdict)
    return Outcome(job_id, False, verdict, not_retryable(job_id, verdict, job))


def not_retryable(job_id: UUID, verdict: RetryVerdict, job: Job | None) -> JobsError:
    """Return why a job cannot be started again, and what can be done about it."""
    again = f"python manage.py jobs retry {job_id}"
    if verdict is RetryVerdict.SUPERSEDED:
        return NotRetryable(
            f"job {job_id} gave up its key when it died, and a newer dead letter of that key was retried instead",
            fix=f"{again}  # once the newer one has ended",
        )
    if verdict is RetryVerdict.KEY_HELD:
        return NotRetryable(
            f"job {job_id} gave up its key when it died, and another job has taken it since",
            fix=f"{again}  # once the job that holds the key has ended",
        )
    if job is not None and verdict is RetryVerdict.NOT_RETRYABLE:
        return NotRetryable(
            f"job {job_id} is {job.state}; only dead and failed jobs can be retried",
            fix=_started_anew(job) if job.state in (State.DONE, State.CANCELLED) else f"{again}  # once it is dead",
        )
    return NotRetryable(f"job {job_id} was not retried: {verdict}", fix=f"python manage.py jobs show {job_id}")


def _started_anew(job: Job) -> str:
    """Return what does the work of a job again that is over for good."""
    if declared_under(job.name) is None:
        return f"enqueue {job.name} again"
    if job.state == State.DONE:
        return f"{list_command(job.name)}  # what it came to; nothing is to be done"
    return backfill_command(job.name, "--write")


def pass_beside(job_id: UUID, live: UUID) -> JobsError:
    """Return why a dead pass cannot be started again while another pass of its backfill is live."""
    return NotRetryable(
        f"job {job_id} is a pass of a backfill, and another pass of it is live: {live}",
        fix=f"{command_line('jobs', 'retry', str(job_id))}  # once that one has ended",
    )


def _without_steps(entry: OutboxEntry, from_step: str) -> Outcome:
    error = StepUnknown(
        f"{entry.id} is staged work and has recorded no step {from_step!r}",
        fix=f"python manage.py jobs show {entry.job_id or entry.id}",
    )
    return Outcome(entry.id, False, RetryVerdict.NO_STEP, error)


def _handed_on(entry: OutboxEntry, verdict: RetryVerdict) -> Outcome:
    if verdict is RetryVerdict.RETRIED:
        return Outcome(entry.id, True, verdict)
    if entry.job_id is not None:
        error = NotRetryable(
            f"{entry.id} was staged and became the job {entry.job_id}; only that one can be retried",
            fix=f"python manage.py jobs show {entry.job_id}",
        )
    else:
        error = NotRetryable(
            f"{entry.id} was staged and is not set aside: it waits for the relay",
            fix=f"python manage.py jobs show {entry.id}",
        )
    return Outcome(entry.id, False, RetryVerdict.NOT_RETRYABLE, error)


def _cancelled(job_id: UUID, verdict: CancelVerdict, job: Job | None) -> Outcome:
    if verdict is CancelVerdict.CANCELLED:
        return Outcome(job_id, True, verdict)
    if job is None:
        return _missing(job_id)
    error = NotCancellable(
        f"job {job_id} is {job.state}; only jobs that have not ended can be cancelled",
        fix=f"python manage.py jobs show {job_id}",
    )
    return Outcome(job_id, False, verdict, error)


def _missing(job_id: UUID) -> Outcome:
    error = UnknownJob(f"there is no job {job_id}", fix="copy an id from `python manage.py jobs ls`")
    return Outcome(job_id, False, RetryVerdict.NOT_FOUND, error)
