"""A worker that is started before its queue can be worked on says what is missing, and begins once it is there."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.checks import CheckMessage
from django.core.checks.registry import registry
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from tests.missing_table import without_column, without_table
from tests.processes import Processes
from tests.working import declare, row
from ultimat3_jobs import schema
from ultimat3_jobs.errors import MigrationMissing
from ultimat3_jobs.worker.readiness import await_queue, require_queue

pytestmark = pytest.mark.usefixtures("queue")

MIGRATE = "python manage.py migrate --database default"


@contextmanager
def not_applied(migration: str) -> Iterator[None]:
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("ultimat3_jobs", migration)
    try:
        yield
    finally:
        recorder.record_applied("ultimat3_jobs", migration)


def waits(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(one)["fields"] for one in caplog.records if vars(one).get("event") == "jobs.worker.waiting"]


def test_without_tables_it_says_what_to_run_until_it_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    with without_table("x_jobs"):
        began = await_queue(is_stopped=lambda: len(waits(caplog)) == 2)

    assert not began
    first, second = waits(caplog)
    assert (first["code"], first["fix"]) == ("X_MIGRATION_MISSING", MIGRATE)
    assert first["cause"] == "'default' lacks x_jobs of ultimat3_jobs"
    assert second["next_try_seconds"] > first["next_try_seconds"]


def test_a_database_without_any_is_told_to_have_none(tmp_path: Path, processes: Processes) -> None:
    if connection.vendor == "sqlite":
        output = processes.run("jobs_worker", "--burst", env={"DATABASE_URL": f"sqlite:///{tmp_path / 'db'}"}, status=1)
    else:
        env = {"PGOPTIONS": "-c search_path=pg_temp"}
        output = processes.run("jobs_worker", "--burst", env=env, status=1)

    assert "X_MIGRATION_MISSING: 'default' has no tables of ultimat3_jobs" in output
    assert MIGRATE in output


def test_once_they_are_there_it_begins(processes: Processes) -> None:
    with without_table("x_jobs"):
        worker = processes.manage("jobs_worker")
        output = worker.wait_for_output("jobs.worker.waiting")
    worker.wait_for_output("jobs.worker.started")

    worker.kill(signal.SIGTERM)
    assert worker.wait() == 0
    assert f"fix={MIGRATE}" in output
    assert "Traceback" not in worker.output()


@pytest.mark.parametrize(
    ("table", "column", "late"),
    [("x_jobs", "wait_event", "0004_steps"), ("x_backfills", "began_with", "0005_backfills")],
)
def test_without_columns_of_a_newer_release_it_does_not_begin(
    caplog: pytest.LogCaptureFixture, table: str, column: str, late: str
) -> None:
    queued = declare(lambda run, n: None).enqueue(1)
    with without_column(table, column), not_applied(late), pytest.raises(CommandError) as refused:
        call_command("jobs_worker", "--burst")

    assert f"'default' lacks {table}.{column} of ultimat3_jobs; not applied there: {late}" in str(refused.value)
    assert MIGRATE in str(refused.value)
    assert row(queued).state == "ready"


def test_without_one_table_it_says_which(caplog: pytest.LogCaptureFixture) -> None:
    with without_table("x_job_steps"), pytest.raises(CommandError) as refused:
        call_command("jobs_worker", "--burst")

    assert "'default' lacks x_job_steps of ultimat3_jobs\n" in str(refused.value)


def test_a_worker_that_waits_is_stopped_by_a_signal(processes: Processes) -> None:
    with without_table("x_jobs"):
        worker = processes.manage("jobs_worker")
        worker.wait_for_output("jobs.worker.waiting")
        worker.kill(signal.SIGTERM)

        assert worker.wait() == 0
    assert "jobs.worker.started" not in worker.output()


def test_a_database_that_does_not_answer_is_told_by_its_own_words(processes: Processes, tmp_path: Path) -> None:
    away = {
        "sqlite": (f"sqlite:///{tmp_path / 'no-folder' / 'db.sqlite3'}", "unable to open database file"),
        "postgresql": ("postgresql://nobody@127.0.0.1:1/nothing", "Connection refused"),
    }
    url, words = away[connection.vendor]
    worker = processes.manage("jobs_worker", env={"DATABASE_URL": url})
    worker.wait_for_output("jobs.worker.waiting")

    worker.kill(signal.SIGTERM)
    assert worker.wait() == 0
    assert "code=X_DRIVER_UNAVAILABLE cause=the queue's database refused: " in worker.output()
    assert words in worker.output()
    assert "fix=python manage.py check --database default" in worker.output()
    assert "Traceback" not in worker.output()


def test_a_check_that_meets_a_database_that_is_away_is_made_again() -> None:
    asked: list[Any] = []

    def meets_the_database(**_: Any) -> list[CheckMessage]:
        asked.append(len(asked))
        if len(asked) == 1:
            raise OperationalError("it is starting up")
        return []

    registry.register(meets_the_database)
    try:
        call_command("jobs_worker", "--burst", skip_checks=False)
    finally:
        registry.registered_checks.remove(meets_the_database)

    assert asked == [0, 1]


@pytest.mark.postgresql_only(reason="SQLite has no roles")
def test_a_role_that_may_read_no_more_than_the_queue_may_begin() -> None:
    role = f"role_{uuid4().hex}"  # roles are the server's: another suite may run on it
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
        try:
            cursor.execute(f"GRANT SELECT ON x_jobs, x_job_leases TO {role}")
            cursor.execute(f"SET ROLE {role}")
            require_queue()
        finally:
            cursor.execute("RESET ROLE")
            cursor.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.sqlite_only(reason="no other database is in memory")
def test_a_database_in_memory_is_told_to_be_one(processes: Processes) -> None:
    output = processes.run("jobs_worker", "--burst", env={"DATABASE_URL": "sqlite://:memory:"}, status=1)

    assert "'default' is in memory, where each thread and each process has a database of its own" in output
    assert """fix: DATABASES['default']["NAME"] = BASE_DIR / "db.sqlite3"  # and migrate""" in output


