"""Several databases: which outbox work is staged on, who relays it, and which tables are where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import ConnectionHandler
from django.test.utils import override_settings

from tests.app.models import Organization
from tests.outbox.support import jobs, note
from tests.outbox.two import ROUTERS, environment
from tests.processes import Processes, wait_for
from tests.working import working
from ultimat3_jobs import NO_TENANT, Job, Run, job, options, registry
from ultimat3_jobs.aliases import outbox_alias, outbox_aliases, queue_alias
from ultimat3_jobs.errors import DeclarationInvalid, OutboxNeedsTransaction, SettingsInvalid
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.outbox.relay import relay_all, relay_once
from ultimat3_jobs.outbox.repair import retry_set_aside
from ultimat3_jobs.records import RetryVerdict
from ultimat3_jobs.routers import QueueRouter
from ultimat3_jobs.sql import statement


@pytest.fixture
def order(two_outboxes: str) -> Iterator[Job[..., None]]:
    """A job that is staged in the second database."""
    with registry.isolated():

        @job(name="t.order", idempotency_key="{label}", tenant=NO_TENANT, database=two_outboxes)
        def body(run: Run, label: str) -> None: ...

        yield body


def staged(alias: str) -> list[str]:
    """Return the labels that are staged in an outbox."""
    return [data["label"] for data in OutboxEntry.objects.using(alias).order_by("id").values_list("input", flat=True)]


def test_work_is_staged_where_the_job_or_the_enqueue_says_else_where_the_router_says(order: Job[..., None]) -> None:
    with transaction.atomic(), transaction.atomic(using="second"):
        assert order.enqueue(label="declared").staged
        assert order.call(label="as a value").enqueue().staged
        order.enqueue_many([{"label": "one of many"}])
        assert note.enqueue(label="routed").staged
        assert note.using(database="second").enqueue(label="asked for").staged
        assert order.using(database="default").enqueue(label="asked for instead").staged

    assert staged("second") == ["declared", "as a value", "one of many", "asked for"]
    assert staged("default") == ["routed", "asked for instead"]
    assert relay_all() == 6
    assert len(jobs()) == 6
    assert not JobRow.objects.using("second").exists()


def test_the_transaction_that_counts_is_that_of_the_named_database(order: Job[..., None]) -> None:
    with transaction.atomic():
        assert not order.enqueue(label="other transaction").staged
        transaction.set_rollback(True)
    with transaction.atomic(using="second"):
        assert not note.enqueue(label="other transaction").staged
        assert order.enqueue(label="rolled back").staged
        transaction.set_rollback(True, using="second")
    assert relay_all() == 0


def test_required_names_the_database_whose_transaction_is_missing(order: Job[..., None], settings: Any) -> None:
    outbox = {"MODE": "required", "DATABASES": ["default", "second"]}
    settings.ULTIMAT3_JOBS = {"OUTBOX": outbox, "QUEUE_DATABASE": "default"}
    with transaction.atomic(), pytest.raises(OutboxNeedsTransaction) as raised:
        order.enqueue(label="a")
    assert raised.value.fix.startswith("with transaction.atomic(using='second'):")


@pytest.mark.usefixtures("outbox")
@pytest.mark.parametrize("database", ["nowhere", "", 5])
def test_an_alias_that_does_not_exist_is_refused(database: Any) -> None:
    with registry.isolated(), pytest.raises(DeclarationInvalid, match="no alias of DATABASES"):

        @job(name="t.lost", idempotency_key="k", tenant=NO_TENANT, database=database)
        def body(run: Run) -> None: ...

    with pytest.raises(DeclarationInvalid, match="no alias of DATABASES"):
        note.using(database=database)


@pytest.mark.usefixtures("outbox")
def test_an_alias_that_is_mistyped_is_mended_into_the_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "connections", ConnectionHandler({"default": {}, "second": {}}))

    with pytest.raises(DeclarationInvalid) as raised:
        note.using(database="secnd")

    assert raised.value.fix == "database='second'"


def test_an_alias_without_an_outbox_is_refused(second: str) -> None:
    with transaction.atomic(using=second), pytest.raises(SettingsInvalid, match="no relay serves") as raised:
        note.using(database=second).enqueue(label="a")
    assert raised.value.fix.startswith("ULTIMAT3_JOBS[\"OUTBOX\"][\"DATABASES\"] = ['default', 'second']")
    assert staged(second) == []


def test_an_outbox_that_is_down_does_not_hold_up_the_others(order: Job[..., None]) -> None:
    with transaction.atomic(), transaction.atomic(using="second"):
        note.enqueue(label="a")
        order.enqueue(label="b")

    def down(*_: Any) -> Any:
        raise OperationalError("gone")

    for broken, left in (("default", ["b"]), ("second", ["a", "b"])):
        with connections[broken].execute_wrapper(lambda execute, sql, *rest, alias=broken: (
            down() if sql in _claiming(alias) else execute(sql, *rest)
        )), pytest.raises(OperationalError):  # fmt: skip
            relay_all()
        assert sorted(jobs().values()) == left
        if broken == "default":
            assert relay_once("second") == 0


def _claiming(alias: str) -> set[str]:
    return {statement(connections[alias].vendor, name) for name in ("pending", "claim_staged")}


def test_a_worker_relays_every_outbox(order: Job[..., None]) -> None:
    with transaction.atomic(), transaction.atomic(using="second"):
        note.enqueue(label="a")
        order.enqueue(label="b")
    with working(concurrency=1):
        wait_for(lambda: JobRow.objects.filter(state="done").count() == 2, "both are done")


def test_the_command_relays_every_outbox(order: Job[..., None], processes: Processes) -> None:
    with transaction.atomic(), transaction.atomic(using="second"):
        note.enqueue(label="a")
        order.enqueue(label="b")
    setting = {"QUEUE_DATABASE": "default", "OUTBOX": {"DATABASES": ["default", "second"]}}
    relay = processes.manage("jobs_relay", jobs=setting, env=environment())
    wait_for(lambda: len(jobs()) == 2, "both are published")
    relay.kill(15)
    assert relay.wait() == 0


def test_what_was_set_aside_is_found_in_its_outbox(order: Job[..., None]) -> None:
    with transaction.atomic(), transaction.atomic(using="second"):
        here, there = note.enqueue(label="a"), order.enqueue(label="b")
        waits = order.enqueue(label="waits")
    for alias, one in (("default", here), ("second", there)):
        OutboxEntry.objects.using(alias).filter(id=one.id).update(outcome="set_aside", attempts=5, error="why")

    verdicts = retry_set_aside([there.id, uuid7(), here.id, waits.id, here.id], by="me", reason="mended")
    R = RetryVerdict  # noqa: N806
    assert verdicts == [R.RETRIED, R.NOT_FOUND, R.RETRIED, R.NOT_RETRYABLE, R.NOT_RETRYABLE]
    assert retry_set_aside([here.id]) == [R.NOT_RETRYABLE]
    row = OutboxEntry.objects.using("second").get(id=there.id)
    assert (row.outcome, row.attempts, row.error) == (None, 0, "")
    assert relay_all() == 3


@pytest.mark.usefixtures("outbox")
def test_a_reused_key_succeeds_once_its_holder_has_ended() -> None:
    with transaction.atomic():
        holder = note.enqueue(label="k")
    relay_all()
    with transaction.atomic():
        first = note.using(priority=1).enqueue(label="other")
    OutboxEntry.objects.filter(id=first.id).update(idempotency_key="note:k")
    assert relay_all() == 1
    assert OutboxEntry.objects.get(id=first.id).outcome == "set_aside"

    for ended, outcome in ((False, "set_aside"), (True, "published")):
        if ended:
            JobRow.objects.filter(id=holder.id).update(state="done")
        assert retry_set_aside([first.id]) == [RetryVerdict.RETRIED]
        assert relay_all() == 1
        assert OutboxEntry.objects.get(id=first.id).outcome == outcome
    assert OutboxEntry.objects.get(id=first.id).job_id == first.id


def test_the_router_answers_for_this_app_alone(apart: str) -> None:
    router = QueueRouter()
    assert (queue_alias(), outbox_alias(), outbox_aliases()) == ("second", "default", ("default",))
    assert router.db_for_read(JobRow) == router.db_for_write(JobRow) == "second"
    assert router.db_for_read(OutboxEntry) == "default"
    assert router.db_for_write(Organization) is None
    assert router.db_for_read(Organization) is None
    assert router.allow_relation(JobRow(), JobRow()) is True
    assert router.allow_relation(JobRow(), Organization()) is None
    for alias in ("default", "second"):
        assert router.allow_migrate(alias, "app", "organization") is None
    assert [router.allow_migrate(alias, "ultimat3_jobs", "job") for alias in ("default", "second")] == [False, True]
    assert [router.allow_migrate(alias, "ultimat3_jobs", "outboxentry") for alias in ("default", "second")] == [
        True,
        False,
    ]
    assert router.allow_migrate("second", "ultimat3_jobs") is True


def test_rows_of_an_outbox_are_written_to_where_they_were_read(two_outboxes: str, order: Job[..., None]) -> None:
    with transaction.atomic(using=two_outboxes):
        order.enqueue(label="a")
    entry = OutboxEntry.objects.using(two_outboxes).get()
    entry.error = "seen"
    entry.save()
    assert OutboxEntry.objects.using(two_outboxes).get().error == "seen"


@pytest.mark.usefixtures("outbox")
@override_settings(DATABASE_ROUTERS=ROUTERS, ULTIMAT3_JOBS={})
def test_a_router_without_settings_has_no_opinion() -> None:
    router = QueueRouter()
    assert router.db_for_write(JobRow) is router.db_for_write(OutboxEntry) is None
    assert router.allow_migrate("default", "ultimat3_jobs", "job") is None
    assert router.allow_migrate("default", "ultimat3_jobs", "outboxentry") is None
    assert (queue_alias(), outbox_alias()) == ("default", "default")


def test_a_queue_database_that_no_router_answers_is_refused(second: str, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {"QUEUE_DATABASE": second}
    with pytest.raises(SettingsInvalid, match="the routers put the queue in 'default'") as raised:
        note.enqueue(label="a")
    assert "QueueRouter" in raised.value.fix


@pytest.mark.parametrize(
    ("queue", "outboxes", "expected"),
    [("elsewhere", ["default"], set()), ("elsewhere", ["second"], {"x_outbox"}), ("second", ["default"], {"x_jobs"})],
)
def test_migrating_makes_the_tables_that_belong_there(
    second: str, settings: Any, queue: str, outboxes: list[str], expected: set[str]
) -> None:
    """On a schema of its own, so that the tests' tables stay."""
    settings.DATABASE_ROUTERS = ROUTERS
    connections.databases["elsewhere"] = connections.databases[second]
    try:
        settings.ULTIMAT3_JOBS = {"QUEUE_DATABASE": queue, "OUTBOX": {"DATABASES": outboxes}}
        executor = MigrationExecutor(connections[second])
        targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "ultimat3_jobs"]
        plan = [executor.loader.graph.nodes[node] for node in executor.loader.graph.forwards_plan(targets[0])]
        made: set[str] = set()
        with connections[second].schema_editor(collect_sql=True, atomic=False) as editor:
            state = executor.loader.project_state(())
            for migration in plan:
                if migration.app_label == "ultimat3_jobs":
                    state = migration.apply(state, editor, collect_sql=True)
            made = {line.split('"')[1] for line in editor.collected_sql if line.startswith("CREATE TABLE")}
    finally:
        del connections.databases["elsewhere"]
    assert {table for table in made if table in {"x_jobs", "x_outbox"}} == expected
    assert connection.alias == "default"
