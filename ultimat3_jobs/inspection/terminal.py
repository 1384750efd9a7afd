"""Jobs, stories and lists as text for a terminal: no colours, and nothing from a row that a terminal would obey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ultimat3_jobs.inspection import backfill_texts
from ultimat3_jobs.inspection.lists import Page
from ultimat3_jobs.inspection.look import Look
from ultimat3_jobs.inspection.masking import bounded, printable, shown
from ultimat3_jobs.inspection.preview import Preview, preview_command
from ultimat3_jobs.inspection.repair import mending
from ultimat3_jobs.inspection.staged import StagedPage, staged_command
from ultimat3_jobs.inspection.step_texts import (
    is_due,
    is_silent,
    output_text,
    progress_text,
    state_text,
    took_text,
    when_text,
)
from ultimat3_jobs.inspection.steps import MAX_STEPS_SHOWN
from ultimat3_jobs.inspection.story import StagedStory, Story, attempt_line, attempt_text, failure_text, overview
from ultimat3_jobs.inspection.workers import worker_command
from ultimat3_jobs.models import Job, JobAttempt, OutboxEntry
from ultimat3_jobs.moments import instant

MAX_CELL = 60
MAX_WHY = 140
"""The last column may be wider: nothing stands behind it."""


def safe(text: str) -> str:
    """Return text of several lines as a terminal may be given it."""
    return printable(text, lines=True)


def page(listed: Page, *, is_rehearsal: bool = False) -> str:
    """A list: one line for each job, and under a dead letter the command that retries it.

    Args:
        listed: the jobs.
        is_rehearsal: it is of those that a repair would take, and not of those that somebody looks for.
    """
    look = Look()
    rows = [_cells(job, look) for job in listed.jobs]
    lines = _table(
        [("ID", "STATE", "ATTEMPT", "ENDED", "NAME", "QUEUE", "TENANT", "KEY", "WHY"), *rows],
        [""] + [f"    {printable(mend[0])}" if (mend := mending(job)) else "" for job in listed.jobs],
    )
    if not listed.jobs:
        lines = ["no job was found"]
    more = rest_to_repair(listed) if is_rehearsal else rest(listed)
    return "\n".join([*lines, *_unserved(listed, look), *filter(None, [more])])


def _unserved(listed: Page, look: Look) -> Iterator[str]:
    """Yield the command that starts a worker, once for each queue with work that is due and nobody for it."""
    for queue in dict.fromkeys(job.queue for job in listed.jobs if is_due(job, look) or is_silent(job, look)):
        if not look.is_served(queue):
            yield printable(
                f"No worker that serves the queue {queue!r} is alive; to start one: {worker_command(queue)}"
            )


def staged_page(listed: StagedPage) -> str:
    """A list of outbox rows: one line for each, and under what was set aside the command that retries it."""
    lines = _table(
        [("ID", "OUTCOME", "STAGED", "NAME", "QUEUE", "TENANT", "KEY", "WHY"), *map(_staged_cells, listed.entries)],
        [""] + [f"    {mend}" if (mend := staged_command(entry)) else "" for entry in listed.entries],
    )
    if not listed.entries:
        lines = ["no staged work was found"]
    return "\n".join([*lines, *filter(None, [rest(listed)])])


def preview(one: Preview) -> str:
    """What a retry would do, and the command that does it."""
    return "\n".join(_preview(one))


def _preview(one: Preview) -> Iterator[str]:
    begins = "as it stands" if one.from_step is None else f"from step {one.from_step!r}"
    yield f"{one.id}  {printable(one.name)}  {printable(begins)}"
    for what, steps in (("skipped, their results are kept", one.skipped), ("done again", one.again)):
        yield f"  {what}: {len(steps)}"
        shown = steps[:MAX_STEPS_SHOWN]
        yield from (f"    {printable(kind):<6}  {printable(name)}" for name, kind in shown)
        if len(steps) > len(shown):
            yield f"    ... and {len(steps) - len(shown)} more"
    yield from (f"  {printable(note)}" for note in one.notes)
    yield "  Steps that are not recorded yet run when their turn comes. Nothing was changed; this does it:"
    yield f"    {printable(preview_command(one))}"


def rest(listed: Page | StagedPage) -> str:
    """How to go on where a list is not the whole of it, or nothing."""
    if listed.before is None:
        return "" if listed.walked is None else f"There are more than {listed.walked}: --limit shows more at once"
    if listed.walked is not None:
        return f"Only the newest {listed.walked} candidates were looked at; to look further: --before {listed.before}"
    return f"There are more: --before {listed.before}"


def rest_to_repair(listed: Page, done: int | None = None) -> str:
    """How to go on where a repair did not take all that its filters mean, or nothing.

    Args:
        listed: what it takes.
        done: how many of them it has moved; None where it was a dry run.
    """
    if listed.walked is not None:
        looked = f"Only the newest {listed.walked} candidates were looked at"
        return f"{looked}: with --cause, --name, --tenant or --key all are found"
    if listed.before is None:
        return ""
    if done is None:
        return "There are more: with --write, the same command takes the next ones when it is run again"
    if done:
        return "There are more: run the same command again"
    return "There are more behind those that were refused: give other filters, or take more at once with --limit"


def story(told: Story | StagedStory) -> str:
    """All about one job or one outbox row."""
    return "\n".join(_staged(told) if isinstance(told, StagedStory) else _job(told))


def _job(told: Story) -> Iterator[str]:
    job = told.job
    yield f"{job.id}  {printable(job.name)}  {printable(job.state)}"
    yield ""
    yield printable(told.why)
    yield from _mending(_commands(told))
    yield ""
    yield from _facts(
        {
            "queue": job.queue,
            "tenant": "(none)" if job.tenant_id is None else job.tenant_id,
            "key": job.idempotency_key,
            "attempt": attempt_text(job),
            "progress": progress_text(job),
            "stop": job.stop,
            "cause": job.cause,
            "due": instant(job.run_at),
            "created": instant(job.created_at),
            "started": instant(job.started_at),
            "finished": instant(job.finished_at),
            "worker": job.claimed_by,
            "enqueued by": job.enqueued_by,
        }
    )
    if told.backfill is not None:
        yield ""
        yield from _facts(backfill_texts.facts(told.backfill))
        yield ""
    yield from _block("input", shown(job.input))
    if job.result is not None:
        yield from _block("result", shown(job.result))
    yield from _steps(told)
    if job.last_error and not any(attempt.kind == "failure" for attempt in told.attempts):
        yield from _block("last error", bounded(job.last_error))
    yield from _attempts(told.attempts)
    if told.more_attempts:
        yield f"... older attempts are left out; the newest {len(told.attempts)} are shown"


def _commands(told: Story) -> list[tuple[str, str]]:
    """Return the commands of the job and of the pass that it sweeps, each once; those of the pass say more of it."""
    of_pass = {} if told.backfill is None else dict(backfill_texts.commands(told.backfill))
    return list({**dict(told.commands), **of_pass}.items())


def _steps(told: Story) -> Iterator[str]:
    if not told.steps:
        return
    yield "steps, in the order of recording:"
    if told.more_steps:
        yield f"    ... earlier steps are left out; the last {len(told.steps)} are shown, --steps shows more"
    rows = [("NAME", "KIND", "STATE", "ATTEMPT", "TOOK", "WHEN", "RESULT")]
    for step in told.steps:
        cells = (
            step.name,
            step.kind,
            state_text(step, told.job, told.now),
            str(step.attempt),
            took_text(step) or "-",
            when_text(step) or "-",
            output_text(step, MAX_CELL),
        )
        rows.append(tuple(map(_cell, cells)))  # type: ignore[arg-type]
    yield from (f"    {line}" for line in _table(rows, [""] * len(rows)))


def _staged(told: StagedStory) -> Iterator[str]:
    entry = told.entry
    outcome = entry.outcome or "waiting"
    yield f"{entry.id}  {printable(entry.name)}  staged {printable(entry.kind)}: {printable(outcome)}"
    yield ""
    yield safe(told.why)
    yield from _mending(told.commands)
    yield ""
    yield from _facts(
        {
            "queue": entry.queue,
            "tenant": "(none)" if entry.tenant_id is None else entry.tenant_id,
            "key": entry.idempotency_key,
            "staged": instant(entry.staged_at),
            "published": instant(entry.published_at),
            "enqueued by": entry.enqueued_by,
        }
    )
    yield from _block("input", shown(entry.input))


def _attempts(attempts: Iterable[JobAttempt]) -> Iterator[str]:
    """Yield each attempt; of one that failed as the one told before it did, no more than that."""
    before: JobAttempt | None = None
    for attempt in attempts:
        yield ""
        yield printable(attempt_line(attempt))
        if attempt.kind != "failure":
            continue
        text = failure_text(attempt)
        if attempt.traceback.strip() and before is not None and text == failure_text(before):
            yield f"    the same traceback as attempt {before.attempt}"
        else:
            yield from _indented(bounded(text))
        before = attempt


def _cells(job: Job, look: Look) -> tuple[str, ...]:
    cells = (
        job.state,
        f"{job.attempt}/{job.max_attempts}",
        instant(job.finished_at) or "-",
        job.name,
        job.queue,
        "-" if job.tenant_id is None else job.tenant_id,
        job.idempotency_key,
    )
    return (str(job.id), *map(_cell, cells), _cell(overview(job, look), MAX_WHY))


def _staged_cells(entry: OutboxEntry) -> tuple[str, ...]:
    cells = (
        entry.outcome or "waiting",
        instant(entry.staged_at),
        entry.name,
        entry.queue,
        "-" if entry.tenant_id is None else entry.tenant_id,
        entry.idempotency_key,
        entry.error,
    )
    return (str(entry.id), *map(_cell, cells))


def _cell(text: str, limit: int = MAX_CELL) -> str:
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _table(rows: Iterable[tuple[str, ...]], below: Iterable[str]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row, under in zip(rows, below, strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        lines.extend(filter(None, [under]))
    return lines


def _mending(commands: list[tuple[str, str]]) -> Iterator[str]:
    for command, does in commands:
        yield f"    {printable(command)}  # {does}"


def _facts(facts: dict[str, str]) -> Iterator[str]:
    for name, value in facts.items():
        if value:
            yield f"{name + ':':<14}{printable(value)}"


def _block(title: str, text: str) -> Iterator[str]:
    yield f"{title}:"
    yield from _indented(text)


def _indented(text: str) -> Iterator[str]:
    # Only these two break lines: others that do are escaped.
    for line in text.split("\n"):
        yield f"    {printable(line.expandtabs())}".rstrip()
