"""A declaration that changes while a pass of it is live: other rows end the pass, and another filter is told of."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db.models import QuerySet
from django.test.utils import isolate_apps

from tests.app.models import Item, Place
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.backfills.test_meeting_passes import failing
from tests.backfills.test_rows import again, make_items
from tests.working import row
from ultimat3_jobs import Run
from ultimat3_jobs.backfills import cursor as cursors
from ultimat3_jobs.inspection import backfill_texts
from ultimat3_jobs.inspection.passes import tell_pass
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import JobStep

pytestmark = pytest.mark.usefixtures("queue")

ALTERED = "jobs.backfill.altered"


class Source:
    """A source that another release changes."""

    def __init__(self, queryset: QuerySet[Any]) -> None:
        self.queryset = queryset

    def __call__(self) -> QuerySet[Any]:
        return self.queryset.all()


def altered(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Return what was logged of a pass that goes on by another declaration."""
    return [one for one in caplog.records if ALTERED in one.getMessage()]


def begun(source: Source, handler: Any = None, **options: Any) -> JobRow:
    """Return a pass that has landed its first page of five rows."""
    started = sweep(declare(handler or failing(1), Item, source=source, batch=5, **options))
    assert (started.state, ledger(started).processed) == ("delayed", 5)
    return started


def forget(job: JobRow, **fields: str | None) -> None:
    """Have the cursor of a pass hold something else; None: be one of a release that did not keep it."""
    step = JobStep.objects.get(run_id=job.run_id, name=cursors.NAME)
    kept = dict(step.output)
    kept = {name: value for name, value in (kept | fields).items() if value is not None or name not in fields}
    JobStep.objects.filter(pk=step.pk).update(output=kept)


def test_a_pass_whose_source_gives_another_table_ends_and_says_what_starts_another() -> None:
    make_items(10)
    Place.objects.bulk_create(Place(name=str(number)) for number in range(20))
    source = Source(Item.objects.all())
    started = begun(source)

    source.queryset = Place.objects.all()
    ended = again(started)

    assert (ended.state, ended.stop, ledger(started).outcome) == ("dead", "terminal", "")
    assert "X_BACKFILL_SOURCE_CHANGED" in ended.last_error
    assert "began with app_item on 'default', and its source now gives rows of app_place" in ended.last_error
    assert "python manage.py backfill t.backfill --write" in ended.last_error
    assert (handled(Item), handled(Place)) == ({0: 5, 1: 5}, {0: 20})
    assert sweep(declare(None, Place)).state == "done"
    assert handled(Place) == {1: 20}


def test_another_pass_is_what_is_proposed() -> None:
    """A retry would end in the same error, as long as the source is what it is."""
    make_items(10)
    source = Source(Item.objects.all())
    started = begun(source)
    source.queryset = Place.objects.all()
    ended = again(started)

    one = tell_pass(ended.run_id)
    assert one is not None
    assert [command for command, _ in backfill_texts.commands(one)] == ["python manage.py backfill t.backfill --write"]


def test_a_pass_whose_source_gives_the_same_table_of_another_database_ends_too() -> None:
    make_items(10)
    started = begun(Source(Item.objects.all()))
    forget(started, alias="elsewhere")

    ended = again(started)

    assert ended.state == "dead"
    assert "app_item on 'elsewhere'" in ended.last_error


@isolate_apps("tests.app")
def test_another_model_of_the_same_table_goes_on() -> None:
    class Thing(Item):
        class Meta:
            proxy = True
            app_label = "app"

    make_items(10)
    source = Source(Item.objects.all())
    started = begun(source)

    source.queryset = Thing._base_manager.all()

    assert again(started).state == "done"


def test_a_cursor_that_knows_no_table_goes_on_as_it_did() -> None:
    make_items(10)
    source = Source(Item.objects.all())
    started = begun(source)
    forget(started, table=None, alias=None, checksum=None)

    assert again(started).state == "done"
    assert handled(Item) == {1: 10}


def test_a_pass_that_goes_on_by_another_filter_says_so_once_an_attempt(caplog: pytest.LogCaptureFixture) -> None:
    make_items(20)
    source = Source(Item.objects.filter(number__lt=10))
    started = begun(source, failing(2))
    first = ledger(started).checksum
    caplog.set_level(logging.WARNING)

    source.queryset = Item.objects.all()
    assert again(started).state == "delayed"
    assert len(altered(caplog)) == 1
    assert again(row(started.pk)).state == "done"

    assert len(altered(caplog)) == 2
    assert ledger(started).checksum == first != "", "the ledger says what it began with"


@pytest.mark.parametrize("how", ["unchanged", "the record has no checksum", "no page has landed"])
def test_a_pass_that_has_missed_nothing_is_not_warned_of(caplog: pytest.LogCaptureFixture, how: str) -> None:
    make_items(20)
    caplog.set_level(logging.WARNING)
    source = Source(Item.objects.filter(number__lt=10))
    if how == "no page has landed":
        calls: list[int] = []

        def handler(run: Run, rows: list[Item]) -> None:
            calls.append(len(rows))
            if len(calls) == 1:
                raise LookupError("on purpose")

        started = sweep(declare(handler, Item, source=source, batch=5))
        assert (started.state, JobStep.objects.filter(run_id=started.run_id).count()) == ("delayed", 1)
    else:
        started = begun(source)
    if how == "the record has no checksum":
        forget(started, checksum=None)
    if how != "unchanged":
        source.queryset = Item.objects.all()

    assert again(started).state == "done"
    assert altered(caplog) == []


def test_a_row_that_is_opened_anew_has_what_the_pass_began_with() -> None:
    make_items(20)
    source = Source(Item.objects.filter(number__lt=10))
    started = begun(source)
    first = ledger(started).checksum
    Ledger.objects.all().delete()
    source.queryset = Item.objects.all()

    assert again(started).state == "done"
    assert ledger(started).checksum == first != ""
