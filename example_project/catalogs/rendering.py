"""The outcome of the demo as one JSON object and as text: the same facts twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from example_project.catalogs.commandlines import database_name, environment, manage
from example_project.catalogs.report import DeadLetter, Language
from example_project.catalogs.running import Outcome

VERSION = 2
"""Of the JSON object: it grows with a change that a reader of the old one would notice."""
ADMIN_URL = "http://127.0.0.1:8000/admin/"


def as_document(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as plain JSON values."""
    staged, report = outcome.staged, outcome.report
    return {
        "version": VERSION,
        "database": database_name(),
        "staged": {
            "found": staged.found,
            "staged": staged.staged,
            "staged_total": sum(staged.staged.values()),
            "known_already": sum(staged.found.values()) - sum(staged.staged.values()),
        },
        "rolled_back": {
            "group": report.rolled_back.group,
            "rows_inside": staged.rows_rolled_back,
            "rows_left": {
                "outbox": report.rolled_back.staged,
                "jobs": report.rolled_back.jobs,
                "catalogs": report.rolled_back.catalogs,
            },
        },
        "jobs": {
            "total": sum(report.jobs_by_state.values()),
            "by_state": report.jobs_by_state,
            "done_more_than_once": report.jobs_done_more_than_once,
            "seconds": report.seconds,
            "per_second": report.jobs_per_second,
        },
        "outbox": report.outbox_by_outcome,
        "catalogs": {"scanned": report.catalogs, "messages": report.messages, "findings": report.findings},
        "publications": {
            "staged": outcome.publications_staged,
            "by_review": report.published.by_review,
            "more_than_once": report.published.more_than_once,
            "entries": report.published.entries,
            "jobs_by_state": report.published.jobs_by_state,
            "steps": report.published.steps,
            "suspended": report.published.suspended,
        },
        "backfill": report.backfill and asdict(report.backfill),
        "languages": {
            "least_translated": [asdict(language) for language in report.least_translated],
            "most_translated": [asdict(language) for language in report.most_translated],
        },
        "broken": [asdict(one) for one in report.broken],
        "dead_letters": [asdict(letter) for letter in report.dead_letters],
        "admin": {
            "environment": environment(),
            "commands": [manage("createsuperuser"), manage("runserver")],
            "url": ADMIN_URL,
        },
        "worker_log": outcome.worker_log,
    }


def as_text(outcome: Outcome) -> str:
    """Return the outcome as text for a terminal."""
    return "\n".join(_lines(as_document(outcome), outcome))


def _lines(document: Mapping[str, Any], outcome: Outcome) -> Iterator[str]:
    report, staged, back, jobs = outcome.report, document["staged"], document["rolled_back"], document["jobs"]
    yield f"Database      {document['database']}"
    yield (
        f"Staged        {staged['staged_total']:,} scans, one transaction for each of "
        f"{len(staged['found'])} groups; {staged['known_already']:,} were known already"
    )
    yield (
        f"Rolled back   {back['group']}: {back['rows_inside']:,} rows inside its transaction, "
        f"{sum(back['rows_left'].values()):,} left of them"
    )
    yield f"Scans         {_counts(jobs['by_state'])}; {jobs['done_more_than_once']:,} done more than once"
    speed = "too few to say" if jobs["per_second"] is None else f"{jobs['per_second']:,} jobs a second"
    yield f"Speed         {speed}, over {jobs['seconds']:,} s"
    yield f"Outbox        {_counts(document['outbox'])}"
    yield f"Catalogs      {report.catalogs:,} with {report.messages:,} messages; {_counts(report.findings)}"
    yield from _publications(document["publications"])
    yield from _backfill(document["backfill"])
    yield ""
    yield from _languages(report.least_translated, report.most_translated)
    yield ""
    yield "Broken on purpose"
    for one in report.broken:
        yield f"  {one.kind:<10}  {one.state or 'not queued'} after {_attempts(one.attempts)}  {one.path}"
    yield ""
    yield f"Dead letters: {len(report.dead_letters):,}"
    for letter in report.dead_letters:
        yield from _dead_letter(letter)
    yield ""
    yield "The admin on this database"
    for line in filter(None, [document["admin"]["environment"], *document["admin"]["commands"]]):
        yield f"  {line}"
    yield f"  then open {document['admin']['url']}"
    yield ""
    yield f"The worker's log is {document['worker_log']}"


def _publications(published: Mapping[str, Any]) -> Iterator[str]:
    total = sum(published["by_review"].values())
    reviews = ", ".join(f"{count:,} by {reviewer}" for reviewer, count in published["by_review"].items())
    yield f"Published     {total:,} catalogs with {published['entries']:,} entries; reviewed: {reviews or 'none'}"
    yield (
        f"Steps         {published['steps']:,} recorded by {sum(published['jobs_by_state'].values()):,} runs, "
        f"{published['suspended']:,} of them suspended meanwhile; "
        f"{published['more_than_once']:,} published more than once"
    )


def _backfill(swept: Mapping[str, Any] | None) -> Iterator[str]:
    if swept is None:
        return
    speed = "" if swept["rows_per_second"] is None else f", {swept['rows_per_second']:,} rows a second"
    yield (
        f"Backfill      {swept['name']}: {swept['outcome'] or 'not completed'}, {swept['processed']:,} of "
        f"{swept['total'] or 0:,} rows in {swept['seconds']:,} s{speed}"
    )
    contract = "its contract is migrated" if swept["contracted"] else "its contract waits"
    yield f"              {swept['words']:,} words to translate; {swept['left']:,} rows left, and {contract}"


def _languages(least: list[Language], most: list[Language]) -> Iterator[str]:
    yield f"{'Least translated':<54}Most translated"
    for left, right in zip_longest(least, most):
        yield f"  {_language(left):<52}  {_language(right)}".rstrip()


def _language(language: Language | None) -> str:
    if language is None:
        return ""
    share = f"{language.translated:,} of {language.messages:,}"
    return f"{language.percent:5.1f} %  {language.code:<8} {language.name[:20]:<20}  {share}"


def _dead_letter(letter: DeadLetter) -> Iterator[str]:
    yield f"  {letter.path or letter.name}"
    yield f"    {letter.reason}"
    yield f"    {letter.retry}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"
