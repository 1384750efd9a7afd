"""The admin's view of steps, waits, progress and events, and the retry from a step."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.inspection.rows import MOMENT, add_event, add_job, add_step
from tests.test_admin import EVENTS, JOBS, SeenBy, act, confirm, page, page_of, seen_by, states
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.inspection.steps import MAX_STEPS_SHOWN
from ultimat3_jobs.models import Job, JobAttempt, JobStep

__all__ = ["seen_by"]

pytestmark = pytest.mark.django_db
STEPS = ("reserve", "charge", "book")


def job_with_steps(state: str = "dead", **columns: object) -> Job:
    """Insert a job that has recorded three steps."""
    job = add_job(state, **columns)
    for seq, name in enumerate(STEPS, 1):
        add_step(job, name, seq)
    return job


def recorded(job: Job) -> list[str]:
    """Return the names of what a job has recorded, in its order."""
    return list(JobStep.objects.filter(run_id=job.run_id).order_by("seq").values_list("name", flat=True))


def offered(text: str) -> list[str]:
    """Return the steps from which a page offers a retry."""
    return re.findall(r'name="from_step" value="([^"]*)"', text)


def test_a_jobs_page_has_its_steps_in_their_order(admin_client: Client) -> None:
    job = job_with_steps()
    add_step(job, "<b>odd</b>\x1b", 4, output={"html": "<script>", "token": "t0p"})
    add_step(job, "pause", 5, kind="sleep", state="waiting", until=MOMENT)

    text = page(admin_client, page_of(job))

    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td>', text)
    assert rows == [
        *((name, "step", "done") for name in STEPS),
        ("&lt;b&gt;odd&lt;/b&gt;\\x1b", "step", "done"),
        ("pause", "sleep", "over"),
    ]
    assert "t0p" not in text
    assert "1.500 s" in text


@pytest.mark.parametrize("state", ["ready", "delayed", "running", "suspended", "done", "failed", "dead", "cancelled"])
def test_a_retry_from_a_step_is_offered_where_it_can_be_done(admin_client: Client, state: str) -> None:
    job = job_with_steps(state)

    assert offered(page(admin_client, page_of(job))) == (list(STEPS) if state in ("dead", "failed") else [])


def test_a_retry_from_a_step_shows_what_it_would_do_is_confirmed_and_logged(seen_by: SeenBy) -> None:
    client = seen_by("view_job", "retry_job")
    job = job_with_steps()

    asked = act(client, "retry", job.id, from_step="charge")

    text = asked.content.decode()
    assert asked.status_code == 200
    assert ">Retry 1 job from step &#x27;charge&#x27;</button>" in text
    assert f"python manage.py jobs retry {job.id} --from-step charge" in text
    order = ["Skipped, with the results they have: 1", "reserve", "Done again: 2", "charge</code>", "book"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert offered(text) == ["charge"]
    assert (states(job), recorded(job), LogEntry.objects.count()) == (["dead"], list(STEPS), 0)

    confirmed = {"action": "retry", "_selected_action": str(job.id), "confirmed": "yes", "from_step": "charge"}
    client.post(JOBS, {**confirmed, "reason": "the bank is back"})

    assert (states(job), recorded(job)) == (["ready"], ["reserve"])
    assert LogEntry.objects.get().change_message == "Retried from step 'charge'. the bank is back"
    kept = JobAttempt.objects.get()
    assert (kept.kind, kept.rule, kept.reason) == ("retry", "charge", "the bank is back")
    assert "Retry from step &#x27;charge&#x27; at" in page(client, page_of(job))


def test_a_retry_from_a_step_needs_the_permission_to_retry(seen_by: SeenBy) -> None:
    viewer = seen_by("view_job", "cancel_job", "change_job", "view_jobstep")
    job = job_with_steps()

    assert offered(page(viewer, page_of(job))) == []
    assert act(viewer, "retry", job.id, from_step="charge").status_code == 403
    assert act(viewer, "retry", job.id, from_step="charge", confirmed="yes").status_code == 403
    assert (states(job), recorded(job)) == (["dead"], list(STEPS))


@pytest.mark.parametrize(
    ("state", "step", "told"),
    [
        ("dead", "chrage", "Did you mean &#x27;charge&#x27;?"),
        ("dead", "", "has recorded no step"),
        ("dead", "a\0b", "has recorded no step"),
        ("done", "charge", "only dead and failed jobs can be retried"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"confirmed": "yes"}], ids=["asked", "confirmed"])
def test_a_step_that_makes_no_sense_changes_nothing(
    admin_client: Client, state: str, step: str, told: str, more: dict[str, str]
) -> None:
    job = job_with_steps(state)
    data = {"action": "retry", "_selected_action": str(job.id), "from_step": step, **more}

    answer = admin_client.post(JOBS, data, follow=True)

    assert told in answer.content.decode()
    assert answer.redirect_chain == [(page_of(job), 302)]
    assert (states(job), recorded(job)) == ([state], list(STEPS))


def test_a_step_is_named_for_one_job_at_a_time(admin_client: Client) -> None:
    jobs = [job_with_steps(number=number) for number in range(2)]
    data = {"action": "retry", "_selected_action": [str(job.id) for job in jobs], "from_step": "charge"}

    answer = admin_client.post(JOBS, {**data, "confirmed": "yes"}, follow=True)

    assert "A step is named for one job, and 2 were selected" in answer.content.decode()
    assert states(*jobs) == ["dead", "dead"]


def test_a_retry_as_it_stands_keeps_the_steps(admin_client: Client) -> None:
    job = job_with_steps()

    confirm(admin_client, "retry", job.id)

    assert (states(job), recorded(job)) == (["ready"], list(STEPS))
    assert LogEntry.objects.get().change_message == "Retried. mended"


def test_of_a_thousand_steps_the_last_are_shown(admin_client: Client) -> None:
    job = job_with_steps()

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(admin_client, page_of(job))
        return len(captured)

    few = queries()
    JobStep.objects.bulk_create(
        JobStep(run_id=job.run_id, name=f"step-{seq}", seq=seq, kind="step", state="done", output=seq)
        for seq in range(4, 1_001)
    )

    assert queries() == few
    text = page(admin_client, page_of(job))
    assert offered(text) == [f"step-{seq}" for seq in range(1_001 - MAX_STEPS_SHOWN, 1_001)]
    assert f"The last {MAX_STEPS_SHOWN} are shown." in text
    assert f"python manage.py jobs show {job.id} --steps 1000" in text
    asked = act(admin_client, "retry", job.id, from_step="step-500").content.decode()
    assert "Skipped, with the results they have: 499" in asked
    assert "… and 301 more." in asked


def test_a_suspended_job_says_what_it_waits_for(admin_client: Client) -> None:
    job = add_job("suspended", wait_event="review.done", wait_match='{"book":7}', wait_poll=30.0)

    text = page(admin_client, page_of(job))

    assert "It waits for the event &#x27;review.done&#x27; {&quot;book&quot;:7} for as long as it takes" in text


def test_what_an_event_is_matched_by_shows_no_secret(admin_client: Client) -> None:
    match = '{"api_key":"s3cret","book":7}'
    job = add_job("suspended", wait_event="review.done", wait_match=match)
    stored = add_event("review.done", match=match)

    for path in (page_of(job), EVENTS, f"{EVENTS}{stored.pk}/change/"):
        text = page(admin_client, path)
        assert "&quot;book&quot;:7" in text
        assert "s3cret" not in text


def test_progress_is_drawn_and_told(admin_client: Client) -> None:
    job = add_job("running", progress={"done": 1_500, "total": 3_000})
    untold = add_job("running", progress={"done": 5, "total": None})

    text = page(admin_client, page_of(job))

    assert '<progress id="x-jobs-progress" value="1500" max="3000"></progress>' in text
    assert "done 1,500 of 3,000 (50 %)" in text
    assert "<progress" not in page(admin_client, page_of(untold))
    assert "done 5" in page(admin_client, page_of(untold))
    assert "x-jobs-progress" not in page(admin_client, page_of(add_job("running")))


def test_events_are_listed_the_newest_first_found_by_name_and_shown(admin_client: Client) -> None:
    events = [add_event("review.done" if n % 2 else "<b>odd</b>", match=f'{{"n":{n}}}') for n in range(120)]
    last = add_event("paid", payload={"order": 7, "token": "t0p"}, expires_at=MOMENT.replace(year=2124))

    def listed(query: str = "") -> list[str]:
        return re.findall(r'href="[^"]*/jobevent/(\d+)/change/', page(admin_client, f"{EVENTS}{query}"))

    assert listed()[:3] == [str(one.pk) for one in (last, events[-1], events[-2])]
    assert listed("?q=review.done") == [str(one.pk) for one in events[:20:-2]]
    assert listed("?q=review") == []
    found, query = [], ""
    while True:
        found += listed(query)
        older = re.search(r'<a href="([^"]+)" rel="next">', page(admin_client, f"{EVENTS}{query}"))
        if older is None:
            break
        query = older[1].replace("&amp;", "&")
    assert found == [str(one.pk) for one in (last, *reversed(events))]
    assert "<b>odd" not in page(admin_client, EVENTS)
    text = page(admin_client, f"{EVENTS}{last.pk}/change/")
    assert "Runs that wait for it get it until 2124-02-29" in text
    assert "t0p" not in text
    assert "no run gets it any more" in page(admin_client, f"{EVENTS}{events[0].pk}/change/")


def test_looking_at_events_needs_their_own_permission(seen_by: SeenBy) -> None:
    event = add_event()

    for client, status in ((seen_by("view_job"), 403), (seen_by("view_jobevent"), 200)):
        assert client.get(EVENTS).status_code == status
        assert client.get(f"{EVENTS}{event.pk}/change/").status_code == status


@pytest.mark.parametrize("query", ["?before=nonsense", "?name=x", f"?before={uuid7()}", "?q=%00"])
def test_an_odd_address_does_not_break_the_list_of_events(admin_client: Client, query: str) -> None:
    assert admin_client.get(f"{EVENTS}{query}").status_code in (200, 302, 400)
