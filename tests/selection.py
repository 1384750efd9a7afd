"""A pytest plugin: which tests run on this database, and which of them may be skipped.

A test that can only be about one database says so with its reason:
`@pytest.mark.postgresql_only(reason="...")` or `@pytest.mark.sqlite_only(reason="...")`. On the other one it
is deselected, not skipped, and named in the summary.

A test that opens no database has nothing to do with which one there is. Where the suite runs on two, `TEST_PLAIN_TESTS`
is "elsewhere" in one of the runs, and such tests are left to the other: those without a fixture or a marker that leads
to a database, which pytest-django refuses any connection. One that only asks which database there is must ask the
fixture `vendor`, and then it runs on both.

Every other skip, and every expected failure, must be written in `skips.txt` with its reason, or the run
fails.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

WRITTEN_SKIPS = Path(__file__).with_name("skips.txt")
ONLY_ON = {"postgresql_only": "postgresql", "sqlite_only": "sqlite"}

PLAIN_TESTS = "TEST_PLAIN_TESTS"
ELSEWHERE = "elsewhere"
LEADS_TO_A_DATABASE = {"django_db_setup", "vendor"}

plain = pytest.StashKey[int]()
deselected = pytest.StashKey[list[str]]()
skipped = pytest.StashKey[dict[str, str]]()


def written_skips() -> dict[str, str]:
    """Return the node ids of `skips.txt`, each with its reason."""
    lines = [line.strip() for line in WRITTEN_SKIPS.read_text().splitlines()]
    entries = [re.split(r"\s{2,}", line, maxsplit=1) for line in lines if line and not line.startswith("#")]
    without_reason = [entry[0] for entry in entries if len(entry) == 1]
    assert not without_reason, f"{WRITTEN_SKIPS.name}: no reason is given for {without_reason}"
    return dict(entries)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    for marker, vendor in ONLY_ON.items():
        config.addinivalue_line("markers", f"{marker}(reason): can only be about {vendor}; the reason is required")
    config.stash[plain] = 0
    config.stash[deselected] = []
    config.stash[skipped] = {}
    config.pluginmanager.register(_SkipWatch(config), "skip-watch")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are about the other database."""
    left_out = []
    for item in items:
        for marker in (mark for mark in item.iter_markers() if mark.name in ONLY_ON):
            reason = str(marker.kwargs.get("reason", ""))
            if not reason:
                raise pytest.UsageError(f"{item.nodeid}: {marker.name} needs a reason=")
            if ONLY_ON[marker.name] != connection.vendor:
                left_out.append(item)
                config.stash[deselected].append(f"{item.nodeid}: {marker.name}: {reason}")
    if os.environ.get(PLAIN_TESTS) == ELSEWHERE:
        without = [item for item in items if not opens_a_database(item)]
        config.stash[plain] = len(without)
        left_out += without
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def opens_a_database(item: pytest.Item) -> bool:
    """Tell whether a test may open a database, or look which one there is."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    leading = LEADS_TO_A_DATABASE.intersection(getattr(item, "fixturenames", LEADS_TO_A_DATABASE)) - parameters.keys()
    return bool(leading) or item.get_closest_marker("django_db") is not None


class _SkipWatch:
    """Collects what was skipped, and fails the run where that is not written down."""

    def __init__(self, config: pytest.Config) -> None:
        self.skipped = config.stash[skipped]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module can be skipped as a whole."""
        if report.skipped:
            self.skipped[report.nodeid] = _reason(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test can be skipped, be expected to fail, or pass although it was expected to fail."""
        if report.skipped or hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = _reason(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """A skip that is not written down is a failure of the run."""
        if session.exitstatus == pytest.ExitCode.OK and self.skipped.keys() - written_skips().keys():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    return str(report.longrepr[-1]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what did not run, each with its reason."""
    if config.stash[deselected]:
        terminalreporter.section("left out on this database")
        for line in config.stash[deselected]:
            terminalreporter.line(line)
    if config.stash[plain]:
        terminalreporter.line(f"{config.stash[plain]} tests that open no database run beside the other one alone")
    if config.stash[skipped]:
        written = written_skips()
        terminalreporter.section("skipped")
        for nodeid, reason in config.stash[skipped].items():
            verdict = f"as written: {written[nodeid]}" if nodeid in written else f"NOT in {WRITTEN_SKIPS.name}"
            terminalreporter.line(f"{nodeid}: {reason} ({verdict})", red=nodeid not in written)
