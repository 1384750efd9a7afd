"""How far a pass is: one record of its run, and the one place from which it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from ultimat3_jobs.errors import StepChanged
from ultimat3_jobs.records import StepKind, StepRecord, StepState

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.keyset import StoredKey
    from ultimat3_jobs.records import ClaimedJob
    from ultimat3_jobs.steps.steps import Steps

NAME = "sweep"
"""The name of the record."""


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pass is.

    Attributes:
        bound: the last key of the pass, fixed at its start; None where the table was empty.
        at: the last key that is done with; None at the start.
        handled: rows that were handed to the handler in pages that landed.
        pages: pages that landed, empty ones too.
        size: rows a page, as it was found to be right.
        total: rows to handle, as counted at the start; None where that is not known.
        estimated: whether `total` is an estimate.
        finished: whether the pass has completed.
        table: whose keys the pass goes by; "" in a record of a release that did not keep it.
        alias: of the table's database; "" like `table`.
        checksum: of the declaration that the pass began with; "" where it could not be worked out, or like `table`.
    """

    bound: list[str | int] | None
    at: list[str | int] | None = None
    handled: int = 0
    pages: int = 0
    size: int
    total: int | None = None
    estimated: bool = False
    finished: bool = False
    table: str = ""
    alias: str = ""
    checksum: str = ""

    @property
    def swept(self) -> bool:
        """Whether all rows within the bound are done with."""
        return self.bound is None or self.at == self.bound

    def after(self, at: StoredKey, *, rows: int, size: int) -> Cursor:
        """Return how far the pass is after one more page."""
        handled = self.handled + rows
        # Never more than all: an estimate, or a count before rows were added within the bound, was too low.
        total = None if self.total is None else max(self.total, handled)
        return msgspec.structs.replace(self, at=at, handled=handled, pages=self.pages + 1, size=size, total=total)

    def completed(self) -> Cursor:
        """Return it as that of a pass that has completed."""
        return msgspec.structs.replace(self, total=self.handled, estimated=False, finished=True)

    def record(self, job: ClaimedJob, attempt: int) -> StepRecord:
        """Return it as it is recorded for its run."""
        return StepRecord(
            run_id=job.run_id,
            name=NAME,
            seq=1,
            kind=StepKind.CURSOR,
            state=StepState.DONE if self.finished else StepState.WAITING,
            attempt=attempt,
            output=msgspec.json.encode(self).decode(),
        )


def parse(text: str | None, run_id: UUID) -> Cursor:
    """Return the cursor that a record holds.

    Raises:
        StepChanged: where it is none of this release.
    """
    try:
        return msgspec.json.decode(text or "null", type=Cursor)
    except msgspec.DecodeError as error:
        raise StepChanged(
            f"the cursor of run {run_id} cannot be read: {error}",
            fix="deploy the release of ultimat3_jobs that wrote it; or cancel the pass and start another",
        ) from None


def read(steps: Steps) -> Cursor | None:
    """Return how far the run is; None where it has not begun to sweep. Once an attempt."""
    stored = steps.take(NAME, StepKind.CURSOR)
    return None if stored is None else parse(stored.output, steps.job.run_id)
