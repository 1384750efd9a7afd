"""What a pass of the relay offers to the queue, and what comes of it: receipts, and the rows that are to blame."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import transaction

from ultimat3_jobs.batches import batches
from ultimat3_jobs.drivers import Capability, get_driver
from ultimat3_jobs.errors import EventInvalid, KeyReused
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.entries import Culprit, Staged
from ultimat3_jobs.outbox.faults import Fault, fault_of
from ultimat3_jobs.records import EnqueueRequest, Event, Receipt


@dataclass
class Offer:
    """What came of the rows of one pass, as far as it got.

    Attributes:
        careful: queue under savepoints, and search for the rows to blame where that fails. Costs round trips.
        receipts: of the rows that were queued or joined; None is that of an event, which was stored.
        culprits: the rows that were not.
        stopped_by: why the rows behind the last culprit were not offered: it may yet be published, and nothing
            overtakes it.
    """

    careful: bool = False
    receipts: list[tuple[Staged, Receipt | None]] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    stopped_by: Exception | None = None

    @property
    def events(self) -> list[Event]:
        """The events that were stored, in their order."""
        return [one for one, _ in self.receipts if isinstance(one, Event)]

    def put(self, staged: Sequence[Staged], alias: str) -> None:
        """Queue and store in order. Where that fails and care is taken, find the rows to blame; the others go on.

        Args:
            staged: what to queue and to store.
            alias: of the queue's database, on which the caller has a transaction open.

        Raises:
            Exception: a failure that says nothing of any row, or any at all where no care is taken. The caller's
                transaction must be rolled back then.
        """
        if not self.careful:
            # All of them or none: no one sees which was first, and two statements do for many rows.
            staged = sorted(staged, key=lambda one: isinstance(one, Event))
        for _, alike in itertools.groupby(staged, type):
            # In parts of bounded size: inputs are as large as the settings allow, and a pass takes many.
            for batch in batches(list(alike)):
                if self.careful:
                    self._put(batch, alias)
                else:
                    self.receipts += _give(batch)

    def _put(self, batch: Sequence[Staged], alias: str) -> None:
        if self.stopped_by is not None:
            return
        try:
            with transaction.atomic(using=alias):
                receipts = _give(batch)
        except Exception as error:
            if fault_of(error) is Fault.PASSING:
                raise
            self._search(batch, alias, error)
        else:
            self.receipts += receipts

    def _search(self, batch: Sequence[Staged], alias: str, error: Exception) -> None:
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
    def _queued_before(batch: Sequence[Staged]) -> dict[object, Receipt]:
        driver = get_driver()
        requests = [one for one in batch if isinstance(one, EnqueueRequest)]
        if not requests or Capability.INTROSPECT not in driver.capabilities:
            return {}
        holders = zip(requests, driver.find_holders(requests), strict=True)
        return {one.id: receipt for one, receipt in holders if receipt is not None and receipt.id == one.id}


def _give(batch: Sequence[Staged]) -> list[tuple[Staged, Receipt | None]]:
    """Hand jobs alone, or events alone, to the queue."""
    driver = get_driver()
    events = [one for one in batch if isinstance(one, Event)]
    if not events:
        requests = [one for one in batch if isinstance(one, EnqueueRequest)]
        return list(zip(requests, driver.enqueue(requests), strict=True))
    if Capability.EVENTS not in driver.capabilities:
        raise EventInvalid(
            f"the queue's driver {type(driver).__name__} stores no events",
            fix="use the database driver for a project that publishes events",
        )
    driver.publish(events)
    return [(one, None) for one in events]


def outcome_of(receipt: Receipt | None) -> tuple[str, str]:
    """Return the outcome of a row that was offered, and the error that is kept with it."""
    if receipt is None:
        return OutboxEntry.Outcome.PUBLISHED, ""
    if receipt.refused:
        error = f"{KeyReused.code}: the key is held by job {receipt.id} with another input"
        return OutboxEntry.Outcome.SET_ASIDE, error
    return OutboxEntry.Outcome.DEDUPED if receipt.joined else OutboxEntry.Outcome.PUBLISHED, ""
