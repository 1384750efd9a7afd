"""An exception with its causes and its group as bounded text. Never raises on a hostile exception.

What a hostile class can answer for itself (its causes, the members of its group, its text) is read past it, from where
the interpreter keeps it, and a bounded number of times.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import TracebackType

from ultimat3_jobs.text import bounded, shortened, storable

MAX_MESSAGE = 4_000
MAX_REPR = 200
UNREADABLE = "<its text could not be read>"
_MAX_CHAIN = 10
_MAX_CHAIN_OF_MEMBER = 3
_MAX_MEMBERS = 10
_MAX_DEPTH = 2  # groups inside groups
_MAX_NOTES = 10
_CALLERS = ("ultimat3_jobs.worker.", "ultimat3_jobs.tenancy", "concurrent.futures.")
_FIRST_FRAMES, _LAST_FRAMES = 100, 200
_DIRECT = "\n\nThe above exception was the direct cause of the following exception:\n"
_MEANWHILE = "\n\nDuring handling of the above exception, another exception occurred:\n"


def class_name(kind: type[BaseException]) -> str:
    """Return the dotted name of an exception's class; built-in ones go without their module."""
    # Not kind.__qualname__: a metaclass can make that raise, or lie.
    name, module = (_own(kind, attribute) for attribute in ("__qualname__", "__module__"))
    return name if module == "builtins" else f"{module}.{name}"


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback, whatever its class says of it."""
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


def message_of(error: BaseException) -> str:
    """Return the text of an exception: bounded, and storable."""
    try:
        # An exact str: one that derives from it can raise wherever it is used.
        text = str.__str__(str(error))
    except BaseException:  # an exception whose text raises must not stop its own record
        return UNREADABLE
    return _text(text)


def repr_of(value: object) -> str:
    """Return how Python writes a value, bounded and storable; its class alone where that raises."""
    try:
        text = str.__str__(repr(value))
    except BaseException:  # a number that is too long for Python to write raises too
        return storable(f"<{type(value).__name__}, whose text could not be read>")
    return bounded(text, MAX_REPR)


def first_line(error: BaseException) -> str:
    """Return the first line of the text of an exception; empty where it has none."""
    return message_of(error).strip().partition("\n")[0]


def format_error(error: BaseException, depth: int = 0) -> str:
    """Return an exception as Python prints it: its causes first, each with its traceback, and the members of a group.

    Args:
        error: what was raised.
        depth: how many groups it is inside of.
    """
    parts: list[str] = []
    for one, link in reversed(list(_chain(error, _MAX_CHAIN_OF_MEMBER if depth else _MAX_CHAIN))):
        parts.append(_format_one(one, depth) + link)
    return "\n".join(parts)


def _chain(error: BaseException, longest: int) -> Iterator[tuple[BaseException, str]]:
    """Yield an exception and what led to it, the latest first, each with the words that lead on to the later one."""
    seen: set[int] = set()
    one: BaseException | None = error
    link = ""
    while one is not None and id(one) not in seen:
        if len(seen) == longest:
            return
        seen.add(id(one))
        yield one, link
        cause: BaseException | None = BaseException.__dict__["__cause__"].__get__(one)
        context: BaseException | None = BaseException.__dict__["__context__"].__get__(one)
        hidden: bool = BaseException.__dict__["__suppress_context__"].__get__(one)
        one, link = (cause, _DIRECT) if cause is not None else (None if hidden else context, _MEANWHILE)


def _format_one(error: BaseException, depth: int) -> str:
    tb, message = traceback_of(error), message_of(error)
    name = storable(class_name(type(error)))
    lines = [f"Traceback (most recent call last):\n{_frames(tb)}"] if tb else []
    lines += [f"{name}: {message}" if message else name, *_notes(error), *_members(error, depth)]
    return "\n".join(lines)


def _from_the_body(tb: TracebackType) -> TracebackType:
    """Leave out how the worker came to the body: it is the same for all, and what matters is below."""
    first: TracebackType | None = tb
    while first is not None:
        module = first.tb_frame.f_globals.get("__name__")
        if not (type(module) is str and module.startswith(_CALLERS)):
            return first
        first = first.tb_next
    return tb


def _frames(tb: TracebackType) -> str:
    tb = _from_the_body(tb)
    count, last = 0, tb
    while last.tb_next:
        count, last = count + 1, last.tb_next
    try:
        if count < _FIRST_FRAMES + _LAST_FRAMES:
            return storable("".join(traceback.format_tb(tb)).rstrip())
        first, rest = traceback.format_tb(tb, _FIRST_FRAMES), traceback.format_tb(tb, -_LAST_FRAMES)
        left_out = f"  ... [{count + 1 - _FIRST_FRAMES - _LAST_FRAMES} frames left out] ...\n"
        return storable("".join([*first, left_out, *rest]).rstrip())
    except BaseException:  # the loader of a module is asked for its source, and may be anything
        code = last.tb_frame.f_code
        return storable(f'  File "{code.co_filename}", line {last.tb_lineno}, in {code.co_name}')


def _notes(error: BaseException) -> list[str]:
    try:
        notes = object.__getattribute__(error, "__dict__").get("__notes__")
        texts = [str.__str__(note) for note in notes[:_MAX_NOTES] if isinstance(note, str)] if notes else []
    except BaseException:  # anything may stand there
        return []
    return list(map(_text, texts))


def _members(error: BaseException, depth: int) -> list[str]:
    if not issubclass(type(error), BaseExceptionGroup) or depth == _MAX_DEPTH:
        return []
    members: tuple[BaseException, ...] = BaseExceptionGroup.__dict__["exceptions"].__get__(error)
    lines = []
    for number, member in enumerate(members[:_MAX_MEMBERS], 1):
        lines.append(f"  --- {number} of {len(members)} ---")
        lines += [f"  | {line}" for line in format_error(member, depth + 1).splitlines()]
    if len(members) > _MAX_MEMBERS:
        lines.append(f"  --- [{len(members) - _MAX_MEMBERS} more left out] ---")
    return lines


def _text(text: str) -> str:
    # Cut before it is escaped, since it may be huge; and after it, since it may have grown.
    return shortened(storable(shortened(text, MAX_MESSAGE)), MAX_MESSAGE)


def _own(kind: type[BaseException], attribute: str) -> str:
    try:
        value = type.__dict__[attribute].__get__(kind)
    except AttributeError:
        return "?"
    return value if type(value) is str else "?"
