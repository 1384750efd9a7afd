"""What the tables say once the jobs are final. It reads, and keeps nothing in mind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Count, F, QuerySet, Sum
from django.utils.translation import get_language_info

from example_project.catalogs import broken
from example_project.catalogs.backfills import UNCOUNTED, count_words
from example_project.catalogs.commandlines import manage
from example_project.catalogs.counting import APP, CONTRACTED
from example_project.catalogs.jobs import publish_catalog, scan_catalog
from example_project.catalogs.models import Catalog, Entry, Finding, Publication
from example_project.catalogs.staging import GROUP_ROLLED_BACK
from ultimat3_jobs.models import Backfill, Job, JobStep, OutboxEntry
from ultimat3_jobs.states import RETRYABLE, State

SOURCE_LANGUAGE = "en"
"""The language of the messages themselves. Its catalogs are empty on purpose, so it is not ranked."""
PAUSE = timedelta(seconds=5)
"""Two jobs that ended further apart than this belong to different runs of the demo."""
RANKED = 10


@dataclass(frozen=True, slots=True)
class Language:
    """How far one language is, over all its catalogs."""

    code: str
    name: str
    catalogs: int
    messages: int
    translated: int
    percent: float  # rounded down, so that 100 means all


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that was given up, and what starts it again."""

    id: str
    name: str
    tenant: str | None
    path: str
    stop: str
    attempts: int
    reason: str
    retry: str


