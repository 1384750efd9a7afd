"""One job, or one row of the outbox, as it is told to people: what it is, why it is so, and what mends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ultimat3_jobs import registry
from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.passes import needs_another_pass
from ultimat3_jobs.drivers.database.rows import encode, uuid
from ultimat3_jobs.inspection.backfill_texts import paused_text
from ultimat3_jobs.inspection.error_texts import error_line
from ultimat3_jobs.inspection.look import Look
from ultimat3_jobs.inspection.passes import PassReport, pass_of
from ultimat3_jobs.inspection.people_texts import by, by_and_why
from ultimat3_jobs.inspection.repair import mending
from ultimat3_jobs.inspection.staged import staged_rows
from ultimat3_jobs.inspection.step_texts import is_due, is_silent, why_suspended
from ultimat3_jobs.inspection.steps import MAX_STEPS_SHOWN, RecordedStep, last_steps
from ultimat3_jobs.models import Job, JobAttempt, OutboxEntry
from ultimat3_jobs.moments import instant, span
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import LIVE, RETRYABLE, WAITING, State, Stop

MAX_ATTEMPTS_SHOWN = 50

_STOPS = {
    Stop.TERMINAL: "its error says that another attempt cannot help",
    Stop.EXHAUSTED: "its attempts are used up",
    Stop.TIMEOUT: "it took longer than it may",
    Stop.WORKER_LOST: "its worker was lost on the last attempt",
    Stop.CANCELLED: "it was cancelled",
}


@dataclass(frozen=True, slots=True)
class Story:
    """One job as it is told.

    Attributes:
        job: its row.
        why: what keeps it from running or made it end, in a sentence or two.
        attempts: failures, retries and cancels, the newest first, bounded.
        more_attempts: there are older ones.
        steps: what its run has recorded, in that order: the last ones, bounded.
        more_steps: there are earlier ones.
        now: the time of the queue's database when it was told.
        holder: the job that has taken its key since it died, if there is one.
        commands: the command line that mends it, with what each line does; the most likely one first.
        backfill: the pass that it sweeps, if it does.
    """

    job: Job
    why: str
    attempts: list[JobAttempt]
    more_attempts: bool
    steps: list[RecordedStep]
    more_steps: bool
    now: datetime
    holder: UUID | None
    commands: list[tuple[str, str]]
    backfill: PassReport | None = None


@dataclass(frozen=True, slots=True)
class StagedStory:
    """One row of the outbox as it is told; the attributes are those of `Story`."""

    entry: OutboxEntry
    why: str
    commands: list[tuple[str, str]]


def tell(job_id: UUID, *, steps: int = MAX_STEPS_SHOWN) -> Story | StagedStory | None:
    """Return the story of a job, else of the outbox row of this id, else None.

    Args:
        job_id: of the job or the row.
        steps: recorded steps at most, of the last.
    """
    alias = queue_alias()
    job = Job.objects.using(alias).filter(pk=job_id).first()
    if job is None:
        entry = staged_rows([job_id]).get(job_id)
        return None if entry is None else tell_staged(entry)
    history = JobAttempt.objects.using(alias).filter(job_id=job_id).order_by("-id")
    attempts = list(history[: MAX_ATTEMPTS_SHOWN + 1])
    holder = _holder(job) if job.state in RETRYABLE else None
    recorded, more_steps = last_steps(job.run_id, limit=steps)
    look = Look()
    swept = pass_of(job, look)
    return Story(
        job=job,
        why=_why(job, holder, look, swept),
        attempts=attempts[:MAX_ATTEMPTS_SHOWN],
        more_attempts=len(attempts) > MAX_ATTEMPTS_SHOWN,
        steps=recorded,
        more_steps=more_steps,
        now=look.now,
        holder=holder,
        commands=_commands(job, holder, [] if swept is not None else recorded),
        backfill=swept,
    )


def tell_staged(entry: OutboxEntry) -> StagedStory:
    """Return the story of an outbox row."""
    commands = []
    if entry.outcome is None:
        why = "It is committed and waits for the relay, which runs in every worker and in `jobs_relay`."
        commands.append(("python manage.py jobs_relay", "relays without running jobs, until it is stopped"))
    elif entry.outcome == OutboxEntry.Outcome.PUBLISHED:
        why = f"It became the job {entry.job_id}{_gone(entry.job_id)}."
        if entry.kind == OutboxEntry.Kind.EVENT:
            why = "It is published: every run that waits for it gets it, until it expires."
    elif entry.outcome == OutboxEntry.Outcome.DEDUPED:
        why = f"The job {entry.job_id} had its key already, and stands for it{_gone(entry.job_id)}."
    elif entry.outcome == OutboxEntry.Outcome.SET_ASIDE:
        why = f"It could not be published and was set aside: {entry.error.strip() or 'no reason was kept'}"
        commands.append((f"python manage.py jobs retry {entry.id}", "hands it to the relay again"))
    else:
        why = f"Its outcome is {entry.outcome!r}, which this build does not know."
    if entry.job_id:
        commands.append((f"python manage.py jobs show {entry.job_id}", "tells what became of the job"))
    return StagedStory(entry, why, commands)


def overview(job: Job, look: Look) -> str:
    """Return in a few words why a job stands where it does, from a row of a list.

    Args:
        job: the row.
        look: one for all rows of the list.
    """
    if job.state in RETRYABLE:
        return f"{job.error_class or 'no error was kept'} ({job.stop or 'no reason was kept'})"
    if job.state == State.CANCELLED:
        return f"cancelled{by_and_why(job.cancel_requested_by, job.cancel_reason)}"
    if job.state == State.RUNNING:
        return _running(job, look)
    return _waiting(job, look)


def _waiting(job: Job, look: Look) -> str:
    if is_due(job, look):
        if not look.is_served(job.queue):
            return "no worker that serves its queue is alive"
        return f"waits for a worker since {instant(job.run_at)}"
    if job.state == State.SUSPENDED:
        return job.park_reason
    if job.state == State.DELAYED:
        return f"due {instant(job.run_at)}" + (f", after {job.error_class}" if job.error_class else "")
    return ""


def _running(job: Job, look: Look) -> str:
    if job.visible_at is not None and look.is_due(job.visible_at):
        return f"worker {job.claimed_by} went silent: its lease lapsed at {instant(job.visible_at)}"
    if job.started_at is None:
        return f"claimed by worker {job.claimed_by}, and not begun"
    return f"since {instant(job.started_at)} in worker {job.claimed_by}"


def repair_line(attempt: JobAttempt) -> str:
    """Return who retried, cancelled or steered a job, when, from which step or how, and why, from its history."""
    step = f" from step {attempt.rule!r}" if attempt.kind == "retry" and attempt.rule else ""
    step = f" ({attempt.rule})" if attempt.kind == "pace" and attempt.rule else step
    by = f" by {attempt.by}" if attempt.by else ""
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"{attempt.kind}{step} at {instant(attempt.finished_at)}{by}{reason}"


def attempt_line(attempt: JobAttempt) -> str:
    """Return how an attempt failed and what was decided, or who retried or cancelled the job."""
    if attempt.kind != "failure":
        return repair_line(attempt)
    due, ended = attempt.next_run_at, attempt.finished_at
    following = ""
    if due is not None:
        following = ", next at once" if ended is not None and due <= ended else f", next due {instant(due)}"
    decided = f" ({attempt.decision}{following})" if attempt.decision else ""
    return f"attempt {attempt.attempt} failed at {instant(attempt.finished_at)}: {attempt.error_class}{decided}"


def attempt_text(job: Job) -> str:
    """Return how many attempts a job has used: one that is suspended has given its attempt back."""
    used = "used of" if job.state in WAITING else "of"
    return f"{job.attempt} {used} {job.max_attempts}"


def failure_text(attempt: JobAttempt) -> str:
    """Return what is known of a failure: its traceback, and its message unless the traceback has it."""
    traceback, message = attempt.traceback.rstrip(), attempt.message.rstrip()
    return "\n".join(filter(None, (traceback, "" if message in traceback else message)))


def _why(job: Job, holder: UUID | None, look: Look, swept: PassReport | None) -> str:
    if swept is not None and (paused := paused_text(swept)) and is_due(job, look):
        return f"It is {paused}. Once it is resumed, it waits for {look.worker_for(job.queue)}."
    told = f"Its state is {job.state!r}, which this build does not know: another release wrote it. It is left alone."
    match job.state:
        case State.DEAD | State.FAILED:
            told = _why_dead(job, holder)
        case State.READY:
            told = _why_ready(job, look)
        case State.DELAYED:
            told = _why_delayed(job, look)
        case State.RUNNING:
            told = _why_running(job, look)
        case State.SUSPENDED:
            told = why_suspended(job, look)
        case State.DONE:
            told = f"It ended well at {instant(job.finished_at)}, on attempt {job.attempt}."
        case State.CANCELLED:
            told = _why_cancelled(job)
    return told


def _why_dead(job: Job, holder: UUID | None) -> str:
    what = "It is a dead letter" if job.state == State.DEAD else "It failed, and its policy keeps no dead letter"
    told = f"{what}: {_stop(job)}, after attempt {job.attempt} of {job.max_attempts}, at {instant(job.finished_at)}."
    if error := error_line(job):
        told += f" The error was {error}"
        told += f", in {job.error_place}." if job.error_place else "."
    if holder is not None:
        told += f" The job {holder} has taken its key since: this one can be retried once that one has ended."
    return told


def _why_ready(job: Job, look: Look) -> str:
    told = f"It is due since {instant(job.run_at)} and waits for {look.worker_for(job.queue)}."
    if job.lapses:
        told += f" Workers that ran it were lost {job.lapses} times."
    if registry.find(job.name) is None:
        told += f" No code here declares {job.name!r}: a worker of this release will park it."
    return told


def _why_delayed(job: Job, look: Look) -> str:
    if job.attempt:
        told = f"Attempt {job.attempt} of {job.max_attempts} failed: {error_line(job) or 'no error was kept'}"
        told += "; the next one is due"
    else:
        told = "It was asked for later: it is due"
    if look.is_due(job.run_at):
        return f"{told} since {instant(job.run_at)} and waits for {look.worker_for(job.queue)}."
    return f"{told} at {instant(job.run_at)}, in {span((job.run_at - look.now).total_seconds())}."


def _why_running(job: Job, look: Look) -> str:
    attempt = f"attempt {job.attempt} of {job.max_attempts}"
    if job.started_at is None:
        told = f"Worker {job.claimed_by} has claimed it for {attempt}, whose body has not begun."
    else:
        told = f"Worker {job.claimed_by} runs {attempt} since {instant(job.started_at)}."
    if is_silent(job, look):
        told += f" Its lease lapsed at {instant(job.visible_at)}: the worker is silent, and the job waits for "
        told += f"{look.worker_for(job.queue)}."
    elif job.visible_at:
        told += f" Its lease holds until {instant(job.visible_at)} and is renewed."
    if job.cancel_requested_at:
        told += f" It was asked to stop at {instant(job.cancel_requested_at)}{by(job.cancel_requested_by)}."
    return told


def _why_cancelled(job: Job) -> str:
    at = instant(job.cancel_requested_at or job.finished_at)
    return f"It was cancelled at {at}{by_and_why(job.cancel_requested_by, job.cancel_reason)}."


def _stop(job: Job) -> str:
    return _STOPS.get(job.stop, job.stop or "no reason was kept")  # type: ignore[call-overload, no-any-return]


def _commands(job: Job, holder: UUID | None, steps: list[RecordedStep]) -> list[tuple[str, str]]:
    """Return the commands that are about a job.

    Args:
        job: its row.
        holder: the job that has taken its key.
        steps: that it may begin from anew; none of one that sweeps, which goes on from its last page.
    """
    if job.state in LIVE:
        return [(f"python manage.py jobs cancel {job.id}", "stops it for good")]
    mend = mending(job)
    if mend is None:
        return []
    commands = [mend]
    if holder is not None:
        commands.insert(0, (f"python manage.py jobs show {holder}", "tells about the job that has its key"))
    elif job.cause and not needs_another_pass(job.error_class):
        alike = f"python manage.py jobs retry --cause {job.cause}"
        commands.append((alike, "lists those that failed alike; with --write they are retried"))
    if steps:
        looked = f"python manage.py jobs retry {job.id} --from-step {shlex.quote(steps[-1].name)} --preview"
        commands.append((looked, "shows what a retry from that step would do again; any recorded step can be named"))
    return commands


def _holder(job: Job) -> UUID | None:
    key = {"position": 0, "name": job.name, "tenant_id": job.tenant_id, "idempotency_key": job.idempotency_key}
    for _position, holder, _run_id, _fingerprint, _attempt, _finished, expired in run(
        queue_alias(), "holders", {"rows": encode([key])}
    ):
        if not expired:
            return uuid(holder)
    return None


def _gone(job_id: UUID | None) -> str:
    if job_id is None or Job.objects.using(queue_alias()).filter(pk=job_id).exists():
        return ""
    return ", which has been deleted since"
