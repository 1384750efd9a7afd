"""A catalog is read message by message; a broken one says how it is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from example_project.catalogs import broken
from example_project.catalogs.models import Problem
from example_project.catalogs.parsing import CatalogUnreadable, NotACatalog, read_catalog
from example_project.catalogs.sources import find_in_django, locate

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def write(folder: Path, body: str) -> Path:
    file = folder / "some.po"
    file.write_text(HEADER + body, encoding="utf-8")
    return file


def test_real_catalogs_add_up() -> None:
    for group in find_in_django().values():
        source = group[len(group) // 2]
        reading = read_catalog(locate(source.path), source.path)
        assert reading.checksum == source.checksum
        assert reading.total == reading.translated + reading.fuzzy + reading.untranslated > 0
        assert len(reading.messages) >= reading.fuzzy + reading.untranslated


def test_the_source_language_is_translated_nowhere() -> None:
    path = "django/conf/locale/en/LC_MESSAGES/django.po"
    reading = read_catalog(locate(path), path)
    assert reading.translated == 0
    assert {message.problem for message in reading.messages} == {Problem.UNTRANSLATED}


def test_messages_that_need_a_person_are_named(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        'msgid "good"\nmsgstr "bona"\n\n'
        'msgid "open"\nmsgstr ""\n\n'
        '#, fuzzy\nmsgctxt "door"\nmsgid "guess"\nmsgstr "diveno"\n\n'
        '#, python-format\nmsgid "%(count)s cups"\nmsgstr "%(kount)s tasoj"\n\n'
        '#~ msgid "gone"\n#~ msgstr "for"\n',
    )
    reading = read_catalog(file, "some.po")

    assert (reading.total, reading.translated, reading.fuzzy, reading.untranslated) == (4, 2, 1, 1)
    assert [(message.problem, message.text, message.context) for message in reading.messages] == [
        (Problem.UNTRANSLATED, "open", ""),
        (Problem.FUZZY, "guess", "door"),
        (Problem.PLACEHOLDER, "%(count)s cups", ""),
    ]


def test_a_plural_may_take_its_values_from_either_form(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        '#, python-format\nmsgid "One cup"\nmsgid_plural "%(n)s cups"\nmsgstr[0] "%(n)s taso"\n'
        'msgstr[1] "%(n)s tasoj"\n',
    )
    assert read_catalog(file, "some.po").messages == ()


def test_a_line_is_what_a_file_says_it_is(tmp_path: Path) -> None:
    file = write(tmp_path, 'msgid "a\u2028b\x85c"\nmsgstr "d"\n')
    assert read_catalog(file, "some.po").translated == 1


@pytest.mark.parametrize("content", [broken.COMPILED, b'msgid "a\0b"\nmsgstr "c"\n', b'msgid "\xff"\nmsgstr ""\n'])
def test_what_is_no_text_is_no_catalog(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "some.po"
    file.write_bytes(content)
    with pytest.raises(NotACatalog, match=r"shown as this\.po is not"):
        read_catalog(file, "shown as this.po")


@pytest.mark.parametrize("content", ["", "\n", HEADER, broken.CUT, 'msgid "a"\nmsgid "b"\n', "neither of them\n"])
def test_a_torn_catalog_is_unreadable_and_does_not_name_this_machine(tmp_path: Path, content: str) -> None:
    file = tmp_path / "some.po"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(CatalogUnreadable) as caught:
        read_catalog(file, "shown as this.po")
    assert "shown as this.po" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_the_mended_catalog_of_the_demo_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "some.po"
    file.write_text(broken.WHOLE, encoding="utf-8")
    reading = read_catalog(file, "some.po")
    assert (reading.total, reading.translated) == (2, 1)


def test_a_missing_file_is_told_apart_from_a_broken_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_catalog(tmp_path / "none.po", "none.po")
