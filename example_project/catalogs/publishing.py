"""Stages publications of a few scanned catalogs, and plays their reviewers: one early, one late, and one absent."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef

from example_project.catalogs.models import Catalog, Publication
from example_project.catalogs.pipeline import PUBLISH_KEY, REVIEW_DONE, publish_catalog, review
from example_project.catalogs.sources import language_of
from example_project.catalogs.staging import keys_under_way
from ultimat3_jobs.models import Job, OutboxEntry
from ultimat3_jobs.states import State

GROUP = "sites"
EARLY = ("de", "eo", "fr", "hu", "nl")
"""Languages whose review is published together with the request: it is there before anything waits for it."""
LATE = ("el", "es", "fi", "ja", "pl")
"""Languages whose review is published once the publication is suspended and waits for it."""
NEVER = ("sv", "tr")
"""Languages that nobody reviews."""
EARLY_REVIEWER = "the early reviewer"
LATE_REVIEWER = "the late reviewer"
REVIEW_WITHIN = {**dict.fromkeys(EARLY + LATE, "7d"), **dict.fromkeys(NEVER, "1s")}
"""How long each language's reviewer has. A review that comes shall be in time, also where the demo is killed and run
again much later."""


def stage_publications() -> int:
    """Stage the publication of each catalog in the group that needs one, in one transaction; return how many."""
    with transaction.atomic():
        fresh = _without_known(list(Catalog.objects.filter(group=GROUP, language__in=REVIEW_WITHIN)))
        if fresh:
            publish_catalog.enqueue_many(
                {
                    "group": GROUP,
                    "path": catalog.path,
                    "checksum": catalog.checksum,
                    "review_within": REVIEW_WITHIN[catalog.language],
                }
                for catalog in fresh
            )
        for catalog in fresh:
            if catalog.language in EARLY:
                review(catalog.path, EARLY_REVIEWER)
    return len(fresh)


def review_waiting() -> int:
    """Review, in one transaction, what waits for the late reviewer and has no review yet; return how many."""
    reviewed = OutboxEntry.objects.filter(
        kind=OutboxEntry.Kind.EVENT,
        name=REVIEW_DONE,
        match=OuterRef("wait_match"),
        staged_at__gte=OuterRef("created_at"),  # an earlier one was of other content
    )
    waiting = Job.objects.filter(name=publish_catalog.name, state=State.SUSPENDED, wait_event=REVIEW_DONE)
    paths = [(job.input or {})["path"] for job in waiting.filter(~Exists(reviewed))]
    late = [path for path in paths if language_of(path) in LATE]
    if late:
        with transaction.atomic():
            for path in late:
                review(path, LATE_REVIEWER)
    return len(late)


def _without_known(catalogs: list[Catalog]) -> list[Catalog]:
    """Leave out what is on its way, what was published, and what was given up."""
    keys = keys_under_way(publish_catalog.name, GROUP)
    # Finished jobs may be pruned; the publication stays.
    published = set(Publication.objects.values_list("path", "checksum"))
    return [
        catalog
        for catalog in catalogs
        if (catalog.path, catalog.checksum) not in published
        and PUBLISH_KEY.format(path=catalog.path, checksum=catalog.checksum) not in keys
    ]
