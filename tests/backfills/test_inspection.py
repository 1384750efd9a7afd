"""What is told of backfills and their passes, once for the command, the admin and JSON."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from tests.app.models import Item
from tests.backfills.ledger_rows import ledger_row
from tests.backfills.sweeping import declare, ledger, sweep
from tests.inspection.rows import LATER, add_job, add_step, add_worker
from tests.test_admin import page
from tests.working import row, run_due
from ultimat3_jobs.backfills.declared import declared_backfills
from ultimat3_jobs.backfills.passes import completed_pass, named, read_passes
from ultimat3_jobs.backfills.pending import PassStatus, Status
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.inspection import backfill_lists, backfill_texts, report, terminal
from ultimat3_jobs.inspection.backfills import list_backfills, list_passes, pending
from ultimat3_jobs.inspection.look import Look
from ultimat3_jobs.inspection.passes import pass_of, tell_pass
from ultimat3_jobs.inspection.step_texts import why_suspended
from ultimat3_jobs.inspection.story import tell
from ultimat3_jobs.models import Backfill, Job

pytestmark = pytest.mark.usefixtures("queue")

PASSES = "/admin/ultimat3_jobs/backfill/"
START = "python manage.py jobs_worker --queues bulk"
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make_items(count: int) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(count))


def a_pass(
    state: str | None, name: str = "t.backfill", *, job: dict[str, Any] | None = None, **values: Any
) -> Backfill:
    """Insert the row of a pass and, where it has a state, its job."""
    run_id = values.pop("run_id", None) or uuid7()
    if state is not None:
        times = {"run_at": BEGAN, "created_at": BEGAN, "updated_at": BEGAN}
        columns = {"id": run_id, "run_id": run_id, "name": name, "idempotency_key": "pass", "tenant_id": None}
        add_job(state, **columns | times | (job or {}))
    return ledger_row(name, run_id=run_id, **values)


def told(run_id: UUID) -> Any:
    found = tell_pass(run_id)
    assert found is not None
    return found


def shown(job_id: UUID) -> list[str]:
    """Return the lines of `jobs show`."""
    found = tell(job_id)
    assert found is not None
    return [line.strip() for line in terminal.story(found).splitlines()]


def test_a_pass_that_has_completed_is_told_with_what_it_came_to() -> None:
    make_items(30)
    one = told(sweep(declare(None, Item, batch=10)).run_id)

    assert (one.status, one.begun, one.percent, one.row.processed) == (PassStatus.COMPLETED, True, 100, 30)
    assert (one.waits_for, one.seconds_left, one.is_live) == ("", None, False)
    assert one.rows_per_second > 0
    assert [command for command, _ in backfill_texts.commands(one)] == [
        "python manage.py backfill t.backfill --write --force"
    ]
    json.dumps(report.swept_pass(one))


def test_a_pass_that_is_queued_is_told_before_the_ledger_has_it() -> None:
    started = declare(None, Item, batch=10, rate=3).enqueue(forced=True)
    add_worker()

    one = told(started.id)

    assert (one.status, one.begun, one.row.forced, one.row.rate) == (PassStatus.RUNNING, False, True, 3)
    assert one.waits_for == "a worker that serves the queue 'default'"
    assert one.percent is None
    assert [each.run_id for each in list_passes().passes] == [started.id]
    (found,) = list_backfills("t.backfill")
    assert (found.name, found.status, found.keeps_back) == ("t.backfill", Status.RUNNING, False)
    assert [each.run_id for each in found.passes] == [started.id]
    assert not Backfill.objects.exists()
    json.dumps(backfill_lists.backfills_report([found]))


@pytest.mark.parametrize(
    ("processed", "total", "outcome", "percent"),
    [
        (0, None, "", None),
        (0, 0, "", 0),
        (499, 1_000, "", 49),
        (999, 1_000, "", 99),
        (1_000, 1_000, "", 99),
        (1_200, 1_000, "", 99),
        (3, 3, "completed", 100),
        (0, 0, "completed", 100),
    ],
)
def test_no_pass_is_beyond_its_whole_and_none_is_at_it_before_its_end(
    processed: int, total: int | None, outcome: str, percent: int | None
) -> None:
    row = a_pass("running", processed=processed, total=total, outcome=outcome)

    assert told(row.run_id).percent == percent


@pytest.mark.parametrize(
    ("state", "outcome", "paused", "status"),
    [
        ("ready", "", False, PassStatus.RUNNING),
        ("running", "", True, PassStatus.PAUSED),
        ("suspended", "", True, PassStatus.PAUSED),
        ("dead", "", False, PassStatus.FAILED),
        ("dead", "", True, PassStatus.FAILED),
        ("cancelled", "", True, PassStatus.CANCELLED),
        ("done", "", False, PassStatus.SKIPPED),
        ("done", "completed", True, PassStatus.COMPLETED),
        (None, "", False, PassStatus.FAILED),
        (None, "completed", False, PassStatus.COMPLETED),
    ],
)
def test_the_status_of_a_pass_is_what_the_ledger_and_its_job_say(
    state: str | None, outcome: str, paused: bool, status: PassStatus
) -> None:
    row = a_pass(state, outcome=outcome, paused_at=BEGAN if paused else None, paused_by="ann" if paused else "")

    one = told(row.run_id)

    assert one.status is status
    assert backfill_texts.status_text(one)
    assert bool(backfill_texts.paused_text(one)) is (status is PassStatus.PAUSED)
    assert all(command.startswith("python manage.py ") for command, _ in backfill_texts.commands(one))


def test_the_speed_is_that_of_the_present_run_and_pauses_are_not_in_it() -> None:
    make_items(40)
    seen: list[int] = []

    def handler(run: Any, rows: list[Item]) -> None:
        seen.append(Backfill.objects.get(pk=run.run_id).began_with)
        if len(seen) == 3:
            raise RuntimeError("stops this run")

    done = sweep(declare(handler, Item, batch=10))
    assert (done.state, ledger(done).began_with, ledger(done).processed) == ("delayed", 0, 20)
    Job.objects.filter(pk=done.pk).update(run_at=done.created_at)
    run_due()

    # The first page of the second run was read before it landed.
    assert seen == [0, 0, 0, 0, 20]
    assert (row(done.pk).state, ledger(done).began_with, ledger(done).processed) == ("done", 20, 40)


def test_a_speed_is_told_of_what_has_landed_in_the_run() -> None:
    at = {"started_at": BEGAN}
    landed = {"processed": 900, "began_with": 300, "total": 1_500, "updated_at": BEGAN + timedelta(seconds=60)}
    parked = told(a_pass("suspended", "t.parked", job=at, **landed).run_id)
    fresh = told(a_pass("running", "t.fresh", job={"started_at": BEGAN + timedelta(seconds=90)}, **landed).run_id)
    running = told(a_pass("running", job=at, **landed).run_id)

    assert (parked.rows_per_second, parked.seconds_left) == (10, None)
    assert backfill_texts.speed_text(parked) == "10 rows a second"
    assert (fresh.rows_per_second, fresh.seconds_left) == (None, None)
    assert (backfill_texts.speed_text(fresh), backfill_texts.left_text(fresh)) == ("-", "-")
    # One that hangs gets slower while it does.
    seconds = (running.now - BEGAN).total_seconds()
    assert running.rows_per_second == pytest.approx(600 / seconds)
    assert running.seconds_left == pytest.approx(seconds)


def test_a_job_that_sweeps_tells_each_command_once_and_by_what_it_does_to_the_pass() -> None:
    declare(None, Item)
    row = a_pass("dead")

    (retry,) = [line for line in shown(row.run_id) if line.startswith(f"python manage.py jobs retry {row.run_id}  #")]

    assert retry.endswith("# lets it go on from its last page")
    assert "python manage.py backfill t.backfill --write  # starts another pass, from the first row" in shown(
        row.run_id
    )


def test_what_a_pass_waits_for_is_what_its_job_says() -> None:
    parked = a_pass("suspended", job={"park_reason": "its window opens at 22:00", "run_at": LATER})
    failed = a_pass("delayed", "t.failed", job={"run_at": LATER})

    assert told(parked.run_id).waits_for == "its window opens at 22:00"
    assert told(failed.run_id).waits_for == "its next attempt, due at 2124-02-05 12:00:00 UTC"


@pytest.mark.parametrize("state", ["ready", "delayed", "suspended"])
def test_a_pass_whose_moment_has_come_waits_for_a_worker_whatever_it_waited_for(state: str) -> None:
    one = a_pass(state, job={"park_reason": "its worker was told to stop", "queue": "bulk"})
    worker = add_worker("bulk")
    for serves, words in (
        (True, "a worker that serves the queue 'bulk'"),
        (False, f"a worker, and none that serves the queue 'bulk' is alive ({START} starts one)"),
    ):
        worker.data = {"only": ["bulk" if serves else "mail"]}
        worker.save()

        assert (told(one.run_id).is_due, told(one.run_id).waits_for) == (True, words)
        found = tell(one.run_id)
        assert f"waits for {words}" in found.why
        assert words in backfill_texts.status_text(told(one.run_id))
        printed = [*shown(one.run_id), backfill_lists.backfills(list_backfills())]
        assert "told to stop" not in str(printed)


def test_a_dead_letter_that_sweeps_offers_no_retry_from_a_step(admin_client: Client) -> None:
    declare(None, Item)
    sweeps = a_pass("dead")
    other = add_job("dead")
    for run_id in (sweeps.run_id, other.run_id):
        add_step(Job.objects.get(pk=run_id), "sweep", 1)

    for run_id, offered in ((sweeps.run_id, False), (other.run_id, True)):
        found = tell(run_id)
        assert any("--from-step" in command for command, _ in found.commands) is offered
        assert any("--from-step" in line for line in shown(run_id)) is offered
        text = page(admin_client, f"/admin/ultimat3_jobs/job/{run_id}/change/")
        assert ("From here" in text, '<th scope="row">sweep' in text) == (offered, True)


FAILS = {"attempt": 5, "max_attempts": 10, "error_class": "ValueError", "last_error": "ValueError: declined"}


@pytest.mark.parametrize(
    ("state", "job", "words"),
    [
        ("delayed", {"run_at": LATER}, "{failed}; its next attempt is due at 2124-02-05 12:00:00 UTC"),
        ("delayed", {}, "{failed}; its next attempt is due since 2026-01-01 12:00:00 UTC, and waits for {worker}"),
        (
            "suspended",
            {"run_at": LATER, "park_reason": "its window is 22:00-06:00"},
            "waits for: its window is 22:00-06:00; it looks again at 2124-02-05 12:00:00 UTC; {failed}",
        ),
        ("ready", {}, "waits for: {worker}; {failed}"),
        ("running", {"attempt": 6}, "{failed}; another attempt goes on"),
    ],
)
def test_a_live_pass_that_has_failed_says_so_wherever_it_is_told(
    state: str, job: dict[str, Any], words: str, admin_client: Client
) -> None:
    one = a_pass(state, job=FAILS | job)
    add_worker()
    failed = "attempt 5 of 10 failed: ValueError: declined"
    words = words.format(failed=failed, worker="a worker that serves the queue 'default'")

    assert f"        {words}\n" in backfill_lists.backfills(list_backfills()) + "\n"
    assert escape(words) in page(admin_client, PASSES)
    assert failed in backfill_texts.status_text(told(one.run_id)).replace("Attempt", "attempt")
    assert failed[1:] in page(admin_client, f"{PASSES}{one.run_id}/change/")


@pytest.mark.parametrize("columns", [{"attempt": 0}, {"attempt": 1, "error_class": "", "last_error": ""}])
def test_a_pass_of_which_no_attempt_has_failed_says_so_of_none(columns: dict[str, Any]) -> None:
    one = a_pass("suspended", job=FAILS | {"run_at": LATER, "park_reason": "its window"} | columns)

    assert backfill_texts.why_text(told(one.run_id)) == (
        "waits for: its window; it looks again at 2124-02-05 12:00:00 UTC"
    )


def test_an_attempt_that_is_the_first_has_none_before_it() -> None:
    one = a_pass("running", job=FAILS | {"attempt": 1})

    assert backfill_texts.why_text(told(one.run_id)) == ""
    assert backfill_texts.status_text(told(one.run_id)) == "A worker sweeps it."


@pytest.mark.parametrize("state", ["ready", "suspended"])
def test_a_pass_that_is_paused_and_due_says_that_it_is_paused(state: str) -> None:
    one = a_pass(state, job={"park_reason": "paused by ann"}, paused_at=BEGAN, paused_by="ann")
    add_worker()

    assert tell(one.run_id).why == (
        "It is paused at 2026-01-01 12:00:00 UTC by ann: no reason was given. Once it is resumed, it waits for a "
        "worker that serves the queue 'default'."
    )


def test_a_list_of_passes_that_are_due_looks_for_workers_once() -> None:
    counts = []
    for number in (1, 5):
        for each in range(number):
            a_pass("suspended", f"t.{number}-{each}", job={"queue": f"q{each}"})
        with CaptureQueriesContext(connection) as queries:
            list_passes()
        counts.append(sum("x_job_leases" in one["sql"] for one in queries))

    assert counts == [1, 1]


def test_a_pass_whose_worker_went_silent_waits_for_another() -> None:
    one = told(a_pass("running", job={"visible_at": BEGAN, "claimed_by": "w"}).run_id)

    assert one.waits_for == (
        "a worker, and none that serves the queue 'default' is alive (python manage.py jobs_worker --queues default "
        "starts one); the one that swept it went silent"
    )
    assert "A worker sweeps it" not in backfill_texts.status_text(one)


def test_a_failed_pass_is_told_with_its_error_and_goes_on_by_a_retry() -> None:
    row = a_pass("dead")

    one = told(row.run_id)

    assert backfill_texts.error_text(one) == "ValueError: declined"
    assert backfill_texts.status_text(one) == "It failed (attempts-exhausted): ValueError: declined"
    assert backfill_texts.commands(one)[0][0] == f"python manage.py jobs retry {row.run_id}"
    (listed,) = list_passes().passes
    assert backfill_texts.error_text(listed) == "ValueError: declined"


def test_of_what_no_code_declares_no_pass_is_offered() -> None:
    completed = a_pass("done", "t.gone", outcome="completed")
    failed = a_pass("dead", "t.gone")

    assert backfill_texts.commands(told(completed.run_id)) == []
    assert len(backfill_texts.commands(told(failed.run_id))) <= 1


def test_a_pass_that_is_suspended_is_looked_at_again_and_does_not_go_on_for_sure() -> None:
    declare(None, Item)
    paused = a_pass("suspended", job={"park_reason": "paused by ann", "run_at": LATER})
    assert paused.run_id is not None

    assert "It is looked at again at " in why_suspended(Job.objects.get(pk=paused.run_id), Look())


def test_a_declaration_that_has_changed_since_is_told_as_such() -> None:
    declare(None, Item)
    other = a_pass("done", outcome="completed", checksum="0" * 64)
    without = a_pass("done", outcome="completed")
    gone = a_pass("done", "t.gone", outcome="completed", checksum="0" * 64)

    assert told(other.run_id).checksum_changed is True
    assert told(without.run_id).checksum_changed is None
    assert told(gone.run_id).checksum_changed is None


@pytest.mark.parametrize("source", [lambda: 1 / 0, lambda: sys.exit(0)], ids=["error", "exit"])
def test_a_source_that_raises_does_not_keep_a_pass_from_being_told(source: Callable[[], Any]) -> None:
    declare(None, Item, source=source)

    assert told(a_pass("done", outcome="completed", checksum="0" * 64).run_id).checksum_changed is None


def test_passes_of_names_that_nobody_declares_any_more_are_told_too() -> None:
    declare(None, Item, name="t.now", aliases=["t.before"])
    before = a_pass("done", "t.before", outcome="completed")
    gone = a_pass("cancelled", "t.gone")

    # Others may have been declared by modules of tests.
    found = {one.name: one for one in list_backfills() if one.name.startswith("t.")}

    assert list(found) == ["t.now", "t.gone"]
    assert (found["t.now"].status, found["t.gone"].status) == (Status.COMPLETED, Status.CANCELLED)
    assert [one.run_id for one in found["t.now"].passes] == [before.run_id]
    assert [one.run_id for one in found["t.gone"].passes] == [gone.run_id]
    assert (found["t.gone"].definition, found["t.gone"].keeps_back) == (None, False)
    for name in ("t.now", "t.before"):
        assert [one.name for one in list_backfills(name)] == ["t.now"]
        assert [one.run_id for one in list_passes(name).passes] == [before.run_id]
    assert [one.name for one in list_backfills(status="cancelled")] == ["t.gone"]
    assert list_backfills("t.none") == []


def test_a_list_goes_on_page_by_page_the_newest_first() -> None:
    # The ids tell nothing: they are from the clocks of those who asked.
    rows = [
        a_pass("done", outcome="completed", run_id=run_id, day=day).run_id
        for day, run_id in zip((0, 1, 1, 2, 3, 4, 5), [uuid7(), *sorted(uuid7() for _ in range(6))], strict=True)
    ]
    rows.insert(0, a_pass("done", "t.other", outcome="completed", day=-1).run_id)
    rows.append(declare(None, Item).enqueue(forced=True).id)
    found: list[UUID] = []
    page = list_passes(limit=3)
    found += [one.run_id for one in page.passes]
    while page.before is not None:
        page = list_passes(limit=3, before=page.before)
        found += [one.run_id for one in page.passes]

    assert found == rows[::-1]


def test_a_list_asks_for_its_jobs_at_once() -> None:
    counts = []
    for number in range(3):
        for each in range(1 + 3 * number):
            declare(None, Item, name=f"t.{number}-{each}").enqueue()
            a_pass("dead", f"t.{number}-{each}")
        with CaptureQueriesContext(
            connection,
        ) as queries:
            list_backfills()
            pending()
        counts.append(len(queries))

    assert counts[0] == counts[1] == counts[2], counts


def test_what_is_no_pass_is_told_as_none() -> None:
    job = add_job("dead")

    assert tell_pass(job.run_id) is None
    assert tell_pass(uuid7()) is None
    assert pass_of(job) is None


LOOKS: dict[str, Callable[[UUID], PassStatus | Status]] = {
    "one": lambda run_id: told(run_id).status,
    "a list of passes": lambda run_id: list_passes().passes[0].status,
    "a list of backfills": lambda run_id: list_backfills("t.backfill")[0].passes[0].status,
    "where they stand": lambda run_id: next(one.status for one in pending().standings if one.name == "t.backfill"),
}


@pytest.mark.parametrize("at", range(2, 7))
@pytest.mark.parametrize("look", LOOKS)
def test_a_pass_that_ends_while_it_is_looked_at_has_not_failed(look: str, at: int) -> None:
    make_items(3)
    started = declare(None, Item).enqueue()
    looks: list[str] = []

    def between(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Let it end between two looks."""
        looks.append(sql)
        if len(looks) == at:
            finished = threading.Thread(target=run_due)
            finished.start()
            finished.join()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(between):
        status = LOOKS[look](started.run_id)

    assert status in ("running", "completed")


