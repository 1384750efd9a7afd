"""The database server goes away under load and comes back: every job that was committed reaches its end."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.embedded_postgres import restartable_postgres
from tests.processes import Processes, wait_for

# Enqueues again what it could not commit: the key makes that harmless.
ENQUEUE = """
from django.db import Error, connection, transaction
from tests.app.jobs import steady
from tests.processes import wait_for

def stage(n):
    try:
        with transaction.atomic():
            steady.enqueue_many([{"label": f"{n} {m}"} for m in range(5)])
        return True
    except Error:
        connection.close()
        return False

for n in range(30):
    wait_for(lambda: stage(n), "the database is back")
print("committed", flush=True)
"""
JOBS = {"LEASE": "1500ms", "RENEWAL": "300ms", "POLL": "50ms"}


def done(url: str) -> int:
    """Return how many jobs are done."""
    with psycopg.connect(url) as connection:
        (count,) = connection.execute("SELECT count(*) FROM x_jobs WHERE state = 'done'").fetchone() or (0,)
        return int(count)


@pytest.mark.sqlite_only(reason="it brings its own server: once for both databases is enough")
def test_every_job_is_done_though_the_server_is_restarted_under_load(tmp_path: Path) -> None:
    with restartable_postgres() as server, Processes(tmp_path, server.url) as processes:
        processes.run("migrate", "--run-syncdb", "--verbosity=0", env={"TEST_LOG_LEVEL": "WARNING"})
        workers = [processes.manage("jobs_worker", "--no-relay", "--concurrency", "2", jobs=JOBS) for _ in range(2)]
        relay = processes.manage("jobs_relay", jobs=JOBS)
        enqueuer = processes.django(ENQUEUE, env={"TEST_LOG_LEVEL": "WARNING"})
        for number, shutdown in enumerate(("immediate", "fast"), 1):
            wait_for(lambda: done(server.url) >= 20 * number, "it works")  # noqa: B023
            server.restart(shutdown)
        assert enqueuer.wait() == 0, enqueuer.output()
        wait_for(lambda: done(server.url) == 150, "all are done")

        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT DISTINCT state FROM x_jobs").fetchall() == [("done",)]
            assert connection.execute("SELECT count(*) FROM x_outbox WHERE outcome IS NULL").fetchone() == (0,)
            ran = connection.execute("SELECT count(DISTINCT label) FROM app_effect WHERE detail = 'start'").fetchone()
            assert ran == (150,)
        for child in (*workers, relay):
            child.kill(15)
        assert [child.wait() for child in (*workers, relay)] == [0, 0, 0]
        assert any("-failed" in child.output() for child in (*workers, relay))
