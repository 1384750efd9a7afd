"""Claims that meet on a deep backlog: each takes what comes next in the order of the queue and passes nothing over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from uuid import UUID

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.plans.conftest import Backlog
from tests.plans.database import ALIAS, DEEP, TIED
from tests.plans.explain import rolled_back
from tests.processes import TIMEOUT
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.sql import run

LIMIT = 10
CLAIMERS = 4
ROUNDS = 5

SELECTIONS = pytest.mark.parametrize(
    ("only", "excluded"),
    [((), ()), ((TIED,), ()), ((), (DEEP,))],
    ids=["all queues", "one queue", "beside a deep queue"],
)


def claim(only: Sequence[str], excluded: Sequence[str]) -> set[UUID]:
    """Claim on this thread's connection to the backlog."""
    parameters = {"worker": "w", "limit": LIMIT, "lease": 30.0, "lapsed": 1}
    queues = {"only": rows.encode_names(only), "excluded": rows.encode_names(excluded)}
    return {rows.uuid(row[0]) for row in run(ALIAS, "claim", parameters | queues)}


def next_in_order(opened: BaseDatabaseWrapper, count: int, only: Sequence[str], excluded: Sequence[str]) -> list[UUID]:
    """Return the rows that are next, looked up in the plainest way."""
    with opened.cursor() as cursor:
        cursor.execute("SELECT id, queue FROM x_jobs WHERE state = 'ready' ORDER BY priority DESC, run_at, id")
        ready = [rows.uuid(row) for row, queue in cursor if queue not in excluded and (not only or queue in only)]
    return ready[:count]


@contextmanager
def own_connection(backlog: Backlog) -> Iterator[BaseDatabaseWrapper]:
    """Give this thread a connection to the backlog."""
    connections[ALIAS] = opened = backlog.opened.copy(alias=ALIAS)
    try:
        yield opened
    finally:
        del connections[ALIAS]
        opened.close()


@SELECTIONS
def test_claims_at_the_same_time_are_full_and_pass_nothing_over(
    backlog: Backlog, only: Sequence[str], excluded: Sequence[str]
) -> None:
    expected = next_in_order(backlog.opened, CLAIMERS * ROUNDS * LIMIT, only, excluded)
    at_once = Barrier(CLAIMERS, timeout=TIMEOUT)

    def claimer() -> list[set[UUID]]:
        with own_connection(backlog):
            claimed = []
            for _ in range(ROUNDS):
                at_once.wait()
                claimed.append(claim(only, excluded))
            return claimed

    with ThreadPoolExecutor(CLAIMERS) as threads:
        started = [threads.submit(claimer) for _ in range(CLAIMERS)]
        batches = [batch for claimer in started for batch in claimer.result()]

    assert [len(batch) for batch in batches] == [LIMIT] * CLAIMERS * ROUNDS
    assert set().union(*batches) == set(expected)


@pytest.mark.postgresql_only(reason="SQLite lets one writer in at a time")
@SELECTIONS
def test_a_claim_takes_what_comes_next_while_another_is_not_committed(
    backlog: Backlog, only: Sequence[str], excluded: Sequence[str]
) -> None:
    expected = next_in_order(backlog.opened, 2 * LIMIT, only, excluded)

    def while_the_first_is_open() -> set[UUID]:
        with own_connection(backlog) as opened, rolled_back(opened):
            return claim(only, excluded)

    with ThreadPoolExecutor(1) as thread:
        with rolled_back(backlog.opened):
            first = claim(only, excluded)
            second = thread.submit(while_the_first_is_open).result(TIMEOUT)
        third = thread.submit(while_the_first_is_open).result(TIMEOUT)

    assert first == set(expected[:LIMIT])
    assert second == set(expected[LIMIT:])
    assert third == first