def test_the_newest_pass_is_the_one_that_began_last() -> None:
    first, second = sorted([uuid7(), uuid7()])
    a_pass("done", outcome="completed", run_id=second, day=1, checksum="1")
    a_pass("done", outcome="completed", run_id=first, day=2, checksum="2")
    declare(None, Item)

    (found,) = list_backfills("t.backfill")

    assert [one.run_id for one in list_passes("t.backfill").passes] == [first, second]
    assert found.latest is not None
    assert found.latest.run_id == first
    completed = completed_pass(["t.backfill"])
    assert completed is not None
    assert completed.run_id == first


def test_of_a_ledger_no_more_is_read_than_what_statuses_are_made_of() -> None:
    for day in range(30):
        a_pass("dead", "t.gone", day=day)
        a_pass("done", "t.gone", day=day - 100, outcome="completed")
    live = a_pass("running", "t.backfill", paused_at=BEGAN, day=-200)
    last = a_pass("cancelled", "t.backfill")
    declare(None, Item)

    with CaptureQueriesContext(connection) as queries:
        found = read_passes(named(job) for job, _ in declared_backfills() if job.name == "t.backfill")

    assert len(queries) == 2
    assert [(one.name, one.status) for one in found] == [
        ("t.backfill", PassStatus.PAUSED),
        ("t.gone", PassStatus.FAILED),
        ("t.backfill", PassStatus.CANCELLED),
        ("t.gone", PassStatus.COMPLETED),
    ]
    assert (found[0].run_id, found[2].run_id) == (live.run_id, last.run_id)
