"""Fixtures of the tests of the outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import pytest
from django.db import connections
from django.test.utils import override_settings
from pytest_django import DjangoDbBlocker

from tests.emptying import empty_tables

T = TypeVar("T")


class Background(Protocol):
    """Starts a callable in a thread of its own."""

    def __call__(self, work: Callable[[], T]) -> Future[T]: ...


@pytest.fixture
def outbox(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Empty tables outside any transaction, emptied again: cheaper than a flush of every table."""
    with django_db_blocker.unblock():
        yield
        empty_tables()


@pytest.fixture
def background(outbox: None) -> Iterator[Background]:
    """Start callables in threads with Django connections of their own, which are closed at their end."""
    with ThreadPoolExecutor(8) as pool:

        def start(work: Callable[[], Any]) -> Future[Any]:
            def body() -> Any:
                try:
                    return work()
                finally:
                    connections.close_all()

            return pool.submit(body)

        yield start


@pytest.fixture
def two_a_move() -> Iterator[None]:
    """A relay that moves two rows at a time."""
    with override_settings(ULTIMAT3_JOBS={"OUTBOX": {"BATCH": 2}}):
        yield
