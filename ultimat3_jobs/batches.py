"""Batches of requests that one statement can carry: bounded in rows and in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ultimat3_jobs.records import EnqueueRequest

ROWS = 5_000
BYTES = 16 * 1024 * 1024
"""Of encoded input. A batch travels as one parameter, which every database bounds at about a gigabyte."""


def batches(requests: Sequence[EnqueueRequest]) -> Iterator[list[EnqueueRequest]]:
    """Yield the requests in their order, as many at a time as one statement should carry."""
    batch: list[EnqueueRequest] = []
    size = 0
    for request in requests:
        if batch and (len(batch) == ROWS or size + len(request.input) > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += len(request.input)
    if batch:
        yield batch