class KeepOut:
    """A router that has no table of this package anywhere."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "ultimat3_jobs" else None


def test_routers_that_keep_the_tables_out_are_told_of(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DATABASE_ROUTERS = [KeepOut()]
    require_queue()  # others have made them
    monkeypatch.setattr(schema, "run", lambda *_: [])
    with pytest.raises(MigrationMissing) as refused:
        require_queue()

    assert "has no tables of ultimat3_jobs, and the routers of the project keep them out" in refused.value.cause
    assert "ULTIMAT3_JOBS[\"QUEUE_DATABASE\"] = 'default'" in refused.value.fix


@pytest.mark.postgresql_only(reason="SQLite locks no tables")
def test_a_table_that_somebody_works_on_keeps_no_worker_from_beginning(
    new_connection: Callable[[], BaseDatabaseWrapper],
) -> None:
    other = new_connection()
    other.set_autocommit(False)
    with other.cursor() as locking:
        locking.execute("LOCK TABLE x_jobs, x_job_steps, x_backfills IN ACCESS EXCLUSIVE MODE")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        require_queue()
    finally:
        other.rollback()
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")


def test_a_burst_does_not_wait() -> None:
    with without_table("x_jobs"), pytest.raises(CommandError, match="X_MIGRATION_MISSING") as refused:
        call_command("jobs_worker", "--burst")

    assert MIGRATE in str(refused.value)


def test_a_migration_that_is_missing_is_told_and_the_worker_works(caplog: pytest.LogCaptureFixture) -> None:
    queued = declare(lambda run, n: None).enqueue(1)
    with not_applied("0006_backfill_lookups"), caplog.at_level(logging.WARNING):
        call_command("jobs_worker", "--burst")

    (told,) = [vars(one)["fields"] for one in caplog.records if vars(one).get("event") == "jobs.worker.unmigrated"]
    assert told == {
        "database": "default",
        "migrations": "0006_backfill_lookups",
        "fix": "python manage.py migrate ultimat3_jobs --database default",
    }
    assert row(queued).state == "done"


def test_nothing_is_told_where_all_of_them_are_applied(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        require_queue()

    assert not caplog.records


def test_a_project_that_turns_migrations_off_is_not_told_of_them(
    caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.MIGRATION_MODULES = {"ultimat3_jobs": None}
    with not_applied("0006_backfill_lookups"), caplog.at_level(logging.WARNING):
        require_queue()

    assert not caplog.records
