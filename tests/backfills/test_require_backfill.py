"""A migration that needs a backfill: what it lets through, what it refuses, and how it survives Django's own tools."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import FieldError
from django.db import connection, migrations, models
from django.db.migrations.optimizer import MigrationOptimizer
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from tests.app.models import Effect
from tests.backfills.ledger_rows import ledger_row
from tests.backfills.sweeping import declare
from tests.declaring import error_of
from ultimat3_jobs import registry
from ultimat3_jobs.errors import BackfillPending, DeclarationInvalid
from ultimat3_jobs.operations import RequireBackfill

pytestmark = pytest.mark.django_db

NAME = "fill 'details'"
OPERATION = RequireBackfill(NAME, model="Effect", remaining=Q(detail=""))


def apply(operation: RequireBackfill = OPERATION, *, state: ProjectState | None = None, app: str = "app") -> list[str]:
    """Run the operation as a migration does, and return its statements."""
    before = state or ProjectState.from_apps(apps)
    with CaptureQueriesContext(connection) as captured, connection.schema_editor(atomic=False) as editor:
        operation.database_forwards(app, editor, before, before.clone())
    return [one["sql"] for one in captured]


@pytest.fixture(autouse=True)
def without_constraint_checks(monkeypatch: pytest.MonkeyPatch, vendor: str) -> None:
    """Let SQLite open its editor in the transaction of a test: the operation changes no table."""
    if vendor == "sqlite":
        monkeypatch.setattr(type(connection.schema_editor()), "__enter__", lambda editor: editor)
        monkeypatch.setattr(type(connection.schema_editor()), "__exit__", lambda *_: None)


def test_a_model_without_rows_passes_and_the_ledger_is_not_asked() -> None:
    statements = apply()

    assert len(statements) == 1
    assert "x_backfills" not in statements[0]


@pytest.mark.parametrize(
    ("outcome", "details"),
    [(None, ["", "x", ""]), ("", ["", "x", ""]), ("", ["x"]), ("cancelled", ["x"])],
    ids=["rows left", "rows left and a pass begun", "a pass begun", "a pass ended"],
)
def test_without_a_completed_pass_it_is_refused(outcome: str | None, details: list[str]) -> None:
    Effect.objects.bulk_create(Effect(label="l", detail=detail) for detail in details)
    ledger_row("another", outcome="completed")
    if outcome is not None:
        ledger_row(NAME, outcome=outcome)

    error = error_of("X_BACKFILL_PENDING", apply)

    left = "and 2 rows of app.Effect are" if "" in details else "although no row of app.Effect is"
    assert error.cause == f"the backfill {NAME!r} has no completed pass, {left} left to handle"
    assert error.fix == (
        "python manage.py backfill 'fill '\"'\"'details'\"'\"'' --write --wait  # in a release that declares it"
    )


def test_where_no_row_is_left_and_no_pass_is_known_it_goes_on() -> None:
    ledger_row("another")
    Effect.objects.create(label="made by a migration", detail="x")

    apply()


@pytest.mark.parametrize("former", [False, True], ids=["its name", "a former name"])
def test_a_pass_that_is_queued_and_has_not_begun_is_waited_for_though_no_row_is_left(
    isolated_registry: None, settings: Any, former: bool
) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}
    Effect.objects.create(label="l", detail="x")
    declare(None, Effect, name=NAME).enqueue()
    if former:
        registry._by_name.clear()
        declare(None, Effect, name="the new name", aliases=[NAME])

    operation = RequireBackfill("the new name", model="Effect", remaining=Q(detail="")) if former else OPERATION
    error = error_of("X_BACKFILL_PENDING", lambda: apply(operation))

    assert error.cause.endswith(" although no row of app.Effect is left to handle; a pass of it is live")


def test_a_tenant_that_cannot_be_told_holds_no_migration_up(isolated_registry: None) -> None:
    Effect.objects.create(label="l", detail="x")
    declare(None, Effect, name=NAME, tenant=lambda: Effect.objects.get(label="nobody").label)

    apply()


def test_with_rows_left_after_a_completed_pass_it_is_refused(isolated_registry: None) -> None:
    ledger_row(NAME, outcome="completed")
    Effect.objects.bulk_create(Effect(label="l", detail=detail) for detail in ("", "x"))

    error = error_of("X_BACKFILL_PENDING", apply)

    assert error.cause == f"the backfill {NAME!r} has completed, and 1 row of app.Effect is left to handle"
    first = "once the code that writes the new form is deployed everywhere"
    assert error.fix.endswith(f" --write --force --wait  # in a release that declares it, {first}")
    declare(None, Effect, name=NAME)
    assert error_of("X_BACKFILL_PENDING", apply).fix.endswith(f" --write --force --wait  # {first}")


def test_with_a_completed_pass_and_no_row_left_it_goes_on() -> None:
    ledger_row(NAME, outcome="completed")
    ledger_row(NAME, day=1)  # a forced one that did not
    Effect.objects.create(label="l", detail="x")

    statements = [one for one in apply() if "app_effect" in one]

    assert len(statements) == 2
    assert all("LIMIT 1" in one and "ORDER" not in one and "COUNT" not in one for one in statements)


def test_a_pass_under_another_name_of_the_backfill_counts(isolated_registry: None) -> None:
    ledger_row("the new name", outcome="completed")
    ledger_row(NAME, day=1)
    Effect.objects.create(label="", detail="done")
    error_of("X_BACKFILL_PENDING", apply)

    declare(None, Effect, name="the new name", aliases=[NAME])

    apply()


@pytest.mark.parametrize("completed", [False, True])
def test_where_a_pass_is_live_it_says_how_to_wait_for_it(
    isolated_registry: None, settings: Any, completed: bool
) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}
    Effect.objects.create(label="", detail="")
    if completed:
        ledger_row(NAME, outcome="completed")
    declare(None, Effect, name=NAME).enqueue(forced=completed)

    error = error_of("X_BACKFILL_PENDING", apply)

    assert error.cause.endswith(" is left to handle; a pass of it is live")
    assert error.fix == "python manage.py backfill 'fill '\"'\"'details'\"'\"'' --wait"


def test_where_a_pass_is_paused_it_says_how_to_resume_it(isolated_registry: None, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"OUTBOX": {"MODE": "direct"}}
    Effect.objects.create(label="", detail="")
    started = declare(None, Effect, name=NAME).enqueue()
    ledger_row(NAME, run_id=started.run_id, paused_at=datetime(2026, 1, 1, tzinfo=UTC))

    error = error_of("X_BACKFILL_PENDING", apply)

    assert error.cause.endswith("; a pass of it is paused")
    assert error.fix == f"python manage.py jobs resume {started.run_id}"


def test_what_is_left_is_counted_up_to_a_bound() -> None:
    Effect.objects.bulk_create(Effect(label="l") for _ in range(1_001))
    with CaptureQueriesContext(connection) as captured:
        assert "more than 1,000 rows" in error_of("X_BACKFILL_PENDING", apply).cause
    assert "LIMIT 1001)" in captured.captured_queries[-1]["sql"]

    Effect.objects.filter(pk=Effect.objects.values("pk")[:1]).delete()
    assert " 1,000 rows" in error_of("X_BACKFILL_PENDING", apply).cause


class Nothing(models.Manager["Effect"]):
    """A manager that hides every row."""

    use_in_migrations = True

    def get_queryset(self) -> models.QuerySet[Effect]:
        return super().get_queryset().none()


def changed(**changes: Any) -> ProjectState:
    """Return the project with another state of the model, or with one beside it."""
    state = ProjectState.from_apps(apps)
    model = ModelState.from_model(Effect)
    for name, value in changes.items():
        setattr(model, name, value)
    if changes.get("bases"):
        model.fields = {}
    state.models["app", model.name_lower] = model
    return state


def test_a_manager_that_hides_rows_fools_nobody() -> None:
    Effect.objects.create(label="l")
    state = changed(managers=[("objects", Nothing())], options={"base_manager_name": "objects"})
    assert not state.apps.get_model("app", "Effect")._base_manager.exists()

    error_of("X_BACKFILL_PENDING", lambda: apply(state=state))


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"managed": False, "db_table": "app_effect"}},
        {"options": {"ordering": ["label"]}},
        {"name": "Seen", "options": {"proxy": True}, "bases": ("app.effect",)},
    ],
    ids=["unmanaged", "ordered", "proxy"],
)
def test_no_kind_of_model_is_passed_over(changes: dict[str, Any]) -> None:
    Effect.objects.create(label="l")
    model = changes.get("name", "Effect")

    operation = RequireBackfill(NAME, model=f"app.{model}", remaining=Q(detail=""))

    error_of("X_BACKFILL_PENDING", lambda: apply(operation, state=changed(**changes), app="another"))


class Elsewhere:
    """A router that keeps the model out of this database."""

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        return False if model_name == "effect" else None


def test_it_is_for_the_databases_that_have_the_model(settings: Any) -> None:
    Effect.objects.create(label="l")
    settings.DATABASE_ROUTERS = [f"{__name__}.{Elsewhere.__name__}"]

    assert apply() == []


def test_a_filter_that_names_no_field_is_told_of_though_there_are_no_rows() -> None:
    with pytest.raises(FieldError):
        apply(RequireBackfill(NAME, model="Effect", remaining=Q(none="")))


def test_backwards_it_does_nothing() -> None:
    Effect.objects.create(label="l")
    state = ProjectState.from_apps(apps)

    with CaptureQueriesContext(connection) as captured, connection.schema_editor(atomic=False) as editor:
        OPERATION.database_backwards("app", editor, state, state)

    assert OPERATION.reversible
    assert len(captured) == 0


def test_as_sql_it_is_a_comment_and_asks_nothing() -> None:
    migration = migrations.Migration("0002_contract", "app")
    migration.operations = [OPERATION]

    editor = connection.schema_editor(collect_sql=True)
    with CaptureQueriesContext(connection) as captured:
        migration.apply(ProjectState.from_apps(apps), editor, collect_sql=True)

    assert len(captured) == 0
    assert all(line.startswith("--") for line in editor.collected_sql)
    assert f"-- Require the backfill {NAME} of Effect" in editor.collected_sql


def test_it_is_written_and_read_back_as_what_it_is() -> None:
    migration = type("Migration", (migrations.Migration,), {"operations": [OPERATION]})("0002_contract", "app")
    namespace: dict[str, Any] = {}
    exec(MigrationWriter(migration, include_header=False).as_string(), namespace)

    (again,) = namespace["Migration"].operations
    assert type(again) is RequireBackfill
    assert (again.name, again.model, again.remaining) == (NAME, "Effect", Q(detail=""))


def test_a_squash_keeps_it_where_it_is() -> None:
    operations = [
        migrations.CreateModel("Effect", [("id", models.AutoField(primary_key=True)), ("detail", models.TextField())]),
        migrations.AddField("Effect", "late", models.TextField(default="")),
        OPERATION,
        migrations.RemoveField("Effect", "detail"),
    ]

    kept = MigrationOptimizer().optimize(operations, "app")

    assert [type(one).__name__ for one in kept] == ["CreateModel", "RequireBackfill", "RemoveField"]


@pytest.mark.parametrize(
    ("name", "fragment"),
    [("Drop-Legacy 2", "require_drop_legacy_2"), ("fill: é", "require_fill"), ("é", "require_backfill")],
)
def test_a_migration_is_named_after_it(name: str, fragment: str) -> None:
    assert RequireBackfill(name, model="Effect", remaining=Q(pk=1)).migration_name_fragment == fragment


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("", {}),
        ("a\nb", {}),
        (NAME, {"model": "a.b.C"}),
        (NAME, {"model": Effect}),
        (NAME, {"remaining": None}),
        (NAME, {"remaining": Q()}),
        (NAME, {"remaining": {"detail": ""}}),
    ],
)
def test_what_it_cannot_be_is_refused_where_it_is_written(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(DeclarationInvalid):
        RequireBackfill(name, **{"model": "Effect", "remaining": Q(detail="")} | changes)


def test_the_error_can_be_told_from_others() -> None:
    Effect.objects.create(label="l")

    with pytest.raises(BackfillPending):
        apply()
