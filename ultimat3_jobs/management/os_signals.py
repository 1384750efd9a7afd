"""Signals of a command that runs until it is told to stop, and what becomes of them in the processes it forks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_before: dict[signal.Signals, Any] = {}
"""The signals that are handled here, with what handled them before."""


@contextmanager
def handling(handlers: dict[signal.Signals, Callable[[], None]]) -> Iterator[dict[signal.Signals, Any]]:
    """Handle signals for the length of the block: called from other code, a burst must leave Ctrl-C as it was.

    A child that is forked meanwhile has the handlers of before: it is told to end by those who started it, as the
    processes of a `multiprocessing.Pool` are, and must not take it for the end of a worker.

    Args:
        handlers: what to call for each.

    Returns:
        The handlers that are put back afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield {}  # signals are the main thread's
        return
    before: dict[signal.Signals, Any] = {
        number: signal.signal(number, lambda *_, call=call: call()) for number, call in handlers.items()
    }
    _before.update(before)
    try:
        yield before
    finally:
        for number, handler in before.items():
            _before.pop(number, None)
            signal.signal(number, handler)


class _Fork(threading.local):
    mask: set[int] | None = None


_fork = _Fork()


def _hold() -> None:
    # A signal that reached the child before it has its handlers would be dropped by Python.
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _before) if _before else None


def _release() -> None:
    if _fork.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _restore() -> None:
    while _before:
        number, handler = _before.popitem()
        signal.signal(number, handler)
    _release()


os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_restore)