@dataclass(frozen=True, slots=True)
class BrokenOutcome:
    """What became of a catalog that the demo broke on purpose."""

    kind: str
    path: str
    state: str | None
    stop: str
    attempts: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What is left of the group whose transaction is rolled back: nothing, in each of the three tables."""

    group: str
    staged: int
    jobs: int
    catalogs: int


@dataclass(frozen=True, slots=True)
class Published:
    """What became of the catalogs that were to be published."""

    by_review: dict[str, int]
    more_than_once: int
    entries: int
    jobs_by_state: dict[str, int]
    steps: int
    suspended: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What the ledger says of the newest pass of the backfill, and what its rows say."""

    name: str
    outcome: str
    processed: int
    total: int | None
    seconds: float
    rows_per_second: float | None
    left: int
    words: int
    contracted: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The whole picture."""

    rolled_back: RolledBack
    jobs_by_state: dict[str, int]
    jobs_done_more_than_once: int
    seconds: float
    jobs_per_second: float | None
    outbox_by_outcome: dict[str, int]
    catalogs: int
    messages: int
    findings: dict[str, int]
    least_translated: list[Language]
    most_translated: list[Language]
    published: Published
    backfill: Swept | None
    broken: list[BrokenOutcome]
    dead_letters: list[DeadLetter]


def read_report() -> Report:
    """Read it all from the tables."""
    jobs = Job.objects.filter(name=scan_catalog.name)
    seconds, per_second = rate(
        jobs.filter(state=State.DONE).order_by("finished_at").values_list("finished_at", flat=True)
    )
    languages = read_languages()
    # Of equal shares, the one that stands for more comes first.
    ascending = sorted(languages, key=lambda one: (one.translated / one.messages, -one.messages, one.code))
    descending = sorted(languages, key=lambda one: (-one.translated / one.messages, -one.messages, one.code))
    whole = Catalog.objects.aggregate(catalogs=Count("id"), messages=Sum("total", default=0))
    return Report(
        rolled_back=RolledBack(
            group=GROUP_ROLLED_BACK,
            staged=OutboxEntry.objects.filter(name=scan_catalog.name, tenant_id=GROUP_ROLLED_BACK).count(),
            jobs=jobs.filter(tenant_id=GROUP_ROLLED_BACK).count(),
            catalogs=Catalog.objects.filter(group=GROUP_ROLLED_BACK).count(),
        ),
        jobs_by_state=count_states(jobs),
        jobs_done_more_than_once=done_more_than_once(),
        seconds=seconds,
        jobs_per_second=per_second,
        outbox_by_outcome=count_by(
            OutboxEntry.objects.filter(name=scan_catalog.name).values_list("outcome", flat=True),
            none="waiting",
        ),
        catalogs=whole["catalogs"],
        messages=whole["messages"],
        findings=count_by(Finding.objects.values_list("problem", flat=True)),
        least_translated=ascending[:RANKED],
        most_translated=descending[:RANKED],
        published=read_published(),
        backfill=read_backfill(),
        broken=[_outcome(one) for one in broken.ALL],
        dead_letters=read_dead_letters(),
    )


def rate(moments: Iterable[datetime | None]) -> tuple[float, float | None]:
    """Return the seconds in which jobs ended, and how many did in each.

    Args:
        moments: when each job ended, in order. A gap longer than `PAUSE` is time in which no demo ran.
    """
    ended = [moment for moment in moments if moment is not None]
    gaps = [later - earlier for earlier, later in pairwise(ended)]
    busy = [gap for gap in gaps if gap <= PAUSE]
    seconds = sum(busy, timedelta()).total_seconds()
    return round(seconds, 3), round(len(busy) / seconds, 1) if seconds else None


def count_by(values: Iterable[str | None], none: str = "") -> dict[str, int]:
    """Count equal values, in order; None counts under the name `none`."""
    return dict(sorted(Counter(value if value is not None else none for value in values).items()))


def count_states(jobs: QuerySet[Job]) -> dict[str, int]:
    """Count jobs by state; each state is there."""
    return {**dict.fromkeys(map(str, State), 0), **count_by(jobs.values_list("state", flat=True))}


def read_published() -> Published:
    """Return what was published, and what its jobs recorded on the way."""
    jobs = Job.objects.filter(name=publish_catalog.name)
    steps = JobStep.objects.filter(run_id__in=jobs.values("run_id"))
    contents = Publication.objects.order_by().values("path", "checksum")
    return Published(
        by_review=count_by(Publication.objects.values_list("reviewed_by", flat=True)),
        more_than_once=contents.annotate(rows=Count("id")).filter(rows__gt=1).count(),
        entries=Entry.objects.count(),
        jobs_by_state=count_states(jobs),
        steps=steps.count(),
        # A wait whose event was there already began and ended at one moment: it let go of no worker.
        suspended=steps.filter(kind="wait", finished_at__gt=F("started_at")).values("run_id").distinct().count(),
    )


def read_backfill() -> Swept | None:
    """Return what the ledger says of the newest pass over the findings; None where there was none."""
    swept = Backfill.objects.filter(name=count_words.name).order_by("-created_at").first()
    if swept is None:
        return None
    seconds = 0.0 if swept.finished_at is None else (swept.finished_at - swept.created_at).total_seconds()
    return Swept(
        name=swept.name,
        outcome=swept.outcome,
        processed=swept.processed,
        total=swept.total,
        seconds=round(seconds, 3),
        rows_per_second=round(swept.processed / seconds, 1) if seconds else None,
        left=Finding.objects.filter(UNCOUNTED).count(),
        words=Finding.objects.aggregate(words=Sum("words", default=0))["words"],
        contracted=(APP, CONTRACTED) in MigrationRecorder(connection).applied_migrations(),
    )


def done_more_than_once() -> int:
    """Return how many keys have more than one finished scan: 0, unless something was scanned twice."""
    done = Job.objects.filter(name=scan_catalog.name, state=State.DONE).order_by()
    return done.values("tenant_id", "idempotency_key").annotate(rows=Count("id")).filter(rows__gt=1).count()


def read_languages() -> list[Language]:
    """Return every language but that of the messages themselves, over the catalogs of Django."""
    rows = Catalog.objects.exclude(group=broken.GROUP).exclude(language=SOURCE_LANGUAGE).order_by("language")
    sums = rows.values("language").annotate(catalogs=Count("id"), messages=Sum("total"), done=Sum("translated"))
    return [
        Language(
            code=row["language"],
            name=_language_name(row["language"]),
            catalogs=row["catalogs"],
            messages=row["messages"],
            translated=row["done"],
            percent=1000 * row["done"] // row["messages"] / 10,
        )
        for row in sums
    ]


def read_dead_letters() -> list[DeadLetter]:
    """Return the jobs that were given up, oldest first."""
    letters = Job.objects.filter(state__in=RETRYABLE).order_by("finished_at", "id")
    return [
        DeadLetter(
            id=str(letter.id),
            name=letter.name,
            tenant=letter.tenant_id,
            path=str((letter.input or {}).get("path", "")),
            stop=letter.stop,
            attempts=letter.attempt,
            reason=_reason(letter),
            retry=manage("jobs", "retry", str(letter.id)),
        )
        for letter in letters
    ]


def _reason(letter: Job) -> str:
    """Return the exception's own line out of the stored traceback, and the verdict that ends it."""
    lines = letter.last_error.strip().splitlines() or [""]
    raised = [line for line in lines if letter.error_class and line.startswith(letter.error_class)]
    _, _, message = (raised or lines)[-1].rpartition(letter.error_class.rpartition(".")[0] + ".")
    return f"{message}; {lines[-1].removeprefix('verdict: ')}" if raised else message


def _outcome(one: broken.Broken) -> BrokenOutcome:
    row = broken.outcome_of(one)
    if row is None:
        return BrokenOutcome(one.kind, one.path, None, "", 0)
    return BrokenOutcome(one.kind, one.path, row.state, row.stop, row.attempt)


def _language_name(code: str) -> str:
    try:
        return str(get_language_info(code)["name"])
    except KeyError:
        return code
