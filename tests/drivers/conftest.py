"""An empty queue for every test of a driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from tests.drivers.harness import DatabaseHarness
from ultimat3_jobs.models import Job, JobAttempt


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The database outside any transaction, in place of pytest-django's fixture of this name.

    It empties the tables of the queue alone: to flush all of them takes longer than most of these tests do.
    """
    with django_db_blocker.unblock():
        yield
        JobAttempt.objects.all().delete()
        Job.objects.all().delete()
        connection.close()


@pytest.fixture
def harness(transactional_db: None) -> DatabaseHarness:
    """The database driver with an empty queue."""
    return DatabaseHarness()
