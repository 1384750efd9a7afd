"""What text may be where every database must take it and people must read it."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from typing import TypeGuard

MAX_NAME = 200
"""Characters of the name of a job, a step or an event: what their columns hold."""
MAX_QUEUE = 100
CLOSE = 0.75
"""How much alike text is that is mistyped, where 1 is the same."""


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


def nearest(text: object, known: Iterable[str]) -> str | None:
    """Return the one of `known` for which `text` is mistyped, in capitals or small; None where none is that close.

    Closer than for a mere "did you mean", and none of several that are as close: what is proposed is typed as it
    stands.
    """
    if not isinstance(text, str):
        return None
    likeness = difflib.SequenceMatcher(b=text.strip().lower())
    scores: dict[str, float] = {}
    for one in known:
        likeness.set_seq1(one.lower())
        scores[one] = likeness.ratio()
    best = max(scores.values(), default=0.0)
    closest = [one for one, score in scores.items() if score == best]
    return closest[0] if best >= CLOSE and len(closest) == 1 else None


def command_line(*words: str) -> str:
    """Return the line that runs a management command with these arguments, as a shell takes it."""
    return f"python manage.py {shlex.join(words)}"


def environment_line(meant: Iterable[str], what: str) -> str:
    """Return the line of the settings that says where the code runs, asked of the place itself.

    Typed where nothing is meant to run, it lets nothing run: it names none of the places that something is meant for.

    Args:
        meant: the names of those places.
        what: is meant for them, as the subject of a sentence.
    """
    line = 'import os; ULTIMAT3_JOBS["ENVIRONMENT"] = os.environ.get("ENVIRONMENT", "")'
    names = ", ".join(map(repr, dict.fromkeys(meant)))
    return f"{line}  # in the settings: the name of the place that this runs in; {what} meant for {names}"
