"""Reads one catalog: how much of it is translated, and which of its messages need a person."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polib

from example_project.catalogs.models import EntryState, Problem
from example_project.catalogs.sources import checksum_of

PLACEHOLDER = re.compile(r"%\((\w+)\)")


class NotACatalog(Exception):
    """The file is no text at all: reading it again cannot help."""


class CatalogUnreadable(Exception):
    """The file is not a whole catalog: perhaps somebody is still writing it, and it is whole later."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that needs a person."""

    line: int
    problem: Problem
    context: str
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a catalog's file says."""

    checksum: str
    total: int
    translated: int
    fuzzy: int
    untranslated: int
    messages: tuple[Message, ...]


def read_catalog(file: Path, name: str) -> Reading:
    """Read the catalog in `file` and judge its messages.

    Args:
        file: where it lies.
        name: what to call it in errors.

    Raises:
        NotACatalog, CatalogUnreadable, OSError: as `read_entries` does.
    """
    checksum, entries = read_entries(file, name)
    states = Counter(map(state_of, entries))
    return Reading(
        checksum=checksum,
        total=len(entries),
        translated=states[EntryState.TRANSLATED],
        fuzzy=states[EntryState.FUZZY],
        untranslated=states[EntryState.UNTRANSLATED],
        messages=tuple(_judge(entries)),
    )


def read_entries(file: Path, name: str) -> tuple[str, list[polib.POEntry]]:
    """Return the checksum of a catalog's file and its messages, without those that are out of use.

    Args:
        file: where it lies.
        name: what to call it in errors.

    Raises:
        NotACatalog: where the file is not UTF-8 text.
        CatalogUnreadable: where the text is not a whole catalog.
        OSError: where the file cannot be read.
    """
    content = file.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotACatalog(f"{name} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from error
    if "\0" in text:
        raise NotACatalog(f"{name} is not text: it has a NUL at character {text.index(chr(0))}")
    try:
        # From the file, not from the text: polib ends lines of text at characters that end none in a file.
        entries = [entry for entry in polib.pofile(str(file), encoding="utf-8") if not entry.obsolete]
    except OSError as error:
        raise CatalogUnreadable(f"{name} is not a whole catalog: {_bare(error)}") from error
    if not entries:
        raise CatalogUnreadable(f"{name} has no message")
    return checksum_of(content), entries


def state_of(entry: polib.POEntry) -> EntryState:
    """Return how far a message is."""
    if entry.fuzzy:
        return EntryState.FUZZY
    return EntryState.TRANSLATED if entry.translated() else EntryState.UNTRANSLATED


def _judge(entries: list[polib.POEntry]) -> Iterator[Message]:
    for entry in entries:
        if problem := _problem_of(entry):
            yield Message(entry.linenum, problem, entry.msgctxt or "", entry.msgid)


def _problem_of(entry: polib.POEntry) -> Problem | None:
    if entry.fuzzy:
        return Problem.FUZZY
    if not entry.translated():
        return Problem.UNTRANSLATED
    if "python-format" in entry.flags:
        given = set(PLACEHOLDER.findall(f"{entry.msgid} {entry.msgid_plural or ''}"))
        asked = set(PLACEHOLDER.findall(" ".join([entry.msgstr, *entry.msgstr_plural.values()])))
        if asked - given:
            return Problem.PLACEHOLDER
    return None


def _bare(error: OSError) -> str:
    """Return polib's complaint without the path of this machine in it."""
    found = re.search(r"\(line (\d+)\)", str(error))
    return f"syntax error in line {found[1]}" if found else str(error)
