"""The log is a witness: what it cannot write changes nothing about the work."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from tests.processes import ROOT_DIRECTORY
from tests.working import row, run_due
from ultimat3_jobs import NO_TENANT, Retry, Run, job
from ultimat3_jobs.errors import MigrationMissing
from ultimat3_jobs.logs import FailureLog, emit, logger
from ultimat3_jobs.worker.drain import Ending


class Broken(logging.Handler):
    """A handler whose stream is closed, or whose service is away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.asked += 1
        raise ValueError("I/O operation on closed file.")


@pytest.fixture
def broken() -> Iterator[Broken]:
    """A broken handler beside those that are there."""
    handler = Broken()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_an_event_that_cannot_be_written_raises_nothing(broken: Broken) -> None:
    emit("jobs.test", level=logging.ERROR, job=1)

    assert broken.asked == 1


def test_what_fails_again_and_again_shows_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog("jobs.test", level=logging.WARNING)

    def fail(error: Exception) -> None:
        try:
            raise error  # noqa: TRY301 - a traceback is what this is about
        except Exception as raised:
            failures.tell(raised, loop="one")

    for error in (OSError("no route\nto nowhere"), OSError("no route"), OSError("no name"), ValueError("no name")):
        fail(error)
    failures.passed()
    fail(ValueError("no name"))

    assert [bool(one.exc_info) for one in caplog.records] == [True, False, True, True, True]
    assert [vars(one)["fields"] for one in caplog.records[:2]] == [
        {"error": "OSError", "why": "no route", "loop": "one"}
    ] * 2
    assert {one.levelno for one in caplog.records} == {logging.WARNING}


def test_what_is_not_migrated_is_told_with_what_to_run_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    FailureLog("jobs.test").tell(MigrationMissing("no tables", fix="python manage.py migrate"))

    (record,) = caplog.records
    assert vars(record)["fields"] == {
        "error": "MigrationMissing", "cause": "no tables", "fix": "python manage.py migrate"
    }  # fmt: skip
    assert not record.exc_info


def test_an_error_whose_text_raises_is_logged_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("never")

    FailureLog("jobs.test").tell(Mute())

    (record,) = caplog.records
    assert vars(record)["fields"]["error"] == "Mute"


def test_every_event_is_on_the_page_and_no_other() -> None:
    package = ROOT_DIRECTORY / "ultimat3_jobs"
    emitted = {
        name for path in package.rglob("*.py") for name in re.findall(r'"(jobs(?:\.[a-z-]+)+)"', path.read_text())
    }
    logs = (ROOT_DIRECTORY / "docs" / "worker.md").read_text().partition("\n## Logs\n")[2]
    told = [
        name for row in re.findall(r"^\| (`jobs\..*?) \|", logs, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)
    ]

    assert sorted(told) == sorted(emitted)


@pytest.mark.usefixtures("queue")
def test_a_log_that_is_broken_costs_no_attempt_and_no_thread(broken: Broken) -> None:
    @job(name="t.failing", idempotency_key="{n}", tenant=NO_TENANT, retry=Retry(attempts=1))
    def failing(run: Run, n: int) -> None:
        raise ValueError

    jobs = [failing.enqueue(1), failing.enqueue(2)]

    assert run_due(concurrency=1) is Ending.DRAINED
    assert [row(one).stop for one in jobs] == ["attempts-exhausted"] * 2
    assert broken.asked
