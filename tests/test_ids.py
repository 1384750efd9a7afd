"""Ids in the order of birth."""

from __future__ import annotations

import threading
import time
from uuid import RFC_4122, UUID

import pytest

from ultimat3_jobs.ids import uuid7


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = [uuid7() for _ in range(1_000)]

    assert all(one.version == 7 and one.variant == RFC_4122 for one in made)


def test_an_id_begins_with_the_milliseconds_of_its_birth() -> None:
    before = time.time_ns() // 1_000_000
    milliseconds = uuid7().int >> 80
    # Ids made within one millisecond may run ahead by a step.
    assert before <= milliseconds <= time.time_ns() // 1_000_000 + 1


def test_ids_of_a_process_sort_in_the_order_they_were_made() -> None:
    made = [uuid7() for _ in range(20_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert [one.hex for one in made] == sorted(one.hex for one in made)
    assert [str(one) for one in made] == sorted(str(one) for one in made)


def test_ids_of_several_threads_are_all_different_and_sorted_in_each() -> None:
    made: list[list[UUID]] = [[] for _ in range(4)]
    start = threading.Barrier(4, timeout=30)

    def make(ids: list[UUID]) -> None:
        start.wait()
        ids.extend(uuid7() for _ in range(5_000))

    threads = [threading.Thread(target=make, args=[ids]) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len({one for ids in made for one in ids}) == 20_000
    assert all(ids == sorted(ids) for ids in made)


def test_ids_keep_their_order_where_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    before = uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: now - 3_600 * 10**9)
    made = [before, *(uuid7() for _ in range(1_000))]

    assert made == sorted(set(made))
    assert all(one.version == 7 and one.variant == RFC_4122 for one in made)
