"""A body that forks: the child must not unwind into the worker's thread and become a second worker."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn

FAILED = 1


def leave_if_forked(process: int, error: BaseException | None = None) -> None:
    """End the calling process where it is not `process`, before it settles, closes or claims anything.

    The child shares the sockets of its parent: whatever it says on them is said in the parent's name.

    Args:
        process: id of the worker's process.
        error: what the body raised.
    """
    if os.getpid() != process:
        _leave(error)


def _leave(error: BaseException | None) -> NoReturn:
    code = 0
    with contextlib.suppress(BaseException):
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            code = FAILED
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)
