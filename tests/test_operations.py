"""Indexes are built and dropped beside writers on PostgreSQL, plainly on SQLite, and again after a broken-off build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.db import NotSupportedError, connection, models, transaction
from django.db.migrations.state import ProjectState
from django.test.utils import CaptureQueriesContext

from tests.app.models import Effect
from ultimat3_jobs.operations import AddIndexOnline

NAME = "app_effect_by_pid"
OPERATION = AddIndexOnline("effect", models.Index(fields=["pid"], name=NAME))


def states() -> tuple[ProjectState, ProjectState]:
    """Return the project before and after the operation."""
    before, after = ProjectState.from_apps(apps), ProjectState.from_apps(apps)
    OPERATION.state_forwards("app", after)
    return before, after


def apply(*, backwards: bool = False) -> None:
    """Run the operation as a migration that is not atomic does."""
    before, after = states()
    with connection.schema_editor(atomic=False) as editor:
        if backwards:
            OPERATION.database_backwards("app", editor, after, before)
        else:
            OPERATION.database_forwards("app", editor, before, after)


def has_index() -> bool:
    with connection.cursor() as cursor:
        return NAME in connection.introspection.get_constraints(cursor, Effect._meta.db_table)


@pytest.fixture(autouse=True)
def dropped(transactional_db: None) -> Iterator[None]:
    """Leave no index behind."""
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX IF EXISTS {NAME}")


def test_an_index_is_made_and_dropped() -> None:
    apply()
    assert has_index()

    apply(backwards=True)
    assert not has_index()


@pytest.mark.postgresql_only(reason="SQLite lets one writer in at a time")
def test_an_index_is_built_while_the_table_is_written_to() -> None:
    with CaptureQueriesContext(connection) as captured:
        apply()

    statements = [one["sql"] for one in captured]
    assert any("CREATE INDEX CONCURRENTLY" in one for one in statements)
    assert statements.index("SET lock_timeout = '60s'") < next(
        place for place, one in enumerate(statements) if "CREATE INDEX" in one
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')")
        assert cursor.fetchone() == ("0", "0")


@pytest.mark.postgresql_only(reason="SQLite has no invalid indexes")
def test_what_a_broken_off_build_left_is_built_anew() -> None:
    apply()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = CAST(%s AS regclass)", [NAME])

    apply()

    with connection.cursor() as cursor:
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = CAST(%s AS regclass)", [NAME])
        assert cursor.fetchone() == (True,)
    apply()  # a valid one is kept


@pytest.mark.postgresql_only(reason="on SQLite an index can be made in a transaction")
def test_in_a_transaction_it_is_refused_with_what_to_do() -> None:
    before, after = states()
    with (
        pytest.raises(NotSupportedError, match="set atomic = False on the migration"),
        transaction.atomic(),
        connection.schema_editor(atomic=False) as editor,
    ):
        OPERATION.database_forwards("app", editor, before, after)
