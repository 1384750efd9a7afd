"""Stored values as people may see them: secrets masked, sizes bounded, nothing that a terminal would obey."""

from __future__ import annotations

import json
import re
from typing import Any

MASK = "********"
MAX_SHOWN = 20_000
"""Characters of one value that a page or a terminal is given."""

_MAX_DEPTH = 200
_SECRET = re.compile(
    r"passw(or)?d|passphrase|passcode|secret|token|api_?key|access_?key|private_?key|secret_?key|signing_?key"
    r"|encryption_?key|authorization|credential|cookie|^pwd$|^auth$|^pin$|^otp$"
)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str) -> bool:
    """Whether a field of this name is taken for a secret: `password`, `apiKey`, `X-Auth-Token` and their like."""
    plain = re.sub(r"[^a-z0-9]+", "_", _WORD_START.sub("_", name).lower()).strip("_")
    return bool(_SECRET.search(plain))


def masked(value: Any, _depth: int = 0) -> Any:
    """Return a JSON value in which whatever stands under the name of a secret is replaced by a mask."""
    if _depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {
            key: MASK if is_secret(str(key)) and one is not None else masked(one, _depth + 1)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [masked(one, _depth + 1) for one in value]
    return value


def masked_match(text: str) -> str:
    """Return what an event is matched by, as it is stored, with secrets masked."""
    try:
        hidden = masked(json.loads(text))
    except (ValueError, RecursionError):  # none, or what another build wrote
        return text
    return json.dumps(hidden, ensure_ascii=False, separators=(",", ":"))


def shown(value: Any) -> str:
    """Return a JSON value as text for people: masked, indented, bounded."""
    return bounded(json.dumps(masked(value), indent=2, ensure_ascii=False))


def bounded(text: str) -> str:
    """Return text cut to what a page can hold, with a mark that says how much is missing."""
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]}\n... [{len(text) - MAX_SHOWN} characters more]"


def printable(text: str, *, lines: bool = False) -> str:
    """Return text in which what is not printable is escaped: control characters, and marks that turn its direction.

    Args:
        text: from a row, where anybody may have written it.
        lines: keep line breaks and tabs.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(one if one.isprintable() or one in kept else _escape(one) for one in text)


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode()
