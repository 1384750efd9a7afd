"""`manage.py jobs`: what it lists and tells, its JSON, and repairs by id and by filter."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.commanding import printed, printed_json
from tests.declaring import job_taking
from tests.inspection.rows import LATER, add_attempt, add_job, add_staged
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.inspection import lists
from ultimat3_jobs.inspection.repair import Outcome, cancel, retry
from ultimat3_jobs.management.reporting import who
from ultimat3_jobs.models import Job, JobAttempt, OutboxEntry
from ultimat3_jobs.states import LIVE, State

pytestmark = pytest.mark.django_db
FILTERS = ("queue", "name", "tenant", "key", "cause", "error")
HOSTILE = "\x1b[2Jred\u202etext\x07\r\nline"


jobs = partial(printed, "jobs")
as_json = partial(printed_json, "jobs")


def refused(*arguments: object) -> str:
    """Expect a refusal, and return it."""
    with pytest.raises(CommandError) as raised:
        jobs(*arguments)
    return str(raised.value)


def commands(text: str) -> list[str]:
    """Return the command lines in a text."""
    return [line.strip().partition("  #")[0] for line in text.splitlines() if line.strip().startswith("python ")]


def test_a_list_has_the_newest_first_and_the_command_that_retries_a_dead_letter() -> None:
    old, new = add_job("done"), add_job("dead")

    printed = jobs("ls")

    assert printed.index(str(new.id)) < printed.index(str(old.id))
    assert commands(printed) == [f"python manage.py jobs retry {new.id}"]
    assert jobs("ls", "--state", "running") == "no job was found\n"
    (dead, done) = as_json("ls")["jobs"]
    assert (dead["id"], dead["command"]) == (str(new.id), f"python manage.py jobs retry {new.id}")
    assert (done["id"], done["command"]) == (str(old.id), None)


def test_a_list_says_when_jobs_ended() -> None:
    ended, live = add_job("dead"), add_job("ready")

    printed = jobs("ls")

    assert "ENDED" in printed.splitlines()[0]
    lines = {line.split()[0]: line for line in printed.splitlines()}
    assert f"{ended.finished_at:%Y-%m-%d %H:%M:%S} UTC" in lines[str(ended.id)]
    assert " UTC" not in lines[str(live.id)]


def test_a_misspelt_state_is_told_from_an_empty_list() -> None:
    assert "No state of this build: ded. It has ready, delayed," in jobs("ls", "--state", "ded")


def test_a_message_that_ends_its_traceback_is_told_once() -> None:
    job = add_job("dead", last_error="ValueError: see the history")
    add_attempt(job, message="it was declined", traceback="Traceback: in charge()\nValueError: it was declined\n")
    add_attempt(job, message="its worker was lost", traceback="")

    printed = jobs("show", job.id)

    assert printed.count("it was declined") == 1
    assert printed.count("its worker was lost") == 1


def test_a_list_goes_on_where_it_stopped() -> None:
    rows = [add_job("dead", number=n) for n in range(5)]

    first = as_json("ls", "--state", "dead", "--limit", 2)
    second = as_json("ls", "--state", "dead", "--limit", 9, "--before", first["before"])

    assert [job["id"] for job in (*first["jobs"], *second["jobs"])] == [str(job.id) for job in reversed(rows)]
    assert second["before"] is None
    assert f"There are more: --before {first['before']}" in jobs("ls", "--state", "dead", "--limit", 2)


@pytest.mark.parametrize("state", [*State, "frozen"])
def test_a_job_of_any_state_is_shown_with_the_reason_and_what_mends_it(state: str) -> None:
    parked = {"park_reason": "no code knows it", "parks": 1} if state == "suspended" else {}
    job = add_job(state, claimed_by="w1", run_at=LATER, **parked)

    told = as_json("show", job.id)

    verb = {"dead": "retry", "failed": "retry"}.get(state, "cancel" if state in LIVE else None)
    assert told["job"]["state"] == state
    assert [one["command"] for one in told["commands"][:1]] == (
        [f"python manage.py jobs {verb} {job.id}"] if verb else []
    )
    words = {
        "ready": "No code here declares 'shop.charge'",
        "delayed": "the next one is due at",
        "running": "Worker w1 runs attempt 1 of 3",
        "suspended": "It is parked: no code knows it",
        "done": "It ended well",
        "failed": "its policy keeps no dead letter: its attempts are used up, after attempt 1 of 3",
        "dead": "It is a dead letter: its attempts are used up, after attempt 1 of 3",
        "cancelled": "It was cancelled",
        "frozen": "'frozen', which this build does not know",
    }
    assert words[state] in told["why"]
    assert words[state] in jobs("show", job.id)


def test_the_history_is_told_with_tracebacks_and_secrets_are_not() -> None:
    job = add_job("dead", input={"order": 7, "api_key": "s3cret"}, result={"token": "t0p"})
    add_attempt(job, traceback="Traceback: in charge()", attempt=1, decision="retry")
    add_attempt(job, kind="retry", by="ann", reason="mended", attempt=0)

    for told in (jobs("show", job.id), json.dumps(as_json("show", job.id))):
        for part in ("Traceback: in charge()", "ann", "mended", "api_key", "********"):
            assert part in told
        assert "s3cret" not in told
        assert "t0p" not in told


def test_a_job_is_found_by_the_first_digits_of_its_id_or_by_name_and_key() -> None:
    first = add_job(id=UUID("01a228ec79d073d4b8cb59fcee3783e5"), name="shop.one", idempotency_key="k", tenant_id="a")
    second = add_job(id=UUID("01a228ec79d073d4c8cb59fcee3783e5"), name="shop.one", idempotency_key="k", tenant_id="b")

    assert as_json("show", "01A228EC-79d0-73d4-b")["job"]["id"] == str(first.id)
    assert as_json("show", "--name", "shop.one", "--key", "k", "--tenant", "b")["job"]["id"] == str(second.id)
    for ambiguous in (["01a228ec"], ["--name", "shop.one", "--key", "k"]):
        error = as_json("show", *ambiguous, status=1)["error"]
        assert error["code"] == "X_JOB_ID_AMBIGUOUS"
        assert str(first.id) in error["cause"]
        assert str(second.id) in error["cause"]
    for unknown in (["01a228e"], ["02a228ec"], ["not an id"], ["--name", "shop.one", "--key", "other"]):
        assert as_json("show", *unknown, status=1)["error"]["code"] == "X_JOB_UNKNOWN"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (None, "waits for the relay"),
        ("published", "It became the job"),
        ("deduped", "stands for it"),
        ("set_aside", "set aside: its key is held by another input"),
        ("lost", "'lost', which this build does not know"),
    ],
)
def test_what_became_of_staged_work_is_told(outcome: str | None, words: str) -> None:
    gone = uuid7() if outcome in ("published", "deduped") else None
    entry = add_staged(outcome, job_id=gone)

    told = as_json("show", entry.id)

    assert words in told["why"]
    assert words in jobs("show", entry.id)
    assert ("has been deleted since" in told["why"]) == (gone is not None)


def test_what_was_set_aside_is_listed_with_the_command_that_retries_it() -> None:
    entry, waiting = add_staged(), add_staged(outcome=None)

    printed = jobs("ls", "--staged", "set_aside")

    assert "its key is held by another input" in printed
    assert commands(printed) == [f"python manage.py jobs retry {entry.id}"]
    assert str(waiting.id) not in printed
    (found,) = as_json("ls", "--staged", "set_aside")["staged"]
    assert (found["id"], found["command"]) == (str(entry.id), f"python manage.py jobs retry {entry.id}")
    (found,) = as_json("ls", "--staged", "waiting")["staged"]
    assert (found["id"], found["command"]) == (str(waiting.id), None)
    with pytest.raises(CommandError, match="no other filters"):
        jobs("ls", "--staged", "waiting", "--queue", "mail")


def test_lists_of_staged_work_are_bounded() -> None:
    assert jobs("ls", "--staged", "newest") == "no staged work was found\n"
    rows = [add_staged(outcome=outcome) for outcome in (None, None, "set_aside", "set_aside")]

    assert "There are more than 1: --limit" in jobs("ls", "--staged", "waiting", "--limit", 1)
    assert f"There are more: --before {rows[3].id}" in jobs("ls", "--staged", "set_aside", "--limit", 1)


def test_a_set_aside_row_is_retried_by_its_id() -> None:
    entry, waiting = add_staged(), add_staged(None)
    (command,) = commands(jobs("show", entry.id))

    assert jobs(*shlex.split(command)[3:]) == f"{entry.id} retried\n"
    assert OutboxEntry.objects.get(pk=entry.id).outcome is None
    assert "X_JOB_NOT_RETRYABLE" in refused("retry", waiting.id)


def test_what_a_row_holds_cannot_steer_the_terminal() -> None:
    job = add_job(
        "dead", name=f"n{HOSTILE}", queue=f"q{HOSTILE}", tenant_id=f"t{HOSTILE}", idempotency_key=f"k{HOSTILE}",
        error_class=f"e{HOSTILE}", last_error=f"l{HOSTILE}", input={HOSTILE: HOSTILE}, enqueued_by=HOSTILE,
    )  # fmt: skip
    add_attempt(job, traceback=HOSTILE, message=HOSTILE, error_class=HOSTILE)
    add_attempt(job, kind="retry", by=HOSTILE, reason=HOSTILE)

    printed = [jobs("ls"), jobs("show", job.id), jobs("ls", "--json"), jobs("show", job.id, "--json")]
    printed.append(refused("retry", "\x1b[2Jnot an id"))

    for text in printed:
        assert all(one.isprintable() or one == "\n" for one in text), text


def test_filters_are_a_dry_run_without_write() -> None:
    rows = [add_job("dead", number=n) for n in range(3)]
    add_job("dead", name="shop.other")

    printed = jobs("retry", "--name", "shop.charge")
    dry = as_json("retry", "--name", "shop.charge")

    assert "A dry run: nothing was changed. --write would retry 3 jobs." in printed
    assert dry["dry_run"] is True
    assert [job["id"] for job in dry["jobs"]] == [str(job.id) for job in reversed(rows)]
    assert {job.state for job in Job.objects.all()} == {"dead"}


def test_filters_with_write_repair_the_newest_up_to_the_limit() -> None:
    rows = [add_job("dead", number=n) for n in range(3)]

    done = as_json("retry", "--name", "shop.charge", "--write", "--limit", 2, "--reason", "mended")

    assert [(one["id"], one["done"], one["verdict"]) for one in done["outcomes"]] == [
        (str(rows[2].id), True, "retried"),
        (str(rows[1].id), True, "retried"),
    ]
    assert [Job.objects.get(pk=row.id).state for row in rows] == ["dead", "ready", "ready"]
    assert {(kept.kind, kept.by, kept.reason) for kept in JobAttempt.objects.all()} == {
        ("retry", who("manage.py jobs"), "mended")
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["retry"],
        ["cancel"],
        ["retry", "01a228ec", "--name", "shop.charge"],
        ["retry", "--state", "done"],
        ["cancel", "--state", "dead"],
        ["retry", "--state", "dead", "--limit", "0"],
        ["retry", "--state", "dead", "--limit", "1001"],
        ["retry", "01a228ec", "--reason", "x" * 256],
        ["ls", "--limit", "many"],
        ["ls", "--tenant", "a\0b"],
        ["show"],
        ["show", "01a228ec", "--steps", "0"],
        ["show", "01a228ec", "--steps", "10001"],
        ["retry", "--preview"],
        ["retry", "--preview", "--name", "shop.charge"],
        ["retry", "01a228ec", "--preview", "--name", "shop.charge"],
        ["retry", "01a228ec", "--from-step", "a\0b"],
        ["retry", "--from-step", "charge"],
        ["cancel", "--state", "ready", "--name", "", "--write"],
        *(["retry", "--state", "dead", f"--{one}", "", "--write"] for one in FILTERS),
        *(["ls", f"--{one}", " "] for one in FILTERS),
        ["show", "", "--name", "shop.charge", "--key", "k"],
        ["cancel", ""],
    ],
    ids=" ".join,
)
def test_arguments_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    add_job("dead")

    with pytest.raises(CommandError):
        jobs(*arguments)

    assert [job.state for job in Job.objects.all()] == ["dead"]


def test_an_empty_filter_never_means_all_of_a_bulk_repair() -> None:
    job = add_job("ready")

    for empty in ({"name": ""}, {"tenant": " "}):
        with pytest.raises(CommandError, match=r"is empty: give a value, or leave it out"):
            call_command("jobs", "cancel", "--state", "ready", write=True, **empty)

    job.refresh_from_db()
    assert job.state == "ready"


@pytest.mark.parametrize("asked", ["shop.charge", "shop.bill", "shop.invoice"])
def test_a_name_means_all_names_of_the_job_that_is_declared_under_it(isolated_registry: None, asked: str) -> None:
    job_taking(name="shop.bill", aliases=["shop.charge", "shop.invoice"])
    rows = [add_job("dead", number=n, name=("shop.charge", "shop.bill", "shop.invoice")[n]) for n in range(3)]
    live = [add_job("ready", number=n, name=("shop.charge", "shop.bill", "shop.invoice")[n]) for n in range(3)]
    kept = add_job("dead", name="shop.other", idempotency_key="k")
    found = add_job("done", name="shop.invoice", idempotency_key="k")

    assert as_json("ls", "--name", asked, "--state", "dead")["jobs"] == [
        one for one in as_json("ls", "--state", "dead")["jobs"] if one["id"] != str(kept.id)
    ]
    assert as_json("show", "--name", asked, "--key", "k")["job"]["id"] == str(found.id)
    jobs("retry", "--name", asked, "--write")
    jobs("cancel", "--name", asked, "--write", "--limit", 4)

    states = Job.objects.in_bulk()
    assert [states[one.id].state for one in (kept, *rows)] == ["dead", "ready", "ready", "cancelled"]
    assert {states[one.id].state for one in live} == {"cancelled"}


@pytest.mark.parametrize("state", State)
def test_live_jobs_are_cancelled_and_others_refused(state: State) -> None:
    job = add_job(state)

    if state in LIVE:
        assert jobs("cancel", job.id, "--reason", "no longer wanted") == f"{job.id} cancelled\n"
        row = Job.objects.get(pk=job.id)
        assert (row.state, row.cancel_reason) == ("cancelled", "no longer wanted")
        assert "no longer wanted" in jobs("show", job.id)
    refusal = refused("cancel", job.id)
    assert f"X_JOB_NOT_CANCELLABLE: job {job.id} is {'cancelled' if state in LIVE else state}" in refusal
    outcome = as_json("cancel", job.id, status=1)["outcomes"][0]
    assert (outcome["done"], outcome["error"]["code"]) == (False, "X_JOB_NOT_CANCELLABLE")


def test_the_fix_of_a_refusal_can_be_run_as_it_stands() -> None:
    done, published = add_job("done"), add_job("ready")
    entry = add_staged("published", job_id=published.id)

    for refusal, shown in ((refused("cancel", done.id), done), (refused("retry", entry.id), published)):
        (fix,) = re.findall(r"fix: python manage.py jobs (.*)", refusal)
        assert str(shown.id) in jobs(*shlex.split(fix)).splitlines()[0]


def test_each_id_has_its_outcome_and_one_refusal_makes_the_status_one() -> None:
    dead, done = add_job("dead"), add_job("done")

    told = as_json("retry", dead.id, done.id, "nothing", status=1)

    assert [(one["id"], one["done"]) for one in told["outcomes"]] == [(str(dead.id), True), (str(done.id), False)]
    assert [error["code"] for error in told["unresolved"]] == ["X_JOB_UNKNOWN"]


@pytest.mark.parametrize("repair", [retry, cancel])
def test_refusals_of_many_cost_no_more_queries_than_one(repair: Callable[..., list[Outcome]]) -> None:
    done = [add_job("done", number=number).id for number in range(9)]

    def queries(ids: list[UUID]) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert not any(one.done for one in repair(ids, by="me", reason=""))
        return len(captured)

    assert queries(done) == queries(done[:1])


def test_a_job_that_is_claimed_for_its_last_attempt_and_has_not_begun_is_told_so() -> None:
    job = add_job("running", attempt=3, claimed_by="w", started_at=None)

    assert "Worker w has claimed it for attempt 3 of 3, whose body has not begun." in jobs("show", job.id)


def test_a_dead_letter_whose_key_is_taken_names_the_holder() -> None:
    job = add_job("dead", idempotency_key="k")
    holder = add_job("ready", idempotency_key="k")

    told = as_json("show", job.id)

    assert told["holder"] == str(holder.id)
    assert told["commands"][0]["command"] == f"python manage.py jobs show {holder.id}"


def test_a_bulk_repair_that_leaves_some_says_what_takes_the_next_ones() -> None:
    rows = [add_job("dead", number=n) for n in range(3)]
    one = ("retry", "--state", "dead", "--limit", 1)

    assert "There are more: with --write, the same command takes the next ones when it is run again" in jobs(*one)
    assert jobs(*one, "--write").endswith("There are more: run the same command again\n")
    assert jobs(*one, "--write").startswith(f"{rows[1].id} retried\n")
    assert jobs("cancel", "--state", "ready", "--limit", 1, "--write").endswith("run the same command again\n")
    assert jobs(*one, "--write").endswith("1 job, and there are no more.\n")


def test_a_bulk_repair_that_is_refused_does_not_say_to_run_it_again() -> None:
    for number in range(2):
        add_job("dead", idempotency_key=f"k{number}")
        add_job("ready", idempotency_key=f"k{number}")
    out = io.StringIO()

    with pytest.raises(CommandError):
        call_command("jobs", "retry", "--state", "dead", "--limit", "1", "--write", stdout=out)

    assert out.getvalue() == (
        "There are more behind those that were refused: give other filters, or take more at once with --limit\n"
    )


def test_a_traceback_that_is_that_of_the_attempt_before_it_is_printed_once() -> None:
    job = add_job("dead")
    raised = "Traceback (most recent call last):\nValueError: declined\n"
    for number, traceback in enumerate([raised, raised.replace("declined", "away"), raised, raised], 1):
        add_attempt(job, attempt=number, traceback=traceback, message="")
        add_attempt(job, kind="retry", attempt=number)

    printed = jobs("show", job.id)

    assert printed.count("Traceback (most") == 3
    assert printed.count("    the same traceback as attempt 4\n") == 1
    assert printed.index("attempt 3 failed") < printed.index("the same traceback") < printed.index("attempt 2 failed")
    assert [one["traceback"] for one in as_json("show", job.id)["attempts"] if one["traceback"]].count(raised) == 3


def test_what_failed_alike_without_a_traceback_is_told_each_time() -> None:
    job = add_job("dead")
    for number in (1, 2):
        add_attempt(job, attempt=number, message="its worker was lost", traceback="")

    assert jobs("show", job.id).count("its worker was lost") == 2


def test_bulk_repairs_say_where_they_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "WALK", 3)
    for n in range(5):
        add_job("dead", number=n, error_class="Other")

    told = jobs("retry", "--error", "ValueError")
    assert "Only the newest 3 candidates were looked at: with --cause, --name, --tenant or --key all are found" in told
    assert "--before" not in told
