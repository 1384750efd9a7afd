"""Exceptions of every kind that a body can raise, the hostile ones too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from ultimat3_jobs import Aborted


class DeclinedError(Exception):
    """What a payment service says."""


class LyingError(Exception):
    """Claims to be another class where it is asked."""

    @property
    def __class__(self) -> Any:
        return DeclinedError


class UnaskableError(Exception):
    """Raises where it is asked for its class."""

    @property
    def __class__(self) -> Any:
        raise SystemExit("no class")


class MuteError(Exception):
    """Raises where it is asked for its text."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class StammeringError(Exception):
    """Fails in an ordinary way where it is asked for its text."""

    def __str__(self) -> str:
        return str(self.args[7])


class _Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise KeyboardInterrupt
        return super().__getattribute__(name)

    def __eq__(cls, other: object) -> bool:
        raise KeyboardInterrupt

    __hash__ = type.__hash__


class NamelessError(Exception, metaclass=_Nameless):
    """Raises where its class is asked for its name."""


class UnmovableError(Exception):
    """Raises where something is set on it, a traceback for one."""

    def __setattr__(self, name: str, value: object) -> None:
        raise SystemExit("no attributes")


class LyingGroupError(ExceptionGroup[Exception]):
    """A group that has no end of members where it is asked."""

    @property
    def exceptions(self) -> Any:
        while True:
            yield self


class _LyingText(str):
    """Text that raises wherever it is used."""

    __slots__ = ()

    def _refuse(self, *args: Any) -> Any:
        raise SystemExit("no use")

    __len__ = __getitem__ = __add__ = __format__ = __hash__ = __eq__ = replace = encode = _refuse  # type: ignore[assignment]


class LyingTextError(Exception):
    """Its text is none that can be used."""

    def __str__(self) -> str:
        return _LyingText("a text")


def body(error: BaseException) -> NoReturn:
    """Raise it, as a body does."""
    raise error


def recursion() -> RecursionError:
    """Return what a body that calls itself for ever raises."""

    def deeper() -> None:
        deeper()

    try:
        deeper()
    except RecursionError as error:
        return error
    raise AssertionError("recursion has no limit")


def _strange() -> Exception:
    strange = type("StrangeError", (Exception,), {})
    strange.__qualname__ = "Strange\x00\ud800"
    return strange("strange")


def _chained() -> Exception:
    chained = ValueError("outer")
    chained.__cause__ = MuteError()
    chained.add_note("a note with \x00 and \ud800")
    return chained


def _long_chain() -> Exception:
    last = ValueError("link 4999")
    for number in reversed(range(4_999)):
        error = ValueError(f"link {number}")
        error.__cause__, last = last, error
    return last


def _deep_groups() -> Exception:
    group = ExceptionGroup("level 499", [ValueError("lowest")])
    for level in reversed(range(499)):
        group = ExceptionGroup(f"level {level}", [group] * 12)
    return group


KINDS: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: ValueError("plain"),
    "declined": lambda: DeclinedError("declined"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(1),
    "MemoryError": MemoryError,
    "RecursionError": recursion,
    "Aborted": lambda: Aborted("told to stop"),
    "group": lambda: ExceptionGroup("several", [ValueError("one"), TypeError("two")]),
    "base group": lambda: BaseExceptionGroup("several", [SystemExit(1), KeyboardInterrupt()]),
    "lying group": lambda: LyingGroupError("several", [ValueError("one")]),
    "deep groups": _deep_groups,
    "long chain": _long_chain,
    "lying text": lambda: LyingTextError("text"),
    "code": lambda: SystemExit("X_NO"),
    "NUL": lambda: ValueError("a NUL \x00"),
    "surrogate": lambda: ValueError("a lone surrogate \ud800"),
    "10 MB": lambda: ValueError("x" * 10_000_000),
    "odd arguments": lambda: ValueError(b"\xff\xfe", 10**4000, object()),
    "strange class": _strange,
    "chained": _chained,
    "mute": MuteError,
    "stammering": StammeringError,
    "lying": lambda: LyingError("lies"),
    "unaskable": lambda: UnaskableError("asked"),
    "nameless": lambda: NamelessError("nameless"),
    "unmovable": lambda: UnmovableError("unmovable"),
}
"""Makes one exception of each kind. By name, since a test runner cannot look at all of them."""
