"""Errors of jobs in the words that every surface uses."""

from __future__ import annotations

from ultimat3_jobs.models import Job

MAX_LINE = 300


def error_line(job: Job) -> str:
    """Return the class and message of a job's last error in one bounded line."""
    text = job.last_error.rpartition("\nverdict:")[0] or job.last_error
    lines = text.strip().splitlines()
    # A message may have lines of its own, of which the first says most: its fix and its page follow, with us.
    raised = [line for line in lines if job.error_class and line.startswith(f"{job.error_class}: ")]
    line = (raised or lines or [""])[-1].strip()
    if job.error_class and not line.startswith(job.error_class):
        line = f"{job.error_class}: {line}" if line else job.error_class
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
