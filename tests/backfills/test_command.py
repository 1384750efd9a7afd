"""`manage.py backfill`: its forms, the dry run of a name and of all, and the start of passes."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext

from tests.app.models import Cell, Item, Token
from tests.backfills.commanding import as_json, refused, run
from tests.backfills.ledger_rows import ledger_row
from tests.backfills.sweeping import declare, handled, sweep
from tests.declaring import written
from tests.processes import Processes
from tests.working import run_due
from ultimat3_jobs import Retry, current_tenant
from ultimat3_jobs.backfills.find import find_backfill
from ultimat3_jobs.backfills.plan import start
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.errors import BackfillUnknown
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.models import Job

pytestmark = pytest.mark.usefixtures("queue", "nothing_declared")

seen: list[str] = []


@contextmanager
def scoping(tenant: str) -> Iterator[None]:
    """A project's own scoping."""
    seen.append(tenant)
    yield


def unscoped(tenant: str) -> Any:
    """A project's own scoping that does not know a tenant."""
    raise LookupError(f"no tenant {tenant}")


def make_items(count: int, **values: Any) -> None:
    Item.objects.bulk_create(Item(number=number, **values) for number in range(count))


def typed(command: str) -> tuple[str, ...]:
    """Return the arguments of a command line of `backfill`."""
    python, script, name, *arguments = shlex.split(command, comments=True)
    assert (python, script, name) == ("python", "manage.py", "backfill")
    return tuple(arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("", "exactly one of"),
        ("--list --pending", "exactly one of"),
        ("t.backfill --all", "exactly one of"),
        ("t.backfill --list", "exactly one of"),
        ("--list --write", "--write does not go with --list"),
        ("--list --try 3", "--try does not go with --list"),
        ("--pending --limit 3", "--limit does not go with --pending"),
        ("--pending --wait", "--wait does not go with --pending"),
        ("--all --write --force", "--force does not go with --all"),
        ("--all --try 3", "--try does not go with --all"),
        ("--all --wait", "--wait with --all goes with --write"),
        ("t.backfill --name x", "--name does not go with a name"),
        ("t.backfill --status failed", "--status does not go with a name"),
        ("t.backfill --force", "--force goes with --write"),
        ("t.backfill --try 3 --write", "--try changes nothing"),
        ("t.backfill --try 3 --wait", "--try changes nothing"),
        ("t.backfill --try 0", "from 1 to 1000"),
        ("t.backfill --try 1001", "from 1 to 1000"),
        ("--list --limit 0", "from 1 to 1000"),
        ("a\0b", "a NUL character"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(arguments: str, why: str) -> None:
    declare(None, Item)

    with pytest.raises(CommandError, match=why) as raised:
        call_command("backfill", *arguments.split(" ") if arguments else (), stdout=io.StringIO())

    assert written() == (0, 0)
    assert "X_" not in str(raised.value)


def test_a_name_alone_says_what_a_pass_would_do_and_writes_nothing() -> None:
    make_items(25)
    declare(None, Item, batch=10, rate=2, window="00:00-23:59")

    with CaptureQueriesContext(connection) as queries:
        told = run("t.backfill")

    assert not [one["sql"] for one in queries if one["sql"].lstrip().startswith(("INSERT", "UPDATE", "DELETE"))]
    assert "a dry run: nothing was changed" in told
    assert "25 rows" in told
    assert "3 pages or more, 1 s or more" in told
    assert "exactly once: a page and the cursor" in told
    assert "window:       00:00-23:59" in told
    first = ", ".join(map(str, Item.objects.order_by("pk").values_list("pk", flat=True)[:5]))
    assert f"first keys:   {first}\n" in told
    assert (written(), Ledger.objects.count(), handled(Item)) == ((0, 0), 0, {0: 25})


def test_a_plan_as_json() -> None:
    make_items(25)
    declare(None, Item, batch=10, rate=2, lock=False, atomic=False)

    plan = as_json("t.backfill")["plan"]

    last = Item.objects.order_by("pk").last()
    assert last is not None
    assert (plan["may_start"], plan["refused"], plan["warnings"]) == (True, None, [])
    assert (plan["exactly_once"], plan["locked"], plan["page_rows"]) == (False, False, 10)
    assert plan["declared"]["rate"] == 2
    reach = plan["reach"]
    assert (reach["rows"], reach["pages"], reach["seconds"], reach["bound"]) == (25, 3, 1.5, [last.pk])
    assert len(reach["first"]) == 5
    assert "app_item" in "\n".join(reach["statement"])


@pytest.mark.parametrize("batch", [3, "auto"])
def test_keys_of_every_kind_are_planned_for(batch: Any) -> None:
    Token.objects.bulk_create(Token() for _ in range(7))
    Cell.objects.bulk_create(Cell(sheet="s", place=n) for n in range(7))
    for model in (Token, Cell):
        declare(None, model, name=f"t.{model.__name__}", batch=batch)

    assert as_json("t.Cell")["plan"]["reach"]["first"] == [["s", n] for n in range(5)]
    assert len(as_json("t.Token")["plan"]["reach"]["first"]) == 5
    assert "('s', 0), ('s', 1)" in run("t.Cell")


def test_an_empty_table_is_planned_for() -> None:
    declare(None, Item)

    assert "none: the table is empty" in run("t.backfill")
    assert as_json("t.backfill")["plan"]["reach"]["rows"] == 0


def test_a_sparse_source_is_told_to_take_as_many_pages_as_its_table_has_stretches() -> None:
    make_items(200)
    declare(None, Item, batch=2, source=lambda: Item.objects.filter(number=150))

    reach = as_json("t.backfill")["plan"]["reach"]

    assert (reach["rows"], reach["pages"]) == (1, 10)


def test_a_page_that_looks_at_the_whole_table_is_warned_of(vendor: str) -> None:
    make_items(200)
    declare(None, Item, batch=2)
    if vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off")
        assert "warning: the first page looks at all of app_item" in run("t.backfill")
        with connection.cursor() as cursor:
            cursor.execute("RESET ALL")
            cursor.execute("ANALYZE app_item")
            cursor.execute("SET enable_seqscan = off")

    assert as_json("t.backfill")["plan"]["warnings"] == []

    if vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("RESET ALL")


def test_what_else_sweeps_the_table_is_told() -> None:
    make_items(2)
    other = declare(None, Item, name="t.other")
    declare(None, Item)
    started = other.enqueue()
    Ledger.objects.create(
        run_id=started.run_id, name="t.other", table="app_item", batch=1, created_at="2026-01-01T00:00Z",
        updated_at="2026-01-01T00:00Z",
    )  # fmt: skip

    assert "t.other: live over the same table; it waits for them" in run("t.backfill")

    run_due()
    assert as_json("t.backfill")["plan"]["beside"] == []


def test_the_plan_is_made_for_the_tenant(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "TENANT_CONTEXT": f"{__name__}.scoping"}
    seen.clear()
    asked: list[str | None] = []

    def source() -> Any:
        asked.append(current_tenant())
        return Item.objects.all()

    declare(None, Item, tenant=lambda: "acme", source=source)

    run("t.backfill")

    assert set(asked) == {"acme"}
    assert set(seen) == {"acme"}
    assert current_tenant() is None


def test_an_unknown_name_is_told_with_the_nearest_one_whose_fix_runs() -> None:
    declare(None, Item, name="blog.rewrite_slugs")

    _, told = refused("blog.rewrite_slug")

    assert told.startswith("X_BACKFILL_UNKNOWN")
    assert "did you mean 'blog.rewrite_slugs'?" in told
    with pytest.raises(BackfillUnknown) as raised:
        find_backfill("blog.rewrite_slug")
    assert "a dry run" in run(*typed(raised.value.fix))
    error = as_json("quite-another", status=1)["error"]
    assert error["code"] == "X_BACKFILL_UNKNOWN"
    assert typed(error["fix"]) == ("--list",)


def test_a_job_is_no_backfill() -> None:
    from tests.working import declare as declare_job

    declare_job(lambda run, n: None)

    assert "is a job and no backfill" in refused("t.job")[1]


def test_a_former_name_finds_its_backfill() -> None:
    declare(None, Item, name="t.new", aliases=["t.old"])

    assert run("t.old").startswith("t.new  a dry run")


def test_write_queues_a_pass_for_a_worker_and_runs_nothing_itself() -> None:
    make_items(3)
    declare(None, Item)

    told = run("t.backfill", "--write")

    (job,) = Job.objects.all()
    assert f"started: job {job.id}" in told
    assert (job.state, handled(Item)) == ("ready", {0: 3})
    assert job.enqueued_by.startswith("manage.py backfill (")
    run_due()
    assert handled(Item) == {1: 3}
    assert Ledger.objects.get().requested_by == job.enqueued_by


def test_a_pass_that_completed_is_not_swept_again_unless_the_fix_is_run() -> None:
    make_items(3)
    sweep(declare(None, Item))

    told, why = refused("t.backfill")
    assert "a dry run" in told
    assert "To start it" not in told
    assert why.startswith("X_BACKFILL_APPLIED")
    error = as_json("t.backfill", "--write", status=1)["error"]

    assert error["code"] == "X_BACKFILL_APPLIED"
    assert written() == (1, 0)
    run(*typed(error["fix"]))
    run_due()
    assert handled(Item) == {2: 3}


def test_a_live_pass_is_not_started_twice() -> None:
    declare(None, Item)
    run("t.backfill", "--write")

    assert refused("t.backfill", "--write")[1].startswith("X_BACKFILL_RUNNING")
    assert refused("t.backfill", "--write", "--force")[1].startswith("X_BACKFILL_RUNNING")
    told = refused("t.backfill", "--write", "--wait")[1]
    assert told.startswith("X_BACKFILL_RUNNING")
    assert "\n  fix: python manage.py backfill t.backfill --wait\n" in told
    assert written() == (1, 0)


def test_a_declaration_that_has_changed_is_warned_of() -> None:
    make_items(3)
    done = sweep(declare(None, Item))
    Ledger.objects.filter(pk=done.run_id).update(checksum="0" * 64)

    assert "warning: a pass of backfill 't.backfill' completed" in refused("t.backfill")[0]
    assert "warning: " in run("t.backfill", "--write", "--force")


def test_a_pass_that_would_follow_one_that_ended_half_way_is_warned_of() -> None:
    make_items(10)

    def failing_later(run: Any, rows: list[Item]) -> None:
        if rows[0].number:
            raise ValueError("never")

    half = sweep(declare(failing_later, Item, batch=5, retry=Retry(attempts=1)))
    first = f"the last pass of backfill 't.backfill' failed after 5 rows (run {half.run_id}), and another begins"
    assert f"warning: {first} with the first row; python manage.py jobs retry {half.run_id} lets" in run("t.backfill")

    cancelled = declare(None, Item).enqueue()
    ledger_row("t.backfill", run_id=cancelled.run_id, processed=7, day=3_650)  # it began last
    assert "the last pass" not in refused("t.backfill")[0]  # one is live
    get_driver().cancel([cancelled.id])
    assert f"was cancelled after 7 rows (run {cancelled.run_id})" in run("t.backfill", "--write")

    Ledger.objects.filter(pk=cancelled.run_id).delete()
    run_due()
    assert "the last pass" not in refused("t.backfill")[0]  # it completed


def test_a_source_that_raises_is_a_refusal_that_names_the_backfill() -> None:
    def source() -> Any:
        raise LookupError("no such thing")

    declare(None, Item, source=source)

    error = as_json("t.backfill", status=1)["error"]

    assert error["code"] == "X_BACKFILL_SOURCE_INVALID"
    assert "'t.backfill' raised LookupError: no such thing" in error["cause"]


@pytest.mark.parametrize(
    "arguments", [(), ("--write",), ("--write", "--wait"), ("--wait",), ("--try", "1")], ids=" ".join
)
def test_a_tenant_that_cannot_be_told_is_a_refusal_that_names_the_backfill(arguments: tuple[str, ...]) -> None:
    make_items(1)
    declare(None, Item, tenant=lambda: {}["acme"])

    error = as_json("t.backfill", *arguments, status=1)["error"]

    assert error["code"] == "X_JOB_DECLARATION_INVALID"
    assert error["cause"] == "the tenant of backfill 't.backfill' cannot be told: it raised KeyError: 'acme'"


def test_rows_that_cannot_be_read_are_a_refusal_that_names_the_backfill(vendor: str) -> None:
    make_items(1)
    declare(None, Item, source=lambda: Item.objects.extra(where=["no_such_column = 1"]))

    error = as_json("t.backfill", status=1)["error"]

    assert error["code"] == "X_BACKFILL_SOURCE_INVALID"
    assert "no_such_column" in error["cause"]
    assert "\n" not in error["cause"]


def test_a_plan_counts_nothing_before_its_migration_is_applied() -> None:
    make_items(1)
    declare(None, Item, requires=("contenttypes", "0001_initial"))
    assert as_json("t.backfill")["plan"]["reach"]["rows"] == 1
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("contenttypes", "0001_initial")
    try:
        told, why = refused("t.backfill")
        plan = as_json("t.backfill", status=1)["plan"]
    finally:
        recorder.record_applied("contenttypes", "0001_initial")

    assert "not counted before the migration is applied" in told
    assert why.startswith("X_BACKFILL_MIGRATION_PENDING")
    assert (plan["reach"], plan["refused"]["code"]) == (None, "X_BACKFILL_MIGRATION_PENDING")


@pytest.fixture
def several() -> None:
    """Backfills of which each stands otherwise."""
    make_items(3)
    declare(None, Item, name="a.may-start", exclusive=False)
    sweep(declare(None, Item, name="b.completed"))
    declare(None, Item, name="c.running", exclusive=False).enqueue()
    declare(None, Item, name="d.elsewhere", environments=["production"])
    declare(None, Item, name="f.may-start", exclusive=False)


def in_staging(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "ENVIRONMENT": "staging"}


def test_all_is_a_dry_run_of_those_that_may_start(several: None, settings: Any) -> None:
    in_staging(settings)
    before = written()

    told = run("--all")

    assert [line.split()[0] for line in told.splitlines() if "would start" in line] == ["a.may-start", "f.may-start"]
    assert "b.completed  not started: X_BACKFILL_APPLIED" in told
    assert "c.running  not started: X_BACKFILL_RUNNING" in told
    assert "d.elsewhere  not started: X_BACKFILL_ENVIRONMENT" in told
    assert "nothing was started" in told
    assert written() == before
    plans = as_json("--all")["plans"]
    assert {one["name"]: one["may_start"] for one in plans} == {
        "a.may-start": True, "b.completed": False, "c.running": False, "d.elsewhere": False, "f.may-start": True,
    }  # fmt: skip


def test_all_with_write_starts_each_and_goes_on_past_a_refusal(several: None, settings: Any) -> None:
    in_staging(settings)

    def broken() -> Any:
        raise LookupError("no such thing")

    declare(None, Item, name="e.broken", source=broken)

    told, why = refused("--all", "--write")

    assert "a.may-start  started" in told
    assert "e.broken  not started: X_BACKFILL_SOURCE_INVALID" in told
    assert "f.may-start  started" in told
    # That there is nothing to do is no failure.
    assert why.startswith("X_BACKFILL_SOURCE_INVALID")
    assert "APPLIED" not in why
    assert sorted(Job.objects.filter(state="ready").values_list("name", flat=True)) == [
        "a.may-start", "c.running", "f.may-start",
    ]  # fmt: skip


def test_whatever_the_code_of_one_raises_all_goes_on_with_the_others(several: None, settings: Any) -> None:
    in_staging(settings)
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "TENANT_CONTEXT": f"{__name__}.unscoped"}
    declare(None, Item, name="a.broken", tenant=lambda: "acme")
    declare(None, Item, name="b.broken", tenant=lambda: {}["acme"])

    for arguments, done in ((("--all",), "would start"), (("--all", "--write"), "  started: job")):
        told, why = refused(*arguments)
        assert "a.broken  not started: X_JOB_DECLARATION_INVALID" in told
        assert "b.broken  not started: X_JOB_DECLARATION_INVALID" in told
        assert [line.split()[0] for line in told.splitlines() if done in line] == ["a.may-start", "f.may-start"]
        assert "'a.broken' is declared with raised LookupError: no tenant acme" in why
        assert "\n  fix: python manage.py backfill a.broken  # shows where" in why
        assert "the tenant of backfill 'b.broken' cannot be told: it raised KeyError: 'acme'" in why

    found = as_json("--all", status=1)["plans"]
    assert {one["name"] for one in found if "code" in (one["refused"] or {}) and "broken" in one["name"]} == {
        "a.broken",
        "b.broken",
    }


def test_all_with_write_succeeds_where_nothing_was_left_to_start(several: None, settings: Any) -> None:
    in_staging(settings)

    found = as_json("--all", "--write")["backfills"]

    assert [one["name"] for one in found if one["id"]] == ["a.may-start", "f.may-start"]
    assert [one["refused"]["code"] for one in found if one["refused"]] == [
        "X_BACKFILL_APPLIED", "X_BACKFILL_RUNNING", "X_BACKFILL_ENVIRONMENT",
    ]  # fmt: skip


def test_all_fails_where_nobody_says_which_environment_this_is(several: None) -> None:
    assert refused("--all")[1].startswith("X_BACKFILL_ENVIRONMENT")


def test_without_backfills_there_is_nothing_to_do() -> None:
    assert "no installed app declares a backfill" in run("--all", "--write")


def test_the_exit_status_and_the_json_hold_from_the_shell(processes: Processes) -> None:
    for arguments, status, code in (
        (["--list", "--pending", "--json"], 2, "X_USAGE"),
        (["--all", "--limit", "many", "--json"], 2, "X_USAGE"),
        (["no.such", "--json"], 1, "X_BACKFILL_UNKNOWN"),
    ):
        child = processes.manage("backfill", *arguments, env={"TEST_LOG_LEVEL": "ERROR"})
        assert child.wait() == status, child.output()
        found = json.loads(child.output())
        assert (found["version"], found["error"]["code"]) == (1, code)


def test_nothing_of_a_name_reaches_a_terminal_as_it_is() -> None:
    told = refused("\x1b[2Jred\u202e")[1]

    assert "\x1b" not in told
    assert "\u202e" not in told


@pytest.mark.parametrize("mode", ["required", "direct", "auto"])
def test_a_person_starts_a_pass_whatever_the_mode_of_the_outbox(mode: str, settings: Any) -> None:
    make_items(3)
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "OUTBOX": {"MODE": mode}}
    declare(None, Item)

    started = as_json("t.backfill", "--write")["started"]

    queued = Job.objects.get(pk=started["id"])
    assert queued.enqueued_by.startswith("manage.py backfill")
    assert as_json("t.backfill", "--write", status=1)["error"]["code"] == "X_BACKFILL_RUNNING"
    run_due()
    assert run("--pending") == "nothing that is declared is unswept\n"


def test_of_two_who_start_a_pass_at_once_one_is_told_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = declare(None, Item)
    judged = type(backfill).judged

    def then_another(self: Any, *, forced: bool = False) -> Any:
        verdict = judged(self, forced=forced)
        monkeypatch.undo()
        start(backfill, forced=False, by="ann")
        return verdict

    monkeypatch.setattr(type(backfill), "judged", then_another)

    assert as_json("t.backfill", "--write", status=1)["error"]["code"] == "X_BACKFILL_RUNNING"
    assert [one.enqueued_by for one in Job.objects.all()] == ["ann"]


def test_in_a_transaction_a_pass_is_queued_with_it_and_the_first_statement_takes_its_turn(vendor: str) -> None:
    backfill = declare(None, Item)
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        queued, _ = start(backfill, forced=False, by="ann")
        assert written() == (1, 0)
        transaction.set_rollback(True)

    assert (queued.staged, written()) == (False, (0, 0))
    first = next(one["sql"] for one in queries if not one["sql"].startswith(("BEGIN", "SAVEPOINT")))
    # On SQLite one that has read may not write once another has written.
    assert ("UPDATE" in first) is (vendor == "sqlite")
