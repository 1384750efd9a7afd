"""What people are told of a run's steps, of what it waits for, and of a retry from one of them."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.inspection.rows import LATER, MOMENT, add_job, add_staged, add_step
from tests.inspection.test_command import HOSTILE, as_json, commands, jobs, refused
from ultimat3_jobs.errors import JobTimeout
from ultimat3_jobs.inspection.repair import retry
from ultimat3_jobs.inspection.steps import MAX_OUTPUT
from ultimat3_jobs.models import Job, JobAttempt, JobStep, OutboxEntry

pytestmark = pytest.mark.django_db


def pipeline(state: str = "dead", **columns: Any) -> Job:
    """Insert a job that has recorded a step of each kind; their order is not that of their names."""
    job = add_job(state, **columns)
    add_step(job, "reserve", 1)
    add_step(job, "pause", 2, kind="sleep", state="waiting", until=MOMENT)
    add_step(job, "approval", 3, kind="wait", state="timed-out", until=MOMENT)
    add_step(job, "charge", 4, attempt=2)
    return job


def recorded(job: Job) -> list[str]:
    """Return the names of what a job has recorded, in its order."""
    return list(JobStep.objects.filter(run_id=job.run_id).order_by("seq").values_list("name", flat=True))


def lines_of(printed: str, *names: str) -> list[str]:
    """Return the lines of a table that begin with these names, in their order on the screen."""
    return [line for line in printed.splitlines() if line.split()[:1] and line.split()[0] in names]


def test_steps_are_shown_in_their_order_with_how_they_stand() -> None:
    job = pipeline()

    printed = jobs("show", job.id)
    told = as_json("show", job.id)

    rows = [line.split() for line in lines_of(printed, "reserve", "pause", "approval", "charge")]
    assert [row[:4] for row in rows] == [
        ["reserve", "step", "done", "1"],
        ["pause", "sleep", "over", "1"],
        ["approval", "wait", "timed-out", "1"],
        ["charge", "step", "done", "2"],
    ]
    assert " ".join(rows[0][4:]) == '1.500 s 2024-02-29 12:00:01 UTC "of reserve"'
    assert [step["name"] for step in told["steps"]] == ["reserve", "pause", "approval", "charge"]
    assert told["more_steps"] is False
    assert (told["steps"][0]["seconds"], told["steps"][0]["output"], told["steps"][0]["is_over"]) == (
        1.5,
        "of reserve",
        True,
    )


def test_a_job_without_steps_is_told_without_them() -> None:
    job = add_job("dead")

    assert "steps" not in jobs("show", job.id)
    assert as_json("show", job.id)["steps"] == []


def test_a_sleep_is_told_by_the_databases_clock() -> None:
    job = add_job("suspended", run_at=LATER, park_reason="asleep until then (nap)")
    add_step(job, "nap", 1, kind="sleep", state="waiting", until=LATER)

    assert [line.split()[2] for line in lines_of(jobs("show", job.id), "nap")] == ["asleep"]
    assert "until 2124-02-05 12:00:00 UTC" in jobs("show", job.id)
    assert as_json("show", job.id)["steps"][0]["is_over"] is False
    JobStep.objects.update(until=MOMENT)
    assert [line.split()[2] for line in lines_of(jobs("show", job.id), "nap")] == ["over"]


def test_secrets_in_steps_are_masked_and_long_results_are_not_read() -> None:
    job = add_job("dead")
    add_step(job, "log in", 1, output={"user": "ann", "api_key": "s3cret"})
    add_step(job, "token", 2, output="t0p")
    add_step(job, "long", 3, output="x" * MAX_OUTPUT)
    add_step(job, "nothing", 4, output=None)

    for told in (jobs("show", job.id), json.dumps(as_json("show", job.id))):
        assert "s3cret" not in told
        assert "t0p" not in told
        assert "x" * 100 not in told
        assert told.count("********") == 2
    assert f"[{MAX_OUTPUT + 2} characters]" in jobs("show", job.id)
    long = as_json("show", job.id)["steps"][2]
    assert (long["output"], long["output_size"]) == (None, MAX_OUTPUT + 2)


def test_of_many_steps_the_last_are_shown_in_as_many_queries() -> None:
    job = add_job("dead")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            jobs("show", job.id)
        assert [one["sql"] for one in captured if '"x_job_steps"' in one["sql"] and "LIMIT 201" in one["sql"]]
        return len(captured)

    def fill(first: int, last: int) -> None:
        JobStep.objects.bulk_create(
            JobStep(run_id=job.run_id, name=f"step-{seq}", seq=seq, kind="step", state="done", output=seq)
            for seq in range(first, last + 1)
        )

    fill(1, 10)
    few = queries()
    fill(11, 1_000)

    assert queries() == few
    printed, told = jobs("show", job.id), as_json("show", job.id)
    assert "earlier steps are left out; the last 200 are shown, --steps shows more" in printed
    assert [step["seq"] for step in told["steps"]] == list(range(801, 1_001))
    assert told["more_steps"] is True
    assert len(as_json("show", job.id, "--steps", 5)["steps"]) == 5
    assert as_json("show", job.id, "--steps", 1_000)["more_steps"] is False


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"wait_event": "review.done", "wait_match": '{"book":7}', "wait_until": LATER, "wait_poll": 30.0},
            "It waits for the event 'review.done' {\"book\":7} until 2124-02-05 12:00:00 UTC; it is looked at again",
        ),
        (
            {"wait_event": "review.done", "wait_poll": 0.5},
            "It waits for the event 'review.done' for as long as it takes; it is looked at again every 0.5 s, next",
        ),
        (
            {"park_reason": "asleep until then (nap)"},
            "It is suspended: asleep until then (nap). It goes on at 2124-02-05 12:00:00 UTC; no worker is held",
        ),
        ({"park_reason": "no code knows it", "parks": 2}, "It is parked: no code knows it. It is looked at again at"),
    ],
)
def test_a_suspended_job_says_what_it_waits_for(columns: dict[str, Any], words: str) -> None:
    job = add_job("suspended", run_at=LATER, **columns)

    told = as_json("show", job.id)

    assert words in told["why"]
    assert words in jobs("show", job.id)
    if "parks" in columns:
        assert told["waits_for"] is None
    else:
        assert told["waits_for"]["event"] == columns.get("wait_event", "")
        assert told["waits_for"]["match"] == columns.get("wait_match", "")


def test_only_what_is_suspended_waits() -> None:
    job = add_job("running", wait_event="review.done", wait_poll=30.0)

    assert as_json("show", job.id)["waits_for"] is None
    assert "review.done" not in jobs("show", job.id)


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ({"done": 5, "total": 10}, "done 5 of 10 (50 %)"),
        ({"done": 1_234, "total": 5_000}, "done 1,234 of 5,000 (24 %)"),
        ({"done": 5, "total": None}, "done 5\n"),
        ({"done": 5, "total": 0}, "done 5\n"),
        ({"done": "many"}, None),
        ([1, 2], None),
        (None, None),
    ],
)
def test_progress_is_told_as_far_as_it_can_be_read(progress: Any, words: str | None) -> None:
    printed = jobs("show", add_job("running", progress=progress).id)

    assert ("progress:" in printed) == (words is not None)
    assert (words or "") in printed


def test_a_preview_tells_what_is_skipped_and_what_is_done_again_and_changes_nothing() -> None:
    job = pipeline()

    printed = jobs("retry", job.id, "--from-step", "approval", "--preview")
    (told,) = as_json("retry", job.id, "--from-step", "approval", "--preview")["previews"]

    assert told["kept"] == [{"name": "reserve", "kind": "step"}, {"name": "pause", "kind": "sleep"}]
    assert told["again"] == [{"name": "approval", "kind": "wait"}, {"name": "charge", "kind": "step"}]
    order = ["skipped, their results are kept: 2", "reserve", "pause", "done again: 2", "approval", "charge"]
    places = [printed.index(part, printed.index("\n")) for part in order]
    assert places == sorted(places)
    assert (Job.objects.get().state, len(recorded(job))) == ("dead", 4)
    assert JobAttempt.objects.count() == 0
    assert commands(printed) == [told["command"]]

    assert jobs(*shlex.split(told["command"])[3:]) == f"{job.id} retried\n"
    assert (Job.objects.get().state, recorded(job)) == ("ready", ["reserve", "pause"])
    assert "retry from step 'approval' at" in jobs("show", job.id)


def test_a_preview_of_a_retry_as_it_stands_keeps_all() -> None:
    job = pipeline()

    (told,) = as_json("retry", job.id, "--preview")["previews"]

    assert ([step["name"] for step in told["kept"]], told["again"]) == (recorded(job), [])
    assert jobs(*shlex.split(told["command"])[3:]) == f"{job.id} retried\n"
    assert len(recorded(job)) == 4


def test_a_preview_is_refused_where_the_retry_would_be() -> None:
    done, staged = add_job("done"), add_staged()

    told = as_json("retry", done.id, staged.id, "nonsense", "--preview", status=1)
    assert [error["code"] for error in told["refused"]] == ["X_JOB_UNKNOWN", "X_JOB_NOT_RETRYABLE", "X_JOB_UNKNOWN"]
    assert "X_JOB_NOT_RETRYABLE" in refused("retry", done.id, "--preview")


@pytest.mark.parametrize("arguments", [[], ["--preview"]], ids=["retry", "preview"])
def test_a_step_that_is_not_recorded_is_refused_with_those_that_are(arguments: list[str]) -> None:
    job = pipeline()

    refusal = refused("retry", job.id, "--from-step", "chrage", *arguments)

    assert "X_STEP_UNKNOWN" in refusal
    assert "it has 'reserve', 'pause', 'approval', 'charge'. Did you mean 'charge'?" in refusal
    assert f"fix: python manage.py jobs retry {job.id} --from-step charge" in refusal
    assert "Did you mean" not in refused("retry", job.id, "--from-step", "something else", *arguments)
    assert (Job.objects.get().state, len(recorded(job))) == ("dead", 4)
    bare = add_job("dead")
    assert "nor any other" in refused("retry", bare.id, "--from-step", "charge", *arguments)


def test_the_fixes_that_retry_can_be_run_as_they_stand() -> None:
    misspelt, bare = pipeline(), add_job("dead", number=2)

    for job, step in ((misspelt, "chrage"), (bare, "charge")):
        (fix,) = re.findall(r"fix: python manage.py jobs (.*)", refused("retry", job.id, "--from-step", step))
        assert "retried" in jobs(*shlex.split(fix, comments=True))
        assert Job.objects.get(pk=job.pk).state == "ready"
    assert recorded(misspelt) == ["reserve", "pause", "approval"]


def test_names_in_commands_are_quoted_for_a_shell() -> None:
    job = add_job("dead")
    name = "it's $(odd); ü"
    add_step(job, name, 1)

    (told,) = as_json("retry", job.id, "--from-step", name, "--preview")["previews"]

    assert shlex.split(told["command"])[-1] == name
    assert shlex.split(commands(jobs("show", job.id))[-1])[-2] == name


def test_many_are_retried_from_a_step_row_by_row() -> None:
    rows = [pipeline(number=n) for n in range(3)]
    JobStep.objects.filter(run_id=rows[1].run_id, name="charge").delete()
    bulk = ["retry", "--name", "shop.charge", "--from-step", "charge"]

    assert "--write would retry 3 jobs from step 'charge'; those without it would be refused." in jobs(*bulk)
    told = as_json(*bulk, "--write", status=1)

    assert [one["verdict"] for one in told["outcomes"]] == ["retried", "no-step", "retried"]
    assert told["outcomes"][1]["error"]["code"] == "X_STEP_UNKNOWN"
    assert [Job.objects.get(pk=row.pk).state for row in rows] == ["ready", "dead", "ready"]
    assert [recorded(row)[-1] for row in rows] == ["approval"] * 3


def test_refusals_of_a_step_cost_no_more_queries_for_many() -> None:
    ids = [pipeline(number=number).id for number in range(9)]

    def queries(count: int) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert not any(one.done for one in retry(ids[:count], by="me", reason="", from_step="none"))
        return len(captured)

    assert queries(9) <= queries(1)


def test_staged_work_has_no_steps() -> None:
    entry = add_staged()

    told = as_json("retry", entry.id, "--from-step", "charge", status=1)

    assert told["outcomes"][0]["error"]["code"] == "X_STEP_UNKNOWN"
    assert OutboxEntry.objects.get().outcome == "set_aside"


def test_what_a_step_holds_cannot_steer_the_terminal() -> None:
    job = add_job("dead", wait_event=HOSTILE, wait_match=HOSTILE)
    add_step(job, f"n{HOSTILE}", 1, output=HOSTILE, kind=f"k{HOSTILE}"[:16], state=f"s{HOSTILE}"[:16])
    waiting = add_job("suspended", wait_event=HOSTILE, wait_match=HOSTILE, wait_poll=30.0)

    printed = [jobs("show", job.id), jobs("retry", job.id, "--preview"), jobs("show", waiting.id)]
    printed.append(refused("retry", job.id, "--from-step", HOSTILE.replace("\x07", "")))

    for text in printed:
        assert all(one.isprintable() or one == "\n" for one in text), text


def test_a_wait_of_a_job_that_was_cancelled_has_not_ended() -> None:
    job = add_job("cancelled")
    add_step(job, "pause", 1, kind="sleep", state="waiting", until=LATER)
    add_step(job, "approval", 2, kind="wait", state="waiting", until=None)

    assert jobs("show", str(job.id)).count("not ended") == 2


def test_the_line_of_an_error_is_its_message_and_not_the_page_about_it() -> None:
    error = JobTimeout("an attempt of shop.ship took longer than its timeout=1m", fix='timeout="2m"')
    name = "ultimat3_jobs.errors.JobTimeout"
    job = add_job(
        "dead", error_class=name, last_error=f"Traceback (most recent call last):\n{name}: {error}\nverdict: dead"
    )

    assert f"{name}: X_JOB_TIMEOUT: an attempt of shop.ship took longer" in jobs("show", str(job.id))


def test_a_published_event_became_no_job() -> None:
    entry = add_staged(kind="event", name="review.done", outcome="published", job_id=None)

    printed = jobs("show", str(entry.id))
    assert "It is published: every run that waits for it gets it" in printed
    assert "None" not in printed.splitlines()[2]
