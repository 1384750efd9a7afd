"""The second job of this app: it publishes one catalog in steps, and waits for its reviewer on the way.

However often its worker dies, each step that is recorded is not done again, and what the atomic ones wrote is there
once. While it waits it is a row in a table: no process, no thread, no attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

import polib

from example_project.catalogs.models import Catalog, Entry, EntryState, Publication
from example_project.catalogs.parsing import NotACatalog, read_entries, state_of
from example_project.catalogs.sources import locate
from ultimat3_jobs import Retry, Run, job, publish_event

PUBLISH_KEY = "publish:{path}:{checksum}"
REVIEW_DONE = "review.done"
NOBODY = "nobody in time"
BATCH = 100
"""Entries that are written with one statement."""


class CatalogChanged(Exception):
    """The file is another by now: what was to be published is gone, and what took its place has a key of its own."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the first step found. It is recorded, and the later ones get it as it was then."""

    checksum: str
    entries: int
    translated: int


@dataclass(frozen=True, slots=True)
class Review:
    """What a reviewer's event carries."""

    by: str


@job(
    idempotency_key=PUBLISH_KEY,
    tenant="group",
    retry=Retry(attempts=3, delay="2s", terminal=(CatalogChanged, NotACatalog)),
)
def publish_catalog(run: Run, group: str, path: str, checksum: str, review_within: str = "7d") -> str:
    """Read a scanned catalog, store its entries, wait for its review, publish it.

    The body runs again from its start after a wait and after a crash. What it does outside of steps must be cheap and
    lead to the same steps.

    Args:
        run: the run.
        group: the part of Django that the catalog belongs to; the job's tenant.
        path: the catalog, as `sources` names it.
        checksum: of the content that is to be published.
        review_within: how long the reviewer has ("7d"). Without a review it is published all the same.
    """
    counts = run.step("parse", count, path, checksum, returns=Counts)
    run.step("store", store, run, path, checksum, atomic=True)
    event = run.wait_for_event("review", REVIEW_DONE, match={"path": path}, timeout=review_within, returns=Review)
    reviewed_by = event.payload.by if event else NOBODY
    run.step("publish", publish, path, counts, reviewed_by, atomic=True)
    run.logger.info("%s: published, reviewed by %s", path, reviewed_by)
    return reviewed_by


def review(path: str, by: str) -> None:
    """Tell whoever waits for the review of a catalog that it is done. It commits with the transaction it is called in.

    Args:
        path: of the catalog.
        by: who reviewed it.
    """
    publish_event(REVIEW_DONE, Review(by), match={"path": path})


def count(path: str, checksum: str) -> Counts:
    """Read a catalog and count what is in it."""
    entries = _read(path, checksum)
    translated = sum(state_of(entry) == EntryState.TRANSLATED for entry in entries)
    return Counts(checksum, len(entries), translated)


def store(run: Run, path: str, checksum: str) -> int:
    """Put the entries of a catalog in the place of those that were stored of it before; return how many."""
    # A step's result is a small value and no way to hand a whole file on: it is read again, and must be the same.
    entries = _read(path, checksum)
    catalog = Catalog.objects.get(path=path)
    catalog.entries.all().delete()
    for begin in range(0, len(entries), BATCH):
        run.check_cancelled()
        batch = entries[begin : begin + BATCH]
        Entry.objects.bulk_create(
            Entry(
                catalog=catalog,
                msgctxt=entry.msgctxt or "",
                msgid=entry.msgid,
                msgstr=entry.msgstr or "\n".join(entry.msgstr_plural.values()),
                state=state_of(entry),
            )
            for entry in batch
        )
        run.progress(begin + len(batch), len(entries))
    return len(entries)


def publish(path: str, counts: Counts, reviewed_by: str) -> None:
    """Write down that a catalog is published."""
    Publication.objects.create(
        path=path,
        checksum=counts.checksum,
        entries=counts.entries,
        translated=counts.translated,
        reviewed_by=reviewed_by,
    )


def _read(path: str, checksum: str) -> list[polib.POEntry]:
    found, entries = read_entries(locate(path), path)
    if found != checksum:
        raise CatalogChanged(f"{path} is to be published as {checksum[:12]} and is {found[:12]} now")
    return entries
