"""Identifiers in about the order of birth: UUIDv7 (RFC 9562), monotonic within a process."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_RANDOM_BITS = 74
_STEP_BITS = 32
_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """Return a UUIDv7 that sorts after every other this process has made.

    The host's milliseconds lead; the rest is random and, within one millisecond or after a clock that went back,
    grows by a random step. No decision is taken on the time inside.
    """
    global _last  # noqa: PLW0603 - the process's own sequence
    fresh = (time.time_ns() // 1_000_000) << _RANDOM_BITS | int.from_bytes(os.urandom(10)) >> 6
    with _lock:
        if fresh <= _last:
            fresh = _last + 1 + int.from_bytes(os.urandom(_STEP_BITS // 8))
        _last = fresh
    milliseconds, tail = divmod(fresh, 1 << _RANDOM_BITS)
    high, low = divmod(tail, 1 << 62)
    return UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
