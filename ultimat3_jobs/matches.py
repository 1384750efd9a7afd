"""What names an event and what tells one from another: the same rules for who publishes and who waits."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec

from ultimat3_jobs.errors import EventInvalid
from ultimat3_jobs.text import fault_of_text, is_label

MAX_NAME = 200
MAX_MATCH = 255
_EXAMPLE = 'match={"order": 7}'

Scalar = str | int | bool | UUID | None
"""What a match may compare. No floats: two that print alike may differ."""


def check_event_name(name: object) -> str:
    """Return the name of an event, checked.

    Raises:
        EventInvalid: where it is no printable text of 1 to 200 characters without space around it.
    """
    if not is_label(name, MAX_NAME):
        raise EventInvalid(
            f"{repr(name)[:MAX_NAME]} cannot name an event: a name is 1 to {MAX_NAME} printable characters, without "
            "space around them",
            fix='publish_event("order.paid", {"order": 7})',
        )
    return str.__str__(name)


def match_text(match: Mapping[str, Scalar] | None) -> str:
    """Return a match as the text that is compared: equal matches, equal text. None and an empty one are no text.

    Raises:
        EventInvalid: where it is no flat dict of text to text, integers, booleans, UUIDs or None, or over 255
            characters as JSON.
    """
    if match is None:
        return ""
    if not isinstance(match, Mapping):
        raise EventInvalid(f"match is of type {type(match).__name__}, not a dict", fix=_EXAMPLE)
    for key, value in match.items():
        if not isinstance(key, str) or fault_of_text(key):
            raise EventInvalid(f"match has the key {repr(key)[:80]}, which is no text that can be stored", fix=_EXAMPLE)
        if value is not None and not isinstance(value, (str, int, UUID)):
            raise EventInvalid(
                f"match[{key!r}] is of type {type(value).__name__}, not text, an integer, a boolean, a UUID or None",
                fix=_EXAMPLE,
            )
        if isinstance(value, str) and (fault := fault_of_text(value)):
            raise EventInvalid(f"match[{key!r}] holds {fault}, which cannot be stored", fix=_EXAMPLE)
    if not match:
        return ""
    try:
        text = msgspec.json.encode(dict(match), order="sorted").decode()
    except (OverflowError, TypeError, ValueError) as error:
        raise EventInvalid(f"match cannot be stored: {error}", fix=_EXAMPLE) from None
    if len(text) > MAX_MATCH:
        raise EventInvalid(
            f"match is {len(text)} characters as JSON, over the {MAX_MATCH} that can be compared",
            fix=f"{_EXAMPLE}  # an id; what is long goes into the payload",
        )
    return text
