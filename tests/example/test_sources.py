"""The catalogs are found, named alike on every machine, and never outside their folders."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from example_project.catalogs import sources


def test_every_catalog_of_django_is_found_once() -> None:
    files = {file for file in sources.DJANGO_FOLDER.rglob("*.po") if file.parent.name == "LC_MESSAGES"}
    found = [source for group in sources.find_in_django().values() for source in group]

    assert len(found) > 1_000
    assert {sources.locate(source.path) for source in found} == files
    assert len({source.path for source in found}) == len(found)


def test_a_group_is_the_part_of_django_that_a_catalog_belongs_to() -> None:
    groups = sources.find_in_django()

    assert list(groups) == sorted(groups)
    assert {"core", "admin", "auth", "gis"} <= set(groups)
    names = {PurePosixPath(source.path).name for source in groups["admin"]}
    assert names == {"django.po", "djangojs.po"}
    assert all(source.path.startswith("django/conf/locale/") for source in groups["core"])
    assert all(source.group == group for group, found in groups.items() for source in found)


def test_a_checksum_is_that_of_the_file() -> None:
    source = sources.find_in_django()["core"][0]
    assert source.checksum == sources.checksum_of(sources.locate(source.path).read_bytes())
    assert len(source.checksum) == 64


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("django/conf/locale/eo/LC_MESSAGES/django.po", "eo"),
        ("django/conf/locale/pt_BR/LC_MESSAGES/django.po", "pt-br"),
        ("django/contrib/admin/locale/sr_Latn/LC_MESSAGES/djangojs.po", "sr-latn"),
    ],
)
def test_a_language_is_read_off_the_folder(path: str, language: str) -> None:
    assert sources.language_of(path) == language


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "other/locale/eo/a.po",
        "django/locale/../../x.po",
        "django/conf/global_settings.py",
        "x",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="does not name a catalog"):
        sources.locate(path)


def test_the_demo_keeps_its_files_where_it_is_told(settings: object, tmp_path: Path) -> None:
    settings.DEMO_FOLDER = str(tmp_path)  # type: ignore[attr-defined]
    assert sources.locate("demo/locale/qaa/LC_MESSAGES/a.po") == tmp_path / "locale/qaa/LC_MESSAGES/a.po"
