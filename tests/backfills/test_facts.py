"""What is read of migrations, of the ledger and of live passes, for the gate and for statuses."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext

from tests.backfills.declared import definition
from tests.backfills.ledger_rows import ledger_row
from tests.declaring import error_of
from ultimat3_jobs import NO_TENANT, Job, job
from ultimat3_jobs.backfills.facts import is_applied, read_facts
from ultimat3_jobs.backfills.gate import Facts, judge
from ultimat3_jobs.backfills.passes import named, read_passes
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Job as JobRow

EMPTY = "from django.db import migrations\nclass Migration(migrations.Migration):\n    dependencies = {}\n"


@pytest.fixture
def recorded(
    django_db_setup: None, db: None, settings: Any, tmp_path: Path
) -> Iterator[Callable[[dict[str, Any], list[str]], None]]:
    """Give the test app migrations on disk, each with the names that it replaces, and write down which are applied."""
    package = f"migrations_{uuid7().hex}"
    sys.path.insert(0, str(tmp_path))
    settings.MIGRATION_MODULES = {"app": package}

    def record(on_disk: dict[str, Any], applied: list[str]) -> None:
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").touch()
        before: str | None = None
        for name, replaces in on_disk.items():
            dependencies = [("app", before)] if before and not replaces else []
            text = EMPTY.format(dependencies) + f"    replaces = {[('app', one) for one in replaces]}\n"
            (folder / f"{name}.py").write_text(text)
            before = before if replaces else name
        for name in applied:
            MigrationRecorder(connection).record_applied("app", name)

    yield record
    sys.path.remove(str(tmp_path))
    for module in [name for name in sys.modules if name.startswith(package)]:
        del sys.modules[module]


def applied(name: str, app: str = "app") -> bool:
    return is_applied("fill", (app, name), alias="default")


PLAIN: dict[str, Any] = {"0001_one": (), "0002_two": (), "0003_three": ()}
SQUASHED = PLAIN | {"0001_squashed": ("0001_one", "0002_two")}
Recorded = Callable[[dict[str, Any], list[str]], None]


def test_a_migration_is_applied_where_that_is_written_down(recorded: Recorded) -> None:
    recorded(PLAIN, ["0001_one", "0002_two"])

    assert [applied(name) for name in PLAIN] == [True, True, False]


def test_where_nothing_was_ever_migrated_nothing_is_applied_and_a_transaction_goes_on(recorded: Recorded) -> None:
    recorded(PLAIN, ["0001_one"])
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_migrations RENAME TO away")

        assert not applied("0001_one")

        cursor.execute("ALTER TABLE away RENAME TO django_migrations")
    assert applied("0001_one")


def test_what_is_applied_is_found_without_loading_all_migrations(recorded: Recorded) -> None:
    recorded(PLAIN, ["0001_one"])
    with CaptureQueriesContext(connection) as captured:
        assert applied("0001_one")

    # In a savepoint, and no list of all tables.
    asked = [one["sql"] for one in captured if "SAVEPOINT" not in one["sql"]]
    assert len(asked) == 1
    assert "django_migrations" in asked[0]
    assert not any(name.startswith("migrations_") for name in sys.modules)


@pytest.mark.parametrize(
    ("written_down", "expected"),
    [
        (["0001_one", "0002_two"], True),  # as `migrate` leaves it before it is run again
        (["0001_one", "0002_two", "0001_squashed"], True),
        (["0001_one"], False),
        ([], False),
    ],
)
def test_a_squashed_migration_is_applied_where_all_that_it_replaces_are(
    recorded: Recorded, written_down: list[str], expected: bool
) -> None:
    recorded(SQUASHED, written_down)

    assert applied("0001_squashed") is expected


def test_a_migration_that_was_replaced_and_deleted_is_known(recorded: Recorded) -> None:
    recorded({"0001_squashed": ("0001_one", "0002_two")}, ["0001_one", "0002_two"])
    assert applied("0002_two")
    MigrationRecorder(connection).flush()

    assert not applied("0002_two")


@pytest.mark.parametrize(
    ("app", "name", "told", "instead"),
    [
        ("app", "0002", "has none of this name", ("app", "0002_two")),
        ("app", "0003_tree", "has none of this name", ("app", "0003_three")),
        ("app", "xyz", "has none of this name", ("app", "0003_three")),
        ("app", "0009_nope", "has none of this name", ("app", "0003_three")),
        ("ap", "0001_one", "no app of the label 'ap' is installed", ("app", "0001_one")),
    ],
)
def test_a_migration_that_is_none_is_told_of_with_what_may_be_meant(
    recorded: Recorded, app: str, name: str, told: str, instead: tuple[str, str]
) -> None:
    recorded(PLAIN, [])

    error = error_of("X_BACKFILL_MIGRATION_PENDING", lambda: applied(name, app))

    assert told in error.cause
    assert eval(f"dict({error.fix}\n)") == {"requires": instead}


@pytest.mark.parametrize("modules", [{}, {"app": None}])
def test_an_app_without_migrations_is_told_of(db: None, settings: Any, modules: dict[str, Any]) -> None:
    settings.MIGRATION_MODULES = modules

    error = error_of("X_BACKFILL_MIGRATION_PENDING", lambda: applied("0001_initial"))

    assert "the app 'app' has no migrations" in error.cause


def declared(name: str = "fill", **options: Any) -> Job[..., Any]:
    def sweep(run: Any, forced: bool = False) -> None: ...

    return job(**{"name": name, "idempotency_key": "pass", "tenant": NO_TENANT} | options)(sweep)


def facts(handle: Job[..., Any], **options: Any) -> Facts:
    return read_facts(
        handle.definition, definition(name=handle.name), **{"alias": "default", "checksum": "c"} | options
    )


@pytest.mark.usefixtures("isolated_registry", "outside")
def test_where_nothing_was_swept_there_is_nothing_to_tell() -> None:
    assert facts(declared()) == Facts("", True, None, None, "c")


@pytest.mark.usefixtures("isolated_registry", "outside")
@pytest.mark.parametrize("tenant", [NO_TENANT, lambda: "acme"])
def test_a_pass_is_live_while_its_job_is(tenant: Any) -> None:
    handle, other = declared(tenant=tenant), declared("other", tenant=tenant)
    run = handle.enqueue().run_id
    other.enqueue()

    for state in ("ready", "delayed", "running", "suspended"):
        JobRow.objects.update(state=state)
        assert facts(handle).live_run == run
    for state in ("done", "failed", "dead", "cancelled"):
        JobRow.objects.update(state=state)
        assert facts(handle).live_run is None
    # A done job may hold its key, and is not live.
    JobRow.objects.update(state="done", key_until="2999-01-01 00:00:00+00:00")
    assert facts(handle).live_run is None


@pytest.mark.usefixtures("isolated_registry", "outside")
def test_a_pass_under_a_former_name_is_live_and_completed_too() -> None:
    run = declared("before").enqueue().run_id
    swept = ledger_row("before", outcome="completed", checksum="s")
    handle = declared(aliases=["before"])
    own = handle.enqueue().run_id

    assert facts(handle, own_run=own).live_run == run
    JobRow.objects.filter(run_id=run).update(state="done")
    assert facts(handle, own_run=own).live_run == own
    completed = facts(handle).completed
    assert completed is not None
    assert (completed.run_id, completed.checksum, completed.finished_at) == (swept.run_id, "s", swept.finished_at)


@pytest.mark.usefixtures("isolated_registry", "outside")
def test_the_newest_completed_pass_is_the_one_that_counts() -> None:
    ledger_row("fill", day=1, outcome="completed")
    newest = ledger_row("fill", day=3, outcome="completed")
    ledger_row("fill", day=2, outcome="completed")
    ledger_row("fill", day=4)

    completed = facts(declared()).completed

    assert completed is not None
    assert completed.run_id == newest.run_id


def test_the_required_migration_is_looked_for_on_the_database_of_the_rows(recorded: Recorded) -> None:
    recorded(PLAIN, ["0001_one"])
    needy = definition(name="fill", requires=("app", "0002_two"))
    handle = declared("tests.facts")

    error = judge(needy, read_facts(handle.definition, needy, alias="default", checksum=""), forced=False).error

    assert error is not None
    assert shlex.split(error.fix) == ["python", "manage.py", "migrate", "app", "0002_two"]


def statuses(*handles: Job[..., Any]) -> list[tuple[UUID, str]]:
    return [(one.run_id, one.status.value) for one in read_passes([named(handle.definition) for handle in handles])]


@pytest.mark.usefixtures("isolated_registry", "outside")
def test_a_pass_that_waits_for_its_first_worker_is_running_without_a_row() -> None:
    handle = declared()
    failed = ledger_row("fill", day=1)
    run = handle.enqueue().run_id

    assert statuses(handle) == [(run, "running"), (failed.run_id, "failed")]


@pytest.mark.usefixtures("isolated_registry", "outside")
def test_of_every_name_the_live_the_newest_and_the_completed_pass_are_told() -> None:
    handle = declared()
    first = ledger_row("fill", day=1, outcome="completed")
    run = handle.enqueue().run_id
    live = ledger_row("fill", day=2, run_id=run, paused_at="2026-01-03 00:00:00+00:00")
    ledger_row("fill", day=3)
    newest = ledger_row("fill", day=4)
    gone = ledger_row("gone", day=5)

    expected = [
        (live.run_id, "paused"),
        (gone.run_id, "failed"),
        (newest.run_id, "failed"),
        (first.run_id, "completed"),
    ]
    assert statuses(handle) == expected

    JobRow.objects.update(state="cancelled")
    assert statuses(handle) == [expected[1], expected[2], expected[3]]


@pytest.mark.usefixtures("isolated_registry", "outside")
def test_a_pass_of_a_name_that_is_gone_is_what_its_job_says() -> None:
    run = declared().enqueue().run_id
    ledger_row("fill", run_id=run)

    for state, status in (("running", "running"), ("cancelled", "cancelled"), ("dead", "failed")):
        JobRow.objects.update(state=state)
        assert statuses() == [(run, status)]


@pytest.mark.usefixtures("isolated_registry", "outside")
def test_what_is_read_takes_a_few_statements_however_many_backfills_there_are(
    django_assert_max_num_queries: Any,
) -> None:
    handles = [declared(f"fill-{number}") for number in range(20)]
    for handle in handles:
        ledger_row(handle.name)

    with django_assert_max_num_queries(3):
        assert len(statuses(*handles)) == 20
