"""The backlogs, each filled once a run; how the statements run is noted on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from pytest_django import DjangoDbBlocker

from tests.plans.cases import cases, loops
from tests.plans.database import (
    BIG,
    SMALL,
    TEN_TIMES,
    analyze,
    empty,
    fill_finished,
    fill_work,
    forget_statistics,
    own_database,
)
from tests.plans.explain import Plan, Work, explain_analyze, query_plan, work


@dataclass
class Backlog:
    """A database with a backlog in it, and how each case ran there: by the circumstance and the case's name.

    Attributes:
        opened: the connection to it.
        plans: on PostgreSQL, what was read and how.
        lines: on SQLite, the plan.
        work: on SQLite, what it took.
    """

    opened: BaseDatabaseWrapper
    plans: dict[tuple[str, str], Plan] = field(default_factory=dict)
    lines: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    work: dict[tuple[str, str], Work] = field(default_factory=dict)


@pytest.fixture(scope="session")
def filled(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backlog]:
    """Fill the backlog."""
    fill = _on_postgresql if connection.vendor == "postgresql" else _on_sqlite
    with django_db_blocker.unblock(), fill(tmp_path_factory) as backlog, django_db_blocker.block():
        yield backlog


@pytest.fixture
def backlog(filled: Backlog, django_db_blocker: DjangoDbBlocker) -> Iterator[Backlog]:
    """The backlog. Of what is ready a test may take a few hundred, as a worker would."""
    with django_db_blocker.unblock():
        yield filled


@contextmanager
def _on_postgresql(folders: pytest.TempPathFactory) -> Iterator[Backlog]:
    emptied = {}
    for circumstance, before in (("outgrown", SMALL), ("refilled", TEN_TIMES)):
        with own_database(folders.mktemp(circumstance)) as opened:
            fill_finished(opened, before)
            fill_work(opened, before)
            empty(opened)
            fill_finished(opened, TEN_TIMES)
            fill_work(opened, TEN_TIMES)
            emptied |= {(circumstance, case.name): explain_analyze(opened, case) for case in cases()}
    with own_database(folders.mktemp("plans")) as opened:
        backlog = Backlog(opened, plans=emptied)
        fill_finished(opened, BIG)
        analyze(opened)
        for case in loops():
            backlog.plans["idle", case.name] = explain_analyze(opened, case)
        fill_work(opened, BIG)
        for circumstance in ("behind", "analyzed", "generic"):
            if circumstance == "analyzed":
                analyze(opened)
            for case in cases():
                plan = explain_analyze(opened, case, generic=circumstance == "generic")
                backlog.plans[circumstance, case.name] = plan
        yield backlog


@contextmanager
def _on_sqlite(folders: pytest.TempPathFactory) -> Iterator[Backlog]:
    with own_database(folders.mktemp("small")) as opened:
        fill_finished(opened, SMALL)
        fill_work(opened, SMALL)
        small = {("small", case.name): work(opened, case) for case in cases()}
    with own_database(folders.mktemp("ten-times")) as opened:
        backlog = Backlog(opened, work=small)
        fill_finished(opened, TEN_TIMES)
        analyze(opened)
        for case in loops():
            backlog.work["idle", case.name] = work(opened, case)
        fill_work(opened, TEN_TIMES)
        for circumstance, renew in (("behind", None), ("unknown", forget_statistics), ("analyzed", analyze)):
            if renew:
                renew(opened)
            for case in cases():
                backlog.lines[circumstance, case.name] = query_plan(opened, case)
                backlog.work[circumstance, case.name] = work(opened, case)
        yield backlog
