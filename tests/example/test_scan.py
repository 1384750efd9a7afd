"""The scan writes a catalog down once for what is in it, and is staged with its group or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from example_project.catalogs import broken, staging
from example_project.catalogs.jobs import SCAN_KEY, scan_catalog, write_down
from example_project.catalogs.models import Catalog, Finding, Problem
from example_project.catalogs.parsing import read_catalog
from example_project.catalogs.sources import Source, find_in_django, locate
from tests.conftest import InThreads
from ultimat3_jobs.models import Job, OutboxEntry

PATH = "django/conf/locale/eo/LC_MESSAGES/django.po"


@pytest.fixture
def _demo_folder(settings: Any, tmp_path: Path) -> None:
    settings.DEMO_FOLDER = str(tmp_path)


def sources_of(group: str) -> list[Source]:
    """Return a few catalogs of a group."""
    return find_in_django()[group][:5]


def contents() -> tuple[list[Any], list[Any]]:
    """Return all that is written down."""
    counts = list(Catalog.objects.order_by("path").values_list("id", "path", "checksum", "total", "translated"))
    return counts, list(Finding.objects.order_by("id").values_list("id", "catalog_id", "line", "problem"))


class Run:
    """As much of a run as the body looks at."""

    def __init__(self) -> None:
        import logging

        self.logger = logging.getLogger("test")


@pytest.mark.django_db
def test_a_scan_writes_down_what_the_file_says() -> None:
    reading = read_catalog(locate(PATH), PATH)
    result = scan_catalog.func(Run(), group="core", path=PATH, checksum="0")

    catalog = Catalog.objects.get()
    assert (catalog.path, catalog.group, catalog.language, catalog.checksum) == (
        PATH,
        "core",
        "eo",
        reading.checksum,
    )
    assert (catalog.total, catalog.translated, catalog.untranslated) == (
        reading.total,
        reading.translated,
        reading.untranslated,
    )
    assert catalog.findings.count() == len(reading.messages)
    assert result == {
        "total": reading.total,
        "translated": reading.translated,
        "findings": len(reading.messages),
    }


@pytest.mark.django_db
def test_a_scan_that_runs_again_changes_nothing() -> None:
    reading = read_catalog(locate(PATH), PATH)
    assert write_down("core", PATH, reading)
    before = contents()
    assert not write_down("core", PATH, reading)
    assert contents() == before


@pytest.mark.django_db
@pytest.mark.usefixtures("_demo_folder")
def test_a_changed_file_takes_the_place_of_what_was_found_before() -> None:
    path = broken.MENDED.path
    file = locate(path)
    file.parent.mkdir(parents=True)
    file.write_text(broken.WHOLE)
    write_down("demo", path, read_catalog(file, path))
    assert [finding.problem for finding in Finding.objects.all()] == [Problem.UNTRANSLATED]

    file.write_text(broken.WHOLE + '\nmsgid "A third."\nmsgstr "Tria."\n\nmsgid "A fourth."\nmsgstr ""\n')
    assert write_down("demo", path, read_catalog(file, path))
    catalog = Catalog.objects.get()
    assert (catalog.total, catalog.translated, catalog.untranslated) == (4, 2, 2)
    assert [finding.message for finding in Finding.objects.all()] == [
        "%(count)s cups are clean.",
        "A fourth.",
    ]


def test_two_scans_of_one_catalog_at_once_write_it_down_once(in_threads: InThreads) -> None:
    reading = read_catalog(locate(PATH), PATH)
    news = in_threads(*[lambda: write_down("core", PATH, reading)] * 4)
    assert sorted(news) == [False, False, False, True]
    assert Catalog.objects.count() == 1
    assert Finding.objects.count() == len(reading.messages)


@pytest.mark.django_db(transaction=True)
def test_a_group_is_staged_in_one_transaction() -> None:
    sources = sources_of("auth")
    assert staging.stage_group("auth", sources) == len(sources)

    assert Job.objects.count() == 0
    staged = OutboxEntry.objects.order_by("idempotency_key")
    assert [entry.tenant_id for entry in staged] == ["auth"] * len(sources)
    assert [entry.idempotency_key for entry in staged] == sorted(
        SCAN_KEY.format(path=source.path, checksum=source.checksum) for source in sources
    )
    assert len({entry.staged_at for entry in staged}) >= 1


@pytest.mark.django_db(transaction=True)
def test_a_group_that_is_rolled_back_leaves_no_row() -> None:
    sources = sources_of(staging.GROUP_ROLLED_BACK)
    assert staging.stage_and_roll_back(sources) == len(sources)
    assert OutboxEntry.objects.count() == Job.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_what_is_staged_queued_or_written_down_is_not_staged_again() -> None:
    staged, queued, scanned, changed, fresh = sources_of("auth")
    staging.stage_group("auth", [staged])
    scan_catalog.enqueue(group="auth", path=queued.path, checksum=queued.checksum)
    write_down("auth", scanned.path, read_catalog(locate(scanned.path), scanned.path))
    write_down("auth", changed.path, read_catalog(locate(changed.path), changed.path))
    changed = Source(changed.path, "auth", "0" * 64)

    assert staging.stage_group("auth", [staged, queued, scanned, changed, fresh]) == 2
    waiting = OutboxEntry.objects.order_by("staged_at", "id").values_list("idempotency_key", flat=True)
    assert list(waiting) == [SCAN_KEY.format(path=one.path, checksum=one.checksum) for one in (staged, changed, fresh)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("state", ["done", "dead", "failed", "cancelled"])
def test_what_came_to_an_end_is_left_as_it_is(state: str) -> None:
    (source, *_) = sources_of("auth")
    scan_catalog.enqueue(group="auth", path=source.path, checksum=source.checksum)
    Job.objects.update(state=state)
    assert staging.stage_group("auth", [source]) == 0


@pytest.mark.django_db(transaction=True)
def test_groups_share_no_keys() -> None:
    (source, *_) = sources_of("auth")
    staging.stage_group("auth", [source])
    assert staging.stage_group("admin", [source]) == 1


@pytest.mark.django_db(transaction=True)
def test_a_group_without_news_stages_nothing() -> None:
    with transaction.atomic():
        assert staging.stage_group("auth", []) == 0
    assert OutboxEntry.objects.count() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_demo_folder")
class TestBrokenCatalogs:
    """The demo's own catalogs are broken once for each database, and mended between two attempts."""

    def queue(self) -> None:
        """Write the files and put their jobs into the queue."""
        for source in staging.stage_broken():
            scan_catalog.enqueue(group=source.group, path=source.path, checksum=source.checksum)

    def put(self, one: broken.Broken, state: str, attempt: int) -> None:
        """Put the job of a broken catalog into a state."""
        Job.objects.filter(idempotency_key=one.key).update(state=state, attempt=attempt)

    def is_mended(self) -> bool:
        return locate(broken.MENDED.path).read_text() == broken.WHOLE

    def test_they_are_written_before_they_are_staged(self) -> None:
        staging.stage_broken()
        assert [locate(one.path).read_bytes() for one in broken.ALL] == [one.content for one in broken.ALL]

    def test_files_of_a_database_that_is_gone_are_broken_again(self) -> None:
        staging.stage_broken()
        locate(broken.MENDED.path).write_text(broken.WHOLE)
        staging.stage_broken()
        assert not self.is_mended()

    def test_a_mended_file_stays_mended(self) -> None:
        self.queue()
        locate(broken.MENDED.path).write_text(broken.WHOLE)
        staging.stage_broken()
        assert self.is_mended()

    def test_a_lost_file_comes_back_where_a_job_still_needs_it(self) -> None:
        self.queue()
        self.put(broken.TERMINAL, "dead", 1)
        for one in broken.ALL:
            locate(one.path).unlink()
        staging.stage_broken()
        assert [locate(one.path).exists() for one in broken.ALL] == [True, False, True]

    @pytest.mark.parametrize(
        ("state", "attempt", "mended"),
        [
            ("ready", 0, False),
            ("running", 1, False),
            ("delayed", 1, True),
            ("ready", 1, True),
            ("running", 2, True),
            ("dead", 3, False),
            ("done", 1, False),
        ],
    )
    def test_the_half_written_one_is_mended_once_an_attempt_is_over(
        self, state: str, attempt: int, mended: bool
    ) -> None:
        self.queue()
        self.put(broken.MENDED, state, attempt)
        assert broken.mend_between_attempts() is mended
        assert self.is_mended() is mended
        assert broken.mend_between_attempts() is False

    def test_without_a_job_there_is_nothing_to_mend(self) -> None:
        assert broken.mend_between_attempts() is False
