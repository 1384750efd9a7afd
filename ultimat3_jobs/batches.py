"""Batches of requests and events that one statement can carry: bounded in rows and in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ultimat3_jobs.records import EnqueueRequest, Event

One = TypeVar("One", EnqueueRequest, Event, EnqueueRequest | Event)

ROWS = 5_000
BYTES = 16 * 1024 * 1024
"""Of encoded input and payload. A batch travels as one parameter, which every database bounds at about a gigabyte."""


def batches(requests: Sequence[One]) -> Iterator[list[One]]:
    """Yield requests or events in their order, as many at a time as one statement should carry."""
    batch: list[One] = []
    size = 0
    for request in requests:
        length = len((request.payload or "") if isinstance(request, Event) else request.input)
        if batch and (len(batch) == ROWS or size + length > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += length
    if batch:
        yield batch
