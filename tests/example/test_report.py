"""The report counts what is in the tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from example_project.catalogs import report
from example_project.catalogs.models import Catalog

START = datetime(2024, 2, 29, 12, tzinfo=UTC)


def at(*seconds: float) -> list[datetime | None]:
    """Return moments, each so many seconds after the start."""
    return [START + timedelta(seconds=second) for second in seconds]


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ([], (0.0, None)),
        (at(1), (0.0, None)),
        (at(1, 1), (0.0, None)),
        (at(0, 0.5, 1, 1.5, 2), (2.0, 2.0)),
        # A second run, an hour later, adds its own work and not the hour.
        (at(0, 0.5, 1, 3600, 3600.5, 3601), (2.0, 2.0)),
        ([None, *at(0, 1)], (1.0, 1.0)),
    ],
)
def test_a_rate_leaves_out_the_time_between_two_runs(
    moments: list[datetime | None], expected: tuple[float, float | None]
) -> None:
    assert report.rate(moments) == expected


def test_counting_names_what_has_no_value() -> None:
    assert report.count_by(["b", "a", None, "b"], none="waiting") == {"a": 1, "b": 2, "waiting": 1}


@pytest.mark.django_db
def test_a_language_is_ranked_by_all_its_catalogs_together() -> None:
    def add(language: str, total: int, translated: int, group: str = "core") -> None:
        path = f"{group}/{language}/{Catalog.objects.count()}"
        Catalog.objects.create(path=path, group=group, language=language, total=total, translated=translated)

    add("eo", 100, 100)
    add("eo", 100, 0)
    add("fr", 2000, 1999)
    add("de", 10, 10)
    add("hu", 20, 20)
    add("en", 100, 0)  # the language of the messages themselves
    add("qaa", 2, 1, group="demo")  # a catalog that the demo made

    shown = report.read_report()
    assert [(one.code, one.percent) for one in shown.least_translated] == [
        ("eo", 50.0),
        ("fr", 99.9),
        ("hu", 100.0),
        ("de", 100.0),
    ]
    assert [one.code for one in shown.most_translated] == ["hu", "de", "fr", "eo"]
    assert [one.name for one in shown.most_translated] == ["Hungarian", "German", "French", "Esperanto"]
    assert shown.jobs_per_second is None
    assert shown.dead_letters == []
