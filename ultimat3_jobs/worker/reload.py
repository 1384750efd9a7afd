"""`--reload`, for development: tells when the code on disk has changed, once and only where it can be compiled."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from django.utils import autoreload

from ultimat3_jobs.logs import emit


class CodeWatch:
    """Watches the modules that are loaded, with Django's own watcher, until a change was told.

    Args:
        on_change: called once, from the watching thread.
    """

    def __init__(self, on_change: Callable[[], object]) -> None:
        self._on_change = on_change
        self._reloader = autoreload.get_reloader()
        self.changed = False

    def start(self) -> None:
        """Begin to watch."""
        autoreload.file_changed.connect(self._look, sender=self._reloader)
        threading.Thread(target=self._reloader.run_loop, name="ultimat3_jobs.reload", daemon=True).start()

    def stop(self) -> None:
        """End the watch with the look that is under way."""
        self._reloader.stop()
        autoreload.file_changed.disconnect(self._look, sender=self._reloader)

    def _look(self, *, file_path: Path, **_: Any) -> bool:
        # A true answer keeps Django from ending the process itself.
        if self.changed or file_path.suffix != ".py":
            return True
        try:
            compile(file_path.read_bytes(), str(file_path), "exec")
        except (OSError, SyntaxError, ValueError) as error:
            emit("jobs.worker.reload-waits", level=logging.WARNING, file=file_path, error=type(error).__name__)
            return True
        self.changed = True
        emit("jobs.worker.reloading", file=file_path)
        self._on_change()
        return True


def start_again() -> NoReturn:
    """Replace this process by a fresh start of the same command."""
    arguments = [str(argument) for argument in autoreload.get_child_arguments()]
    os.execv(arguments[0], arguments)  # noqa: S606 - the same program with the same arguments
