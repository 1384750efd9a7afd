"""Instants: the same one back, in UTC, and text that sorts as the instants do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from ultimat3_jobs.fields import InstantField, utc_text
from ultimat3_jobs.models import JobPause

INSTANTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 7, 1, 14, 0, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 7, 1, 12, 0, 0, 500_000, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


def store(moment: Any, name: str = "one") -> JobPause:
    return JobPause.objects.create(kind="queue", name=name, at=moment)


@pytest.mark.django_db
@pytest.mark.parametrize("moment", INSTANTS, ids=str)
def test_an_instant_comes_back_as_it_was_in_utc(moment: datetime) -> None:
    read = JobPause.objects.get(pk=store(moment).pk).at

    assert read == moment
    assert read.tzinfo is UTC
    assert JobPause.objects.filter(at=moment).exists()


@pytest.mark.django_db
def test_instants_sort_and_compare_in_the_database_as_they_do_here() -> None:
    for number, moment in enumerate(INSTANTS[::-1]):
        store(moment, str(number))

    assert list(JobPause.objects.order_by("at").values_list("at", flat=True)) == INSTANTS
    for number, moment in enumerate(INSTANTS):
        assert JobPause.objects.filter(at__lt=moment).count() == number


@pytest.mark.django_db
def test_nothing_comes_back_as_nothing() -> None:
    assert JobPause.objects.get(pk=store(INSTANTS[3]).pk).until is None


@pytest.mark.django_db
def test_text_with_an_offset_is_taken() -> None:
    assert JobPause.objects.get(pk=store("2026-07-01T14:00:00+02:00").pk).at == datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("moment", [datetime(2026, 7, 1), "2026-07-01T14:00:00"])
def test_a_moment_without_a_zone_is_refused(moment: Any) -> None:
    with pytest.raises(ValueError, match="aware"):
        InstantField(name="at").get_prep_value(moment)


def test_texts_of_instants_have_one_width_and_sort_as_the_instants_do() -> None:
    texts = [utc_text(moment) for moment in INSTANTS]

    assert texts == sorted(texts)
    assert {len(text) for text in texts} == {26}
    assert texts[3] == "2026-01-01 00:00:00.000000"


@pytest.mark.django_db
@pytest.mark.sqlite_only(reason="PostgreSQL has a type for instants; on SQLite they are text")
def test_the_text_is_the_one_that_the_statements_compare_with_the_clock() -> None:
    store(datetime(2026, 1, 1, 12, 30, tzinfo=UTC))
    with connection.cursor() as cursor:
        cursor.execute("SELECT at, strftime('%%Y-%%m-%%d %%H:%%M:%%f', at) || '000' FROM x_job_pauses", [])
        kept, written_by_sqlite = cursor.fetchone()
        cursor.execute("SELECT strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') || '000'", [])
        now = cursor.fetchone()[0]

    assert kept == written_by_sqlite == "2026-01-01 12:30:00.000000"
    assert len(now) == len(kept)
