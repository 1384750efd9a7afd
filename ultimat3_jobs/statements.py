"""What a string that goes to a database says: its statements, by their first words. Never what stands in quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\r\n]*)"
    r"|(?P<comment>/\*)"
    r"|(?P<end>;)"
    r"|[eE]'(?:[^'\\]|\\.|'')*'|'[^']*'|\"[^\"]*\""  # '' within a literal ends one and begins the next: as good
    r"|(?P<dollars>\$(?:[^\W\d]\w*)?\$)"
    r"|(?P<word>\w[\w$]*)"
    r"|.",
    re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ENDING = ("commit", "end", "abort", "rollback", "prepare")
_READING = {"SELECT", "VALUES", "TABLE", "SHOW", "DESCRIBE", "WITH", "EXPLAIN", "DECLARE", "FETCH", "MOVE", "CLOSE"}
_READING |= {"SET", "RESET", "PRAGMA", "USE", "LOCK", "LISTEN", "UNLISTEN", "DISCARD", "DEALLOCATE"}
_READING |= {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"}
_MAY_WRITE_WITHIN = {"WITH", "EXPLAIN"}
_WRITING = {"INSERT", "UPDATE", "DELETE", "MERGE", "CREATE"}
_TRIGGER = re.compile(r"CREATE (?:TEMP |TEMPORARY )?TRIGGER\b")
_MOST_WORDS = 4

# What outlasts a transaction; SET LOCAL, SET CONSTRAINTS and SET TRANSACTION do not. Comments may stand before it.
_CHANGE = (
    r"(?:\s|/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*\n)*"  # each of these in one way alone, or it would take for ever
    r"(?:SET\s+(?!LOCAL\b|CONSTRAINTS\b|TRANSACTION\b)|RESET\b|DISCARD\b|LISTEN\b|UNLISTEN\b|PREPARE\b|DEALLOCATE\b"
    r"|DECLARE\b|LOAD\b|ATTACH\b|DETACH\b|PRAGMA\s+[\w.]+\s*[=(]"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+|LOCAL\s+)?TEMP(?:ORARY)?\b)"
)
_CHANGES_FIRST = re.compile(_CHANGE, re.IGNORECASE | re.DOTALL)
_CHANGES_BEHIND = re.compile(f";{_CHANGE}", re.IGNORECASE | re.DOTALL)
# Functions that do the same. A lock that outlives its run keeps every other worker waiting.
_NAMED = ("set_config", "advisory_lock")
_CALLS = re.compile(r"\bset_config\b|\bpg_(?:try_)?advisory_lock")
_INTO_TEMP = re.compile(r"\binto\s+temp")


def ends_the_transaction(sql: Any, *, nested: bool, session: Any = None) -> bool:
    """Whether any statement of a string would end the transaction that is open. A savepoint's end is none of it.

    Args:
        sql: text, bytes, or what composes text.
        nested: whether comments nest, as PostgreSQL has it.
        session: the driver's connection that it goes to.
    """
    text = text_of(sql, session)
    lowered = text.lower()
    # Statements may be long, and most hold none of the words.
    return any(word in lowered for word in _ENDING) and any(
        _is_an_end(words) for words in _statements(text, nested=nested)
    )


def changes_the_session(sql: Any, *, session: Any = None) -> bool:
    """Whether any statement of a string changes what outlasts its transaction: a setting, a role, a temporary table.

    Args:
        sql: text, bytes, or what composes text.
        session: the driver's connection that it goes to.
    """
    text = text_of(sql, session)
    if _CHANGES_FIRST.match(text) or (";" in text and _CHANGES_BEHIND.search(text)):
        return True
    lowered = text.lower()
    calls = any(name in lowered for name in _NAMED) and _CALLS.search(lowered)
    return bool(calls or ("temp" in lowered and _INTO_TEMP.search(lowered)))


def only_reads(sql: Any, *, nested: bool, session: Any = None) -> bool:
    """Whether each statement of a string reads, or steers a transaction or a session, as far as its words tell.

    Args:
        sql: text, bytes, or what composes text.
        nested: whether comments nest.
        session: the driver's connection that it goes to.
    """
    return all(_reads(words) for words in _statements(text_of(sql, session), nested=nested, most=None))


def _reads(words: list[str]) -> bool:
    if words[0] not in _READING:
        return False
    if words[0] not in _MAY_WRITE_WITHIN:
        return True
    return not any(_writes(words, at) for at in range(1, len(words)))


def _writes(words: list[str], at: int) -> bool:
    if words[at] == "REPLACE":  # a function too
        return words[at + 1 : at + 2] == ["INTO"]
    return words[at] in _WRITING and words[at - 1] != "FOR" and words[max(0, at - 3) : at] != ["FOR", "NO", "KEY"]


def text_of(sql: Any, session: Any = None) -> str:
    """Return the text of what was given to a cursor. Never raises: what has none, the driver refuses by itself.

    Args:
        sql: text, bytes, or what composes text.
        session: the driver's connection that it goes to, which knows how to write the values in it.
    """
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    if hasattr(sql, "as_string"):
        with suppress(Exception):
            return str(sql.as_string(session))
    return str(sql)


def _is_an_end(words: list[str]) -> bool:
    first, *rest = words
    if first == "ROLLBACK":
        return [word for word in rest if word not in ("WORK", "TRANSACTION")][:1] != ["TO"]
    return first in ("COMMIT", "END", "ABORT") or words[:2] == ["PREPARE", "TRANSACTION"]


def _statements(text: str, *, nested: bool, most: int | None = _MOST_WORDS) -> Iterator[list[str]]:
    """Yield the first words of each statement that has any, in capitals; all of them where `most` is None.

    The statements within a body that is written out, of a trigger or a function, are none of their own, and neither is
    the END behind them.
    """
    words: list[str] = []
    before, within = "", False
    for word in _words(text, nested=nested):
        if word == ";":
            if words and not (within and words != ["END"]):
                if not within:
                    yield words
                within = False
            words = []
            continue
        if most is None or len(words) < most:
            words.append(word)
        begins = (before, word) == ("BEGIN", "ATOMIC") or (
            word == "BEGIN" and _TRIGGER.match(" ".join(words[:_MOST_WORDS]))
        )
        within = within or (bool(begins) and words[0] == "CREATE")
        before = word
    if words and not within:
        yield words


def _words(text: str, *, nested: bool) -> Iterator[str]:
    """Yield words in capitals, and the semicolons between statements."""
    at = 0
    while found := _TOKEN.match(text, at):
        at = found.end()
        if found["comment"]:
            at = _behind_comment(text, at, nested=nested)
        elif found["dollars"]:
            close = text.find(found["dollars"], at)
            at = len(text) if close < 0 else close + len(found["dollars"])
        elif found["end"]:
            yield ";"
        elif found["word"]:
            yield found["word"].upper()


def _behind_comment(text: str, at: int, *, nested: bool) -> int:
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            return len(text)
        at = edge.end()
        if edge[0] == "*/":
            depth -= 1
        elif nested:
            depth += 1
    return at
