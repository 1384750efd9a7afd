"""`manage.py backfill NAME --try N`: what the first rows would become, and that nothing of it stays."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import F

from tests.app.models import Cell, Effect, Item, Organization, Place, Restaurant, Token
from tests.backfills.commanding import as_json, refused, run
from tests.backfills.sweeping import declare, handled
from tests.declaring import written
from tests.worker.test_atomic import PAST_DJANGO, close
from tests.working import declare as declare_job
from tests.working import run_due
from ultimat3_jobs import current_tenant
from ultimat3_jobs.management.commands.backfill import MOST_TRIED
from ultimat3_jobs.models import Backfill as Ledger

pytestmark = pytest.mark.usefixtures("queue", "nothing_declared")


def make_items(count: int, **values: Any) -> list[Item]:
    return Item.objects.bulk_create(Item(number=number, **values) for number in range(count))


def items() -> list[dict[str, Any]]:
    return list(Item.objects.order_by("pk").values())


def by_save(run: Any, rows: list[Any]) -> None:
    for one in rows:
        one.note = "saved"
        one.save()


def by_update(run: Any, rows: list[Any]) -> None:
    Item.objects.filter(pk__in=[one.pk for one in rows]).update(note="updated")


def by_sql(run: Any, rows: list[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE app_item SET note = 'by hand'")


def in_a_block(run: Any, rows: list[Any]) -> None:
    with transaction.atomic():
        by_save(run, rows)
        Effect.objects.create(label="created")


def in_a_block_left_open(run: Any, rows: list[Any]) -> None:
    transaction.atomic().__enter__()
    by_save(run, rows)


def and_raise(run: Any, rows: list[Any]) -> None:
    by_save(run, rows)
    raise LookupError("no such\nthing")


def and_raise_in_a_block_left_open(run: Any, rows: list[Any]) -> None:
    transaction.atomic().__enter__()
    and_raise(run, rows)


def and_delete(run: Any, rows: list[Any]) -> None:
    rows[0].delete()


WAYS = [by_save, by_update, by_sql, in_a_block, in_a_block_left_open, and_delete]


@pytest.mark.parametrize("work", [*WAYS, and_raise, and_raise_in_a_block_left_open], ids=lambda one: one.__name__)
def test_nothing_stays_of_what_was_tried(work: Callable[[Any, list[Any]], None]) -> None:
    make_items(5)
    before = items()
    declare(work, Item)

    as_json("t.backfill", "--try", 3, status=1 if work.__name__.startswith("and_raise") else 0)

    assert not connection.in_atomic_block
    connection.close()
    assert (items(), Effect.objects.count(), Ledger.objects.count(), written()) == (before, 0, 0, (0, 0))


@pytest.mark.parametrize("work", WAYS[:-1], ids=lambda one: one.__name__)
def test_what_would_change_is_shown_field_by_field(work: Callable[[Any, list[Any]], None]) -> None:
    made = make_items(5)
    declare(work, Item)

    trial = as_json("t.backfill", "--try", 3)["trial"]

    assert [row["key"] for row in trial["rows"]] == [[one.pk] for one in made[:3]]
    for row in trial["rows"]:
        (change,) = row["changes"]
        assert (change["field"], change["old"]) == ("note", "''")
        assert change["new"] in ("'saved'", "'updated'", "'by hand'")


def test_rows_are_shown_as_text_with_those_that_would_go_and_those_that_would_stay() -> None:
    made = make_items(3)

    def work(run: Any, rows: list[Item]) -> None:
        rows[0].delete()
        Item.objects.filter(pk=rows[1].pk).update(handled=F("handled") + 1, note="\x1b[2J")

    declare(work, Item)

    told = run("t.backfill", "--try", 10)

    assert told == (
        "t.backfill  tried, and rolled back: nothing was changed\n"
        f"{made[0].pk}  would be deleted\n"
        f"{made[1].pk}\n"
        "    handled: 0 -> 1\n"
        "    note: '' -> '\\x1b[2J'\n"
        "2 of 3 rows would change. Rows of other tables and new rows are not shown.\n"
    )


def test_values_are_bounded_and_secrets_are_masked() -> None:
    make_items(1)

    def work(run: Any, rows: list[Item]) -> None:
        rows[0].note = "x" * 200
        rows[0].save()

    declare(work, Item)

    (change,) = as_json("t.backfill", "--try", 1)["trial"]["rows"][0]["changes"]
    assert len(change["new"]) == 200
    assert change["new"].endswith("…")

    from ultimat3_jobs.inspection import rehearsal

    assert rehearsal._value("api_token", "open sesame") == rehearsal.MASK
    assert "sesame" not in rehearsal._value("data", {"deep": [{"password": "open sesame"}]})


def test_rows_of_every_kind_of_key_are_tried() -> None:
    Token.objects.bulk_create(Token() for _ in range(3))
    Cell.objects.bulk_create(Cell(sheet="s", place=n) for n in range(3))
    Restaurant.objects.create(name="r")

    for model in (Token, Cell, Restaurant):
        declare(None, model, name=f"t.{model.__name__}")
        rows = as_json(f"t.{model.__name__}", "--try", 2)["trial"]["rows"]
        assert rows
        assert all(row["changes"] == [{"field": "handled", "old": "0", "new": "1"}] for row in rows)
        assert set(handled(Place if model is Restaurant else model)) == {0}


def test_sparse_rows_are_found_stretch_by_stretch() -> None:
    make_items(200)
    declare(None, Item, source=lambda: Item.objects.filter(number__in=[99, 150, 199]))

    assert len(as_json("t.backfill", "--try", 2)["trial"]["rows"]) == 2
    assert len(as_json("t.backfill", "--try", 9)["trial"]["rows"]) == 3


def test_a_source_without_rows_has_nothing_to_try() -> None:
    called: list[Any] = []
    declare(lambda run, rows: called.append(rows), Item)

    assert "0 of 0 rows would change" in run("t.backfill", "--try", 3)
    assert not called


def test_a_handler_that_raises_is_shown_with_its_last_line() -> None:
    make_items(3)
    declare(and_raise, Item)

    told, why = refused("t.backfill", "--try", 3)

    assert "LookupError: no such (" in told
    assert f"{__file__}:" in told
    assert why.startswith("LookupError: no such")


@pytest.mark.parametrize("words", ["COMMIT", "ROLLBACK"])
def test_a_handler_that_ends_the_transaction_is_refused(words: str) -> None:
    make_items(3)

    def work(run: Any, rows: list[Item]) -> None:
        by_save(run, rows)
        with connection.cursor() as cursor:
            cursor.execute(words)

    declare(work, Item)

    error = as_json("t.backfill", "--try", 3, status=1)["error"]

    assert error["code"] == "X_TRANSACTION_BROKEN"
    assert {one["note"] for one in items()} == {""}


@pytest.mark.parametrize("then", [None, LookupError, SystemExit, "an error of the database", "a block left open"])
@pytest.mark.parametrize("end", PAST_DJANGO, ids=lambda one: one.__name__)
def test_a_handler_that_ends_the_transaction_past_django_is_told_aloud(end: Callable[[], None], then: Any) -> None:
    make_items(3)

    def work(run: Any, rows: list[Item]) -> None:
        by_save(run, rows)
        end()
        if isinstance(then, type):
            raise then
        if then == "an error of the database":
            connection.connection.cursor().execute("SELECT no_such_column")
        if then == "a block left open":
            transaction.atomic().__enter__()

    declare(work, Item)

    error = as_json("t.backfill", "--try", 3, status=1)["error"]

    assert error["code"] == "X_TRANSACTION_BROKEN"
    assert "ROWS WERE CHANGED" in error["cause"]
    assert not connection.in_atomic_block
    Effect.objects.all().delete()


def test_of_a_connection_that_was_closed_nothing_is_promised() -> None:
    make_items(3)

    def work(run: Any, rows: list[Item]) -> None:
        by_save(run, rows)
        close()

    declare(work, Item)

    error = as_json("t.backfill", "--try", 3, status=1)["error"]

    assert "nothing tells whether its handler had committed" in error["cause"]
    assert {one["note"] for one in items()} == {""}


class Interrupted(KeyboardInterrupt):
    """Raised by a handler, and by no person."""


@pytest.mark.parametrize("kind", [SystemExit, Interrupted, GeneratorExit])
def test_what_would_end_the_command_is_a_failure_of_the_handler(kind: type[BaseException]) -> None:
    make_items(3)

    def work(run: Any, rows: list[Item]) -> None:
        by_save(run, rows)
        raise kind(7)

    declare(work, Item)

    told, why = refused("t.backfill", "--try", 3)

    assert "the handler raised, and what it wrote was rolled back" in told
    assert why.startswith(f"{kind.__name__}: 7 (")
    assert {one["note"] for one in items()} == {""}


@pytest.mark.parametrize("status", [0, 5])
def test_the_child_of_a_handler_that_forks_is_no_second_command(status: int) -> None:
    make_items(3)
    seen: list[int] = []

    def work(run: Any, rows: list[Item]) -> None:
        child = os.fork()
        if child == 0:
            if status:
                raise SystemExit(status)
            return
        seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    declare(work, Item)

    run("t.backfill", "--try", 3)

    assert seen == [status]


def test_ctrl_c_ends_the_command() -> None:
    make_items(3)

    def work(run: Any, rows: list[Item]) -> None:
        by_save(run, rows)
        raise KeyboardInterrupt

    declare(work, Item)

    with pytest.raises(KeyboardInterrupt):
        run("t.backfill", "--try", 3)
    assert {one["note"] for one in items()} == {""}


def test_as_many_rows_as_may_be_asked_for_are_tried_whatever_their_key() -> None:
    Cell.objects.bulk_create(Cell(sheet="s", place=n) for n in range(MOST_TRIED))
    declare(None, Cell, source=lambda: Cell.objects.filter(handled=0))

    assert len(as_json("t.backfill", "--try", MOST_TRIED)["trial"]["rows"]) == MOST_TRIED


def test_work_that_is_enqueued_is_rolled_back_and_hooks_do_not_run() -> None:
    make_items(1)
    job = declare_job(lambda run, n: None)
    hooks: list[str] = []

    def work(run: Any, rows: list[Item]) -> None:
        job.enqueue(n=1)
        assert written() == (0, 1)
        transaction.on_commit(lambda: hooks.append("ran"))

    declare(work, Item)

    run("t.backfill", "--try", 1)

    assert (written(), hooks) == ((0, 0), [])


def test_writes_to_another_database_are_refused(second_database: str) -> None:
    make_items(1)

    def work(run: Any, rows: list[Item]) -> None:
        by_save(run, rows)
        with connections[second_database].cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.execute("DELETE FROM x_jobs")

    declare(work, Item)

    error = as_json("t.backfill", "--try", 1, status=1)["error"]

    assert error["code"] == "X_STEP_NOT_ATOMIC"
    assert f"writes to {second_database!r}" in error["cause"]
    assert {one["note"] for one in items()} == {""}
    # A pass would refuse it as well, unless it commits its pages before its cursor.
    options = eval(f"dict({error['fix']}\n)")
    declare(work, Item, **options)
    assert as_json("t.backfill", "--try", 1, status=1)["error"]["fix"] == "python manage.py backfill t.backfill --write"
    run("t.backfill", "--write")
    run_due()
    assert {one["note"] for one in items()} == {"saved"}


def test_what_the_commit_would_refuse_is_told(vendor: str) -> None:
    owner = Organization.objects.create(name="o")
    Restaurant.objects.create(name="r", owner=owner)

    def work(run: Any, rows: list[Restaurant]) -> None:
        Restaurant.objects.filter(pk=rows[0].pk).update(owner_id=owner.pk + 1)

    declare(work, Restaurant)

    if vendor == "postgresql":
        assert "IntegrityError" in refused("t.backfill", "--try", 1)[1]
    else:
        run("t.backfill", "--try", 1)  # SQLite looks at the whole database when asked, which can take long


def test_the_handler_runs_as_the_tenant_and_knows_who_asked() -> None:
    make_items(1)
    seen: list[Any] = []

    def work(run: Any, rows: list[Item]) -> None:
        run.progress(1, 2)
        seen.append((current_tenant(), run.tenant, run.attempt, run.enqueued_by.partition(" (")[0]))

    declare(work, Item, tenant=lambda: "acme")

    run("t.backfill", "--try", 1)

    assert seen == [("acme", "acme", 1, "manage.py backfill")]


def test_rows_are_locked_while_they_are_tried(new_connection: Any, vendor: str) -> None:
    make_items(1)
    seen: list[str] = []

    def work(run: Any, rows: list[Item]) -> None:
        if vendor == "postgresql":
            with new_connection().cursor() as cursor:
                cursor.execute("SELECT id FROM app_item FOR UPDATE SKIP LOCKED")
                seen.append(json.dumps(cursor.fetchall()))

    declare(work, Item)

    run("t.backfill", "--try", 1)

    assert seen == (["[]"] if vendor == "postgresql" else [])


def test_rows_that_cannot_be_read_are_a_refusal_that_names_the_backfill() -> None:
    make_items(1)
    declare(None, Item, source=lambda: Item.objects.extra(where=["no_such_column = 1"]))

    error = as_json("t.backfill", "--try", 1, status=1)["error"]

    assert error["code"] == "X_BACKFILL_SOURCE_INVALID"
    assert "the rows of backfill 't.backfill' cannot be read" in error["cause"]
    assert error["fix"] == "python manage.py migrate"


def test_nothing_is_tried_before_the_migration_that_it_requires() -> None:
    make_items(1)
    called: list[Any] = []
    declare(lambda run, rows: called.append(rows), Item, requires=("contenttypes", "0001_initial"))
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("contenttypes", "0001_initial")
    try:
        error = as_json("t.backfill", "--try", 1, status=1)["error"]
    finally:
        recorder.record_applied("contenttypes", "0001_initial")

    assert (error["code"], called) == ("X_BACKFILL_MIGRATION_PENDING", [])
    assert as_json("t.backfill", "--try", 1)["trial"]["warnings"] == []


def test_it_is_tried_in_another_environment_with_a_warning() -> None:
    make_items(1)
    declare(None, Item, environments=["production"])

    (warning,) = as_json("t.backfill", "--try", 1)["trial"]["warnings"]

    assert warning.startswith("backfill 't.backfill' is meant for production")
    assert run("t.backfill", "--try", 1).startswith("warning: backfill 't.backfill' is meant for production")
