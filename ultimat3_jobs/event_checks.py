"""What an event may be called and what it may be matched by: one text on the publisher's side and on the waiter's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from ultimat3_jobs.durations import Duration, parse_duration
from ultimat3_jobs.errors import EventInvalid, InputInvalid
from ultimat3_jobs.plain import to_plain, without_exponents
from ultimat3_jobs.text import MAX_NAME, is_label

MAX_MATCH = 255

MatchValue = str | int | bool | UUID | None
"""What an event can be matched by. No float: two that are meant to be equal need not be."""


def check_event_name(name: object) -> str:
    """Return an event's name, checked: text of 1 to 200 printable characters, without space around it.

    Raises:
        EventInvalid: where it is none.
    """
    if not is_label(name, MAX_NAME):
        raise EventInvalid(
            f"{name!r:.300} cannot be an event's name",
            fix=f'event="review.done"  # 1 to {MAX_NAME} printable characters, no space around them',
        )
    return str.__str__(name)


def match_text(match: object) -> str:
    """Return what an event is matched by as canonical JSON, or empty text for None and an empty dict.

    Equal dicts have equal text, whatever the order of their keys; a UUID and its text are equal too.

    Args:
        match: a dict of text to str, int, bool, UUID or None.

    Raises:
        EventInvalid: naming the path of what cannot be matched by, or where the text has over 255 characters.
    """
    if match is None:
        return ""
    if not isinstance(match, Mapping):
        raise EventInvalid(f"the value at `match` is of type {type(match).__name__}, not a dict", fix=_EXAMPLE)
    flat = {_key(key): _scalar(value, f"match.{key}") for key, value in match.items()}
    text = msgspec.json.encode(flat, order="sorted").decode() if flat else ""
    if len(text) > MAX_MATCH:
        raise EventInvalid(
            f"the value at `match` has {len(text)} characters as JSON, over the {MAX_MATCH} that it may have",
            fix="match by the key of a row that holds the rest: match={'order_id': order.pk}",
        )
    return text


def payload_text(event: str, payload: object, *, max_bytes: int) -> str | None:
    """Return an event's payload as JSON, or None where it has none.

    Args:
        event: its name, for messages.
        payload: what is to be stored.
        max_bytes: size of the encoded payload at most.

    Raises:
        EventInvalid: naming the path of what cannot be stored and read back as what it is.
    """
    if payload is None:
        return None
    try:
        text = without_exponents(msgspec.json.encode(to_plain(payload, "$", limit=max_bytes)).decode())
    except InputInvalid as error:
        raise EventInvalid(f"the payload of event {event!r} cannot be stored: {error.cause}", fix=error.fix) from None
    size = len(text.encode())
    if size > max_bytes:
        raise EventInvalid(
            f"the payload of event {event!r} at `$` is {size} bytes, over the {max_bytes} of MAX_INPUT_BYTES",
            fix='store the data in a model or a file and pass its key; or raise ULTIMAT3_JOBS["MAX_INPUT_BYTES"]',
        )
    return text


def check_ttl(ttl: Duration) -> timedelta:
    """Return for how long an event is kept, checked: more than nothing.

    Raises:
        EventInvalid: where it is no positive length of time.
    """
    try:
        length = parse_duration(ttl)
    except ValueError:
        length = timedelta(0)
    if length <= timedelta(0):
        raise EventInvalid(f"ttl={ttl!r} is no positive length of time", fix='ttl="7d"')
    return length


_EXAMPLE = 'match={"order_id": 7}'


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise EventInvalid(f"the key {key!r} at `match` is of type {type(key).__name__}, not text", fix=_EXAMPLE)
    return str(_scalar(key, "match.<key>"))


def _scalar(value: Any, path: str) -> Any:
    try:
        plain = to_plain(value, path)
    except InputInvalid as error:
        raise EventInvalid(error.cause, fix=error.fix) from None
    if value is not None and not isinstance(value, (str, int, UUID)):  # a bool is an int
        kind = type(value).__name__
        raise EventInvalid(
            f"the value at `{path}` is of type {kind}, by which no event is matched", fix="pass it as text: str(value)"
        )
    return plain
