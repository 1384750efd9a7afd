"""What text may be where every database must take it and people must read it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TypeGuard

MAX_NAME = 200
"""Characters of the name of a job, a step or an event: what their columns hold."""
MAX_QUEUE = 100


def fault_of_text(text: str) -> str | None:
    """Return what in `text` not every database can store, or None where all is well."""
    if "\x00" in text:
        return "a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "a lone surrogate"
    return None


def storable(text: str) -> str:
    """Return `text` with what not every database can store escaped: NUL characters and lone surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 row", "2,000 rows"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names in a row, the first of them where they are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def bounded(text: str, limit: int) -> str:
    """Return storable text of at most `limit` characters, with a mark where it was cut."""
    text = storable(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters: the beginning and, since what matters comes last, more of the end."""
    if len(text) <= limit:
        return text
    mark = f"\n... [{len(text) - limit} and some characters left out] ...\n"
    head = limit // 4
    return text[:head] + mark + text[len(text) - (limit - head - len(mark)) :]


def is_label(value: object, longest: int) -> TypeGuard[str]:
    """Whether it is text that reads as one name in a list: not blank, printable, without space around it.

    Args:
        value: what is asked about.
        longest: characters at most.
    """
    # Neither a NUL character nor a lone surrogate is printable.
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() and value.strip() == value


def is_queue_name(value: object) -> TypeGuard[str]:
    """Whether it is a label of at most 100 characters without a comma, which separates queues on a command line."""
    return is_label(value, MAX_QUEUE) and "," not in value


def command_line(*words: str) -> str:
    """Return the line that runs a management command with these arguments, as a shell takes it."""
    return f"python manage.py {shlex.join(words)}"
