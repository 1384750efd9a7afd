"""A catalog is published once, reviewed or not, whenever the review comes and wherever its worker dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from example_project.catalogs import pipeline
from example_project.catalogs.jobs import write_down
from example_project.catalogs.models import Catalog, Entry, EntryState, Publication
from example_project.catalogs.parsing import read_catalog
from example_project.catalogs.pipeline import NOBODY, publish_catalog, review
from example_project.catalogs.sources import checksum_of, locate
from ultimat3_jobs import Run
from ultimat3_jobs.models import Job, JobStep
from ultimat3_jobs.testing import drain

pytestmark = pytest.mark.django_db

PATH = "django/contrib/humanize/locale/eo/LC_MESSAGES/django.po"
GROUP = "humanize"
STEPS = ["parse", "store", "review", "publish"]


@pytest.fixture(autouse=True)
def scanned(db: None) -> Catalog:
    """The catalog as its scan wrote it down."""
    write_down(GROUP, PATH, read_catalog(locate(PATH), PATH))
    return Catalog.objects.get()


def ask(catalog: Catalog, *, within: str = "7d") -> None:
    """Ask for the publication of a catalog."""
    publish_catalog.enqueue(group=catalog.group, path=catalog.path, checksum=catalog.checksum, review_within=within)


def steps() -> list[tuple[str, str]]:
    """Return the recorded steps in their order."""
    return list(JobStep.objects.order_by("seq").values_list("name", "state"))


def test_a_catalog_is_stored_and_waits_for_its_review(scanned: Catalog) -> None:
    ask(scanned)
    assert drain().counts == {"suspended": 1}

    assert steps() == [("parse", "done"), ("store", "done"), ("review", "waiting")]
    entries = Entry.objects.filter(catalog=scanned)
    assert entries.count() == scanned.total
    assert entries.filter(state=EntryState.TRANSLATED).count() == scanned.translated
    assert "\n" in entries.get(msgid="%(value)s million").msgstr
    assert Publication.objects.count() == 0
    row = Job.objects.get()
    assert (row.attempt, row.progress) == (0, {"done": scanned.total, "total": scanned.total})

    review("some/other/path", "carl")
    assert drain().counts == {}


@pytest.mark.parametrize("early", [True, False])
def test_a_review_counts_before_the_wait_and_during_it(scanned: Catalog, early: bool) -> None:
    with transaction.atomic():
        ask(scanned)
        if early:
            review(PATH, "ann")
    assert drain().counts == ({"done": 1} if early else {"suspended": 1})
    if not early:
        review(PATH, "ann")
        assert drain().counts == {"done": 1}

    assert steps() == [(name, "done") for name in STEPS]
    published = Publication.objects.get()
    assert (published.path, published.checksum, published.reviewed_by) == (PATH, scanned.checksum, "ann")
    assert (published.entries, published.translated) == (scanned.total, scanned.translated)
    assert Job.objects.get().result == "ann"


def test_a_review_that_does_not_come_in_time_is_done_without(scanned: Catalog) -> None:
    ask(scanned, within="1h")
    drain(ahead="30m")
    assert Publication.objects.count() == 0
    drain(ahead="31m")
    assert Publication.objects.get().reviewed_by == NOBODY
    assert dict(steps())["review"] == "timed-out"


@pytest.mark.parametrize("step", ["store", "publish"])
def test_a_step_that_fails_after_it_wrote_has_written_nothing(
    monkeypatch: pytest.MonkeyPatch, scanned: Catalog, step: str
) -> None:
    done = getattr(pipeline, step)

    def fail_after(*args: Any) -> None:
        done(*args)
        assert Entry.objects.exists()
        raise OSError("gone")

    ask(scanned)
    review(PATH, "ann")
    with monkeypatch.context() as failing:
        failing.setattr(pipeline, step, fail_after)
        assert drain(raise_errors=False).counts == {"retrying": 1}
    assert [name for name, _ in steps()] == STEPS[: STEPS.index(step)]
    assert Entry.objects.count() == (0 if step == "store" else scanned.total)
    assert Publication.objects.count() == 0

    assert drain(ahead="1m").counts == {"done": 1}
    assert Entry.objects.count() == scanned.total
    assert Publication.objects.get().reviewed_by == "ann"


def test_a_body_that_fails_behind_its_last_step_has_published_once(
    monkeypatch: pytest.MonkeyPatch, scanned: Catalog
) -> None:
    ask(scanned)
    review(PATH, "ann")
    with monkeypatch.context() as failing:
        failing.setattr(Run, "logger", None)
        assert drain(raise_errors=False).counts == {"retrying": 1}
    assert drain(ahead="1m").counts == {"done": 1}
    assert Publication.objects.count() == 1
    assert Entry.objects.count() == scanned.total


def test_a_file_that_changed_meanwhile_is_not_published(scanned: Catalog) -> None:
    scanned.checksum = "0" * 64
    ask(scanned)
    assert drain(raise_errors=False).counts == {"dead": 1}
    assert "CatalogChanged" in Job.objects.get().error_class
    assert Entry.objects.count() == Publication.objects.count() == 0


def test_new_content_takes_the_place_of_what_was_stored_before(scanned: Catalog, settings: Any, tmp_path: Path) -> None:
    settings.DEMO_FOLDER = str(tmp_path)
    path = "demo/locale/qaa/LC_MESSAGES/tea.po"
    file = locate(path)
    file.parent.mkdir(parents=True)
    for text in ('msgid "tea"\nmsgstr "teo"\n', '#, fuzzy\nmsgctxt "hot"\nmsgid "tea"\nmsgstr "teo"\n'):
        file.write_text(text)
        write_down("demo", path, read_catalog(file, path))
        ask(Catalog.objects.get(path=path))
        review(path, "ann")
        drain()
    assert list(Entry.objects.values_list("msgctxt", "msgid", "msgstr", "state")) == [("hot", "tea", "teo", "fuzzy")]
    assert Publication.objects.filter(path=path).count() == 2
    assert Publication.objects.filter(checksum=checksum_of(file.read_bytes())).count() == 1
