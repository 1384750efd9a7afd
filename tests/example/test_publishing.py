"""The demo publishes a catalog once, and reviews what waits once, however often it is killed and run again."""

from __future__ import annotations

import pytest

from example_project.catalogs.jobs import write_down
from example_project.catalogs.models import Catalog, Publication
from example_project.catalogs.parsing import read_catalog
from example_project.catalogs.pipeline import NOBODY
from example_project.catalogs.publishing import (
    EARLY_REVIEWER,
    GROUP,
    LATE_REVIEWER,
    review_waiting,
    stage_publications,
)
from example_project.catalogs.report import read_published
from example_project.catalogs.sources import locate
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.testing import drain

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def scanned(db: None) -> dict[str, Catalog]:
    """One scanned catalog for each reviewer, and one that nobody asked for, by language."""
    for language in ("de", "es", "sv", "af"):
        path = f"django/contrib/sites/locale/{language}/LC_MESSAGES/django.po"
        write_down(GROUP, path, read_catalog(locate(path), path))
    return {catalog.language: catalog for catalog in Catalog.objects.all()}


def reviews() -> dict[str, str]:
    """Return who reviewed each language, of what is published."""
    rows = Publication.objects.values_list("path", "reviewed_by")
    return {path.split("/")[4]: reviewed_by for path, reviewed_by in rows}


def test_each_is_published_with_the_review_that_is_meant_for_it(scanned: dict[str, Catalog]) -> None:
    assert stage_publications() == 3
    drain()
    assert reviews() == {"de": EARLY_REVIEWER}
    assert review_waiting() == 1
    drain()
    assert reviews() == {"de": EARLY_REVIEWER, "es": LATE_REVIEWER}
    drain(ahead="2s")
    assert reviews() == {"de": EARLY_REVIEWER, "es": LATE_REVIEWER, "sv": NOBODY}

    shown = read_published()
    assert shown.by_review == {EARLY_REVIEWER: 1, LATE_REVIEWER: 1, NOBODY: 1}
    assert (shown.more_than_once, shown.steps) == (0, 12)
    assert shown.entries == sum(scanned[language].total for language in ("de", "es", "sv"))
    assert {state: count for state, count in shown.jobs_by_state.items() if count} == {"done": 3}


def test_what_is_staged_queued_or_published_is_not_staged_again(scanned: dict[str, Catalog]) -> None:
    assert stage_publications() == 3
    assert stage_publications() == 0
    drain()
    assert stage_publications() == 0
    review_waiting()
    drain(ahead="2s")
    assert stage_publications() == 0
    Job.objects.all().delete()
    OutboxEntry.objects.all().delete()
    assert stage_publications() == 0

    Catalog.objects.filter(language="de").update(checksum="0" * 64)
    assert stage_publications() == 1


def test_what_waits_is_reviewed_once_for_each_content(scanned: dict[str, Catalog]) -> None:
    stage_publications()
    drain()
    assert review_waiting() == 1
    assert review_waiting() == 0
    drain()
    assert review_waiting() == 0

    # The same path waits again, for other content: the review of before is not taken for one of this.
    OutboxEntry.objects.filter(kind="event").update(staged_at="2024-02-29T12:00Z")
    Job.objects.filter(input__path=scanned["es"].path).update(state="suspended", wait_event="review.done")
    assert review_waiting() == 1


def test_a_second_publication_of_the_same_content_would_be_counted() -> None:
    for checksum in ("0", "1", "1"):
        Publication.objects.create(path="a", checksum=checksum, entries=0, translated=0, reviewed_by="ann")
    assert read_published().more_than_once == 1
