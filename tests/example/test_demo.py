"""The demo on a fresh database: right the first time, right the second time, right after it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from example_project.catalogs import broken
from example_project.catalogs.backfills import count_words
from example_project.catalogs.parsing import read_catalog
from example_project.catalogs.pipeline import NOBODY
from example_project.catalogs.publishing import EARLY, EARLY_REVIEWER, LATE, LATE_REVIEWER, NEVER, REVIEW_WITHIN
from example_project.catalogs.publishing import GROUP as GROUP_PUBLISHED
from example_project.catalogs.report import SOURCE_LANGUAGE
from example_project.catalogs.sources import Source, find_in_django, language_of, locate
from example_project.catalogs.staging import GROUP_ROLLED_BACK
from tests.example.conftest import FEW, SECRET, Demo, is_alive, wait_until_ended
from tests.processes import ROOT_DIRECTORY, wait_for

DONE = "SELECT count(*) FROM x_jobs WHERE state = 'done'"
FINISHED_ROWS = "SELECT id, state, attempt, finished_at FROM x_jobs ORDER BY id"
GROUPS = find_in_django()
SCANNED = {group: GROUPS[group] for group in FEW}
CATALOGS = sum(len(sources) for group, sources in SCANNED.items() if group != GROUP_ROLLED_BACK)
FINDINGS = sum(
    len(read_catalog(locate(source.path), source.path).messages)
    for group, sources in SCANNED.items()
    if group != GROUP_ROLLED_BACK
    for source in sources
)
Groups = dict[str, list[Source]]

SHAPE: dict[str, set[str]] = {
    "staged": {"found", "staged", "staged_total", "known_already"},
    "rolled_back": {"group", "rows_inside", "rows_left"},
    "jobs": {"total", "by_state", "done_more_than_once", "seconds", "per_second"},
    "catalogs": {"scanned", "messages", "findings"},
    "publications": {"staged", "by_review", "more_than_once", "entries", "jobs_by_state", "steps", "suspended"},
    "backfill": {
        "name",
        "outcome",
        "processed",
        "total",
        "seconds",
        "rows_per_second",
        "left",
        "words",
        "contracted",
    },
    "languages": {"least_translated", "most_translated"},
    "admin": {"environment", "commands", "url"},
}
LANGUAGE = {"code", "name", "catalogs", "messages", "translated", "percent"}
DEAD_LETTER = {"id", "name", "tenant", "path", "stop", "attempts", "reason", "retry"}
BROKEN = {"kind", "path", "state", "stop", "attempts"}


def check_shape(document: dict[str, Any]) -> None:
    """Check that the object has what its version promises."""
    assert document["version"] == 2
    plain = {"version", "database", "outbox", "broken", "dead_letters", "worker_log"}
    assert document.keys() == SHAPE.keys() | plain
    for part, keys in SHAPE.items():
        assert document[part].keys() == keys
    for side in document["languages"].values():
        assert len(side) == 10
        assert all(language.keys() == LANGUAGE for language in side)
    assert all(letter.keys() == DEAD_LETTER for letter in document["dead_letters"])
    assert all(one.keys() == BROKEN for one in document["broken"])


def check_end(document: dict[str, Any], groups: Groups = SCANNED, *, lost: int = 0) -> None:
    """Check the picture that every run must end with; `lost` attempts at most ended with their worker."""
    check_shape(document)
    catalogs = sum(len(sources) for group, sources in groups.items() if group != GROUP_ROLLED_BACK)
    by_state = {state: count for state, count in document["jobs"]["by_state"].items() if count}
    assert by_state == {"done": catalogs + 1, "dead": 2}
    assert document["jobs"]["done_more_than_once"] == 0
    assert document["jobs"]["per_second"] > 0
    assert document["catalogs"]["scanned"] == catalogs + 1
    assert sum(document["outbox"].values()) == document["outbox"]["published"] == catalogs + 3
    back = document["rolled_back"]
    assert back["group"] == GROUP_ROLLED_BACK
    assert back["rows_inside"] == len(GROUPS[GROUP_ROLLED_BACK]) > 0
    assert back["rows_left"] == {"outbox": 0, "jobs": 0, "catalogs": 0}
    mended, terminal, exhausted = document["broken"]
    assert (mended["state"], mended["stop"]) == ("done", "")
    assert mended["attempts"] > 1
    assert (terminal["state"], terminal["stop"]) == ("dead", "terminal")
    assert terminal["attempts"] in range(1, 2 + lost)
    assert (exhausted["state"], exhausted["stop"], exhausted["attempts"]) == ("dead", "attempts-exhausted", 3)
    letters = {letter["path"]: letter for letter in document["dead_letters"]}
    assert letters.keys() == {broken.TERMINAL.path, broken.EXHAUSTED.path}
    assert "NotACatalog: demo/" in letters[broken.TERMINAL.path]["reason"]
    assert "CatalogUnreadable: demo/" in letters[broken.EXHAUSTED.path]["reason"]
    check_publications(document["publications"], groups)
    check_backfill(document["backfill"], sum(document["catalogs"]["findings"].values()))
    check_languages(document["languages"], groups)


def check_backfill(swept: dict[str, Any], findings: int) -> None:
    """Check that every finding was handled once, and that what needs them all came after."""
    assert (swept["name"], swept["outcome"]) == (count_words.name, "completed")
    assert swept["processed"] == swept["total"] == findings > 0
    assert swept["rows_per_second"] > 0
    assert (swept["left"], swept["contracted"]) == (0, True)
    assert swept["words"] >= findings


def check_publications(published: dict[str, Any], groups: Groups) -> None:
    """Check that each was published once, after the review that was meant for it, with what its file says."""
    paths = [one.path for one in groups[GROUP_PUBLISHED] if language_of(one.path) in REVIEW_WITHIN]
    assert published["by_review"] == {EARLY_REVIEWER: len(EARLY), LATE_REVIEWER: len(LATE), NOBODY: len(NEVER)}
    assert sum(published["by_review"].values()) == len(paths)
    assert published["more_than_once"] == 0
    assert published["entries"] == sum(read_catalog(locate(path), path).total for path in paths)
    assert {state: count for state, count in published["jobs_by_state"].items() if count} == {"done": len(paths)}
    assert published["steps"] == 4 * len(paths)
    assert published["suspended"] == len(LATE) + len(NEVER)


def check_languages(languages: dict[str, list[dict[str, Any]]], groups: Groups) -> None:
    """Check the order, and the counts of both ends against the files themselves."""
    least, most = languages["least_translated"], languages["most_translated"]
    assert [one["percent"] for one in least] == sorted(one["percent"] for one in least)
    assert [one["percent"] for one in most] == sorted((one["percent"] for one in most), reverse=True)
    assert SOURCE_LANGUAGE not in {one["code"] for one in least + most}
    for shown in (least[0], most[0]):
        paths = [
            source.path
            for group, sources in groups.items()
            for source in sources
            if group != GROUP_ROLLED_BACK and language_of(source.path) == shown["code"]
        ]
        readings = [read_catalog(locate(path), path) for path in paths]
        assert shown["catalogs"] == len(readings)
        assert shown["messages"] == sum(reading.total for reading in readings)
        assert shown["translated"] == sum(reading.translated for reading in readings)


def retry_each(demo: Demo, letters: list[dict[str, Any]]) -> None:
    """Run the command beside each dead letter as it stands, and see that it starts the scan again."""
    for number, letter in enumerate(letters, start=1):
        ran = subprocess.run(
            letter["retry"],
            shell=True,
            cwd=ROOT_DIRECTORY,
            env={**os.environ, **demo.environment, "DATABASE_URL": demo.processes.url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert demo.count("SELECT count(*) FROM x_jobs WHERE state = 'ready'") == number


def test_the_demo_is_right_the_first_time_and_every_time_after(first_demo: Demo, vendor: str) -> None:
    demo = first_demo
    first = demo.run_json()
    check_end(first)
    assert first["staged"]["staged_total"] == CATALOGS + 3
    assert first["staged"]["known_already"] == 0
    rows = demo.query(FINISHED_ROWS)

    second = demo.run_json()
    check_end(second)
    assert second["staged"]["staged_total"] == 0
    assert second["staged"]["known_already"] == CATALOGS + 3
    assert demo.query(FINISHED_ROWS) == rows
    assert first["publications"].pop("staged") == len(REVIEW_WITHIN)
    assert second["publications"].pop("staged") == 0
    same = [part for part in first if part != "staged"]
    assert {part: second[part] for part in same} == {part: first[part] for part in same}

    assert demo.query("SELECT message, words FROM catalogs_finding WHERE words IS NULL") == []
    counted = demo.query("SELECT message, words FROM catalogs_finding")
    assert all(words == len(message.split()) for message, words in counted)

    text = demo.run()
    assert f"{CATALOGS + 1:,} done, 2 dead" in text
    assert f"{len(LATE)} by {LATE_REVIEWER}" in text
    assert f"{len(LATE + NEVER)} of them suspended" in text
    assert f"{first['jobs']['per_second']:,} jobs a second" in text
    for side in first["languages"].values():
        assert all(f"{language['percent']:5.1f} %  {language['code']}" in text for language in side)
    for letter in first["dead_letters"]:
        assert letter["reason"] in text
        assert letter["retry"] in text
    assert all(command in text for command in first["admin"]["commands"])
    assert demo.query(FINISHED_ROWS) == rows

    printed = text + str(first) + demo.worker_log() + "".join(child.output() for child in demo.processes.children)
    assert SECRET not in printed
    assert (":***@" in text) == (vendor == "postgresql")

    retry_each(demo, first["dead_letters"])
    last = demo.run_json()
    check_end(last)
    assert last["staged"]["staged_total"] == 0
    assert {letter["id"] for letter in last["dead_letters"]} == {letter["id"] for letter in first["dead_letters"]}


KILLED_WHEN = {
    "the first scans are staged": "SELECT count(*) FROM x_outbox WHERE outcome IS NULL",
    "half of the scans are done": f"SELECT count(*) - {CATALOGS // 2} FROM x_jobs WHERE state = 'done'",
    "the torn catalogs wait for another attempt": "SELECT count(*) FROM x_jobs WHERE state = 'delayed'",
    "the backfill has landed a page": "SELECT count(*) FROM x_backfills WHERE processed > 0 AND outcome = ''",
}


@pytest.mark.parametrize("moment", KILLED_WHEN)
def test_a_demo_that_was_killed_ends_the_same(demo: Demo, moment: str) -> None:
    demo.environment["DEMO_BATCH"] = "1"  # a page for each row: the sweep lasts long enough to be met
    child = demo.start("--json")
    wait_for(lambda: demo.count(KILLED_WHEN[moment]) > 0 or not child.running, moment)
    assert child.running, child.output()
    pids = [demo.worker_pid(child)] if "staged" not in moment else []
    for pid in [child.pid, *pids]:
        os.kill(pid, signal.SIGKILL)
    child.wait()
    for pid in pids:
        wait_until_ended(pid)
    swept = demo.count("SELECT processed FROM x_backfills")
    assert demo.count(DONE) < CATALOGS or 0 < swept < FINDINGS, moment

    # An attempt is counted when it starts, so the one that was killed counts.
    check_end(demo.run_json(), lost=len(pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_the_worker_never_outlives_the_demo(demo: Demo, number: signal.Signals) -> None:
    child = demo.start()
    wait_for(lambda: demo.count(DONE) > 0 or not child.running, "the first scan is done")
    pid = demo.worker_pid(child)
    assert is_alive(pid)
    child.kill(number)
    ended_with = child.wait()
    wait_until_ended(pid)

    assert ended_with == {signal.SIGKILL: -9, signal.SIGTERM: 128 + 15, signal.SIGINT: 130}[number]
    assert "Traceback" not in child.output()
    # It drained: what ran was finished, and the rest handed back for the next run.
    assert demo.count("SELECT count(*) FROM x_jobs WHERE state = 'running'") == 0
    assert demo.count("SELECT count(*) FROM x_jobs WHERE state = 'ready'") > 0


def test_a_database_that_no_second_process_can_open_is_refused(demo: Demo) -> None:
    demo.processes.url = "sqlite://:memory:"
    child = demo.start()
    assert child.wait() == 1
    assert "unset DATABASE_URL" in child.output()


def test_a_demo_whose_worker_dies_says_so_and_can_be_run_again(demo: Demo) -> None:
    child = demo.start()
    wait_for(lambda: demo.count(DONE) > 0 or not child.running, "the first scan is done")
    os.kill(demo.worker_pid(child), signal.SIGKILL)
    assert child.wait() == 1
    assert "the worker ended by itself with exit code -9" in child.output()
    assert "Run the demo again" in child.output()
    assert Path(demo.folder / "stdout").read_text() == ""
