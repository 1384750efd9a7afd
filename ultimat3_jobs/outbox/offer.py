"""What a pass of the relay offers to the queue, and what comes of it: receipts, and the rows that are to blame."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import transaction

from ultimat3_jobs.batches import batches
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.errors import KeyReused
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.entries import Culprit
from ultimat3_jobs.outbox.faults import Fault, fault_of
from ultimat3_jobs.records import EnqueueRequest, Receipt


@dataclass
class Offer:
    """What came of the rows of one pass, as far as it got.

    Attributes:
        careful: queue under savepoints, and search for the rows to blame where that fails. Costs round trips.
        receipts: of the rows that were queued or joined.
        culprits: the rows that were not.
        stopped_by: why the rows behind the last culprit were not offered: it may yet be published, and nothing
            overtakes it.
    """

    careful: bool = False
    receipts: list[tuple[EnqueueRequest, Receipt]] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    stopped_by: Exception | None = None

    def put(self, requests: Sequence[EnqueueRequest], alias: str) -> None:
        """Queue requests in their order. Where that fails and care is taken, find the rows to blame; the others go on.

        Args:
            requests: what to queue.
            alias: of the queue's database, on which the caller has a transaction open.

        Raises:
            Exception: a failure that says nothing of any row, or any at all where no care is taken. The caller's
                transaction must be rolled back then.
        """
        # In parts of bounded size: inputs are as large as the settings allow, and a pass takes many.
        for batch in batches(requests):
            if self.careful:
                self._put(batch, alias)
            else:
                self.receipts += zip(batch, get_driver().enqueue(batch), strict=True)

    def _put(self, batch: Sequence[EnqueueRequest], alias: str) -> None:
        if self.stopped_by is not None:
            return
        try:
            with transaction.atomic(using=alias):
                receipts = get_driver().enqueue(batch)
        except Exception as error:
            if fault_of(error) is Fault.PASSING:
                raise
            self._search(batch, alias, error)
        else:
            self.receipts += zip(batch, receipts, strict=True)

    def _search(self, batch: Sequence[EnqueueRequest], alias: str, error: Exception) -> None:
        """Halve what failed until the rows to blame stand alone, in their order."""
        queued = self._queued_before(batch)
        if queued:
            # Not by this pass, whose mark was lost or which slept too long: they are where they should be.
            for known, rows in itertools.groupby(batch, lambda request: request.id in queued):
                part = list(rows)
                if known:
                    self.receipts += ((request, queued[request.id]) for request in part)
                else:
                    self._put(part, alias)
        elif len(batch) == 1:
            (request,) = batch
            fault = fault_of(error)
            self.culprits.append(Culprit(request.id.hex, request.name, error, fault))
            if fault is Fault.UNCLEAR:
                self.stopped_by = error
        else:
            middle = len(batch) // 2
            self._put(batch[:middle], alias)
            self._put(batch[middle:], alias)

    @staticmethod
    def _queued_before(batch: Sequence[EnqueueRequest]) -> dict[object, Receipt]:
        driver = get_driver()
        if Capability.INTROSPECT not in driver.capabilities:
            return {}
        holders = zip(batch, driver.find_holders(batch), strict=True)
        return {one.id: receipt for one, receipt in holders if receipt is not None and receipt.id == one.id}


def outcome_of(receipt: Receipt) -> tuple[str, str]:
    """Return the outcome of a row that was offered, and the error that is kept with it."""
    if receipt.refused:
        error = f"{KeyReused.code}: the key is held by job {receipt.id} with another input"
        return OutboxEntry.Outcome.SET_ASIDE, error
    return OutboxEntry.Outcome.DEDUPED if receipt.joined else OutboxEntry.Outcome.PUBLISHED, ""
