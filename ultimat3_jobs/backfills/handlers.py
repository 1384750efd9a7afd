"""Calling a handler with the rows of a page, be it in a pass or on trial."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition
    from ultimat3_jobs.context import Run

_LAZY = (inspect.iscoroutine, inspect.isgenerator, inspect.isasyncgen)


def call_handler(backfill: BackfillDefinition, run: Run, rows: list[Any]) -> None:
    """Call the handler of a backfill. What it returns means nothing.

    Raises:
        TypeError: where it returns a coroutine or a generator, which nobody runs: it has done nothing.
    """
    result = backfill.handler(run, rows)
    if any(is_lazy(result) for is_lazy in _LAZY):
        if not inspect.isasyncgen(result):
            result.close()  # or Python warns that nobody has awaited it
        raise TypeError(
            f"the handler of backfill {backfill.name} returned a {type(result).__name__}, which nobody runs: it has "
            "done nothing"
        )
