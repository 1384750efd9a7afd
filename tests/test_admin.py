"""The admin: dead letters first, nothing to edit, actions behind permissions, and queries that do not grow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.inspection.rows import add_attempt, add_event, add_job, add_staged, add_step
from ultimat3_jobs.admin import repairs
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Job, JobAttempt, JobEvent, OutboxEntry
from ultimat3_jobs.states import State

pytestmark = pytest.mark.django_db

JOBS = "/admin/ultimat3_jobs/job/"
OUTBOX = "/admin/ultimat3_jobs/outboxentry/"
EVENTS = "/admin/ultimat3_jobs/jobevent/"
ID = "01a228ec-79d0-73d4-b8cb-59fcee3783e5"
SeenBy = Callable[..., Client]


@pytest.fixture
def seen_by(db: None) -> SeenBy:
    """Make a client of a member of staff with these permissions of the app."""

    def make(*permissions: str, **options: Any) -> Client:
        user = User.objects.create_user(f"ann-{uuid7()}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client(**options)
        client.force_login(user)
        return client

    return make


def page(client: Client, url: str) -> str:
    """Return a page that is shown, in which nothing is inline."""
    answer = client.get(url)
    assert answer.status_code == 200, (url, answer.status_code)
    text = answer.content.decode()
    for script in re.findall(r"<script\b[^>]*>", text):
        assert "src=" in script or 'type="application/json"' in script, script
    assert "<style" not in text
    assert not re.search(r"<[^>]*\s(style|on\w+)=", text)
    return text


def page_of(job: Job) -> str:
    return f"{JOBS}{job.id}/change/"


def listed(client: Client, query: str = "") -> list[UUID]:
    """Return the ids of the jobs in a list, in its order."""
    ids = re.findall(r'name="_selected_action" value="([^"]+)"', page(client, f"{JOBS}{query}"))
    return [UUID(one) for one in ids]


def act(client: Client, action: str, *ids: object, url: str = JOBS, **data: object) -> HttpResponse:
    """Ask for an action."""
    answer = client.post(url, {"action": action, "_selected_action": [str(one) for one in ids], **data})
    assert isinstance(answer, HttpResponse)
    return answer


def confirm(client: Client, action: str, *ids: object, url: str = JOBS, reason: str = "mended") -> list[str]:
    """Confirm an action, and return the messages of the page that follows."""
    answer = client.post(
        url,
        {"action": action, "_selected_action": [str(one) for one in ids], "confirmed": "yes", "reason": reason},
        follow=True,
    )
    assert answer.status_code == 200
    return [str(message) for message in answer.context["messages"]]


def states(*jobs: Job) -> list[str]:
    return [Job.objects.get(pk=job.pk).state for job in jobs]


def test_the_list_begins_with_dead_letters_the_newest_first(admin_client: Client) -> None:
    jobs = {state: add_job(state, number=n) for n, state in enumerate([*State, "frozen"])}

    assert listed(admin_client) == [jobs["dead"].id, jobs["failed"].id]
    for state in State:
        assert listed(admin_client, f"?state={state}") == [jobs[state].id]
    assert listed(admin_client, "?state=all") == [job.id for job in reversed(jobs.values())]


def test_a_list_is_filtered_by_queue_and_found_by_search(admin_client: Client) -> None:
    mail = add_job("dead", queue="mail", tenant_id="zed")
    done = add_job("done", queue="mail", idempotency_key="the key")
    add_job("dead", queue="bulk")

    assert listed(admin_client, "?queue=mail") == [mail.id]
    assert "?queue=bulk" in page(admin_client, JOBS)
    for text, found in (("zed", mail), ("the key", done), (str(done.id), done)):
        assert listed(admin_client, f"?q={text}") == [found.id]
    assert listed(admin_client, "?q=the key&state=dead") == []
    assert listed(admin_client, "?q=nothing") == []


def test_a_list_goes_on_page_by_page(admin_client: Client) -> None:
    jobs = [add_job("dead", number=n) for n in range(120)]
    found: list[UUID] = []
    query: str | None = ""
    while query is not None:
        found.extend(listed(admin_client, query))
        older = re.search(r'<a href="([^"]+)" rel="next">', page(admin_client, f"{JOBS}{query}"))
        query = older[1].replace("&amp;", "&") if older else None

    assert found == [job.id for job in reversed(jobs)]


@pytest.mark.parametrize(
    "query", ["?before=nonsense", "?name=shop.charge", "?id__gt=0", "?state=frozen", "?queue=none", "?queue=%00"]
)
def test_an_odd_address_does_not_break_the_list(admin_client: Client, query: str) -> None:
    add_job("dead")

    assert admin_client.get(f"{JOBS}{query}").status_code in (200, 302, 400)


def test_a_jobs_page_says_first_why_it_died(admin_client: Client) -> None:
    job = add_job("dead", input={"order": 7, "password": "s3cret"}, result={"token": "t0p"})
    add_attempt(job, traceback="Traceback: in charge()", decision="attempts-exhausted")
    add_attempt(job, kind="retry", by="ann", reason="mended")

    text = page(admin_client, page_of(job))

    order = [
        "It is a dead letter",
        f"python manage.py jobs retry {job.id}",
        "Traceback: in charge()",
        "order-0",
        "********",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    for part in ("by ann: mended", "ValueError"):
        assert part in text
    assert "s3cret" not in text
    assert "t0p" not in text


@pytest.mark.parametrize("state", [*State, "frozen"])
def test_a_job_of_any_state_and_name_has_a_page_with_what_can_be_done(admin_client: Client, state: str) -> None:
    job = add_job(state, name="<b>no code knows it</b>\x1b", tenant_id="<i>tenant</i>")

    text = page(admin_client, page_of(job))

    assert "&lt;b&gt;no code knows it&lt;/b&gt;\\x1b" in text
    assert "<b>no" not in text
    assert "<i>tenant" not in text
    assert ('value="retry"' in text) == (state in ("dead", "failed"))
    assert ('value="cancel"' in text) == (state in ("ready", "delayed", "running", "suspended"))


def test_nothing_can_be_added_changed_or_deleted(admin_client: Client) -> None:
    job, entry, event = add_job("running"), add_staged(), add_event()

    for base, row in ((JOBS, job.pk), (OUTBOX, entry.pk), (EVENTS, event.pk)):
        assert admin_client.get(f"{base}add/").status_code == 403
        assert admin_client.post(f"{base}{row}/change/", {"state": "done"}).status_code == 403
        assert admin_client.post(f"{base}{row}/delete/", {"post": "yes"}).status_code == 403
        act(admin_client, "delete_selected", row, url=base, post="yes")
    assert states(job) == ["running"]
    assert OutboxEntry.objects.count() == JobEvent.objects.count() == 1


def test_a_page_of_a_row_that_is_not_there_leads_back(admin_client: Client) -> None:
    for row in (uuid7(), "nonsense", "7", "9" * 30):
        for base in (JOBS, OUTBOX, EVENTS):
            assert admin_client.get(f"{base}{row}/change/").status_code == 302


@pytest.mark.parametrize(
    ("action", "state", "after"),
    [("retry", "dead", "ready"), ("cancel", "ready", "cancelled"), ("cancel", "running", "cancelled")],
)
def test_an_action_is_confirmed_answered_row_by_row_and_logged(
    seen_by: SeenBy, action: str, state: str, after: str
) -> None:
    client = seen_by("view_job", f"{action}_job")
    job, done = add_job(state), add_job("done")

    asked = act(client, action, job.id, done.id)
    assert asked.status_code == 200
    text = asked.content.decode()
    assert f"python manage.py jobs {action} {job.id} {done.id}" in text
    assert f">{action.capitalize()} 2 jobs</button>" in text
    assert states(job) == [state]
    assert LogEntry.objects.count() == 0

    told = confirm(client, action, job.id, done.id, reason="it is mended")

    assert states(job, done) == [after, "done"]
    assert any(str(job.id) in message for message in told)
    assert any(f"job {done.id} is done; only" in message for message in told)
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user.get_username()) == (str(job.id), JobAttempt.objects.get().by)
    assert "it is mended" in entry.change_message
    assert JobAttempt.objects.get().reason == "it is mended"


@pytest.mark.parametrize("action", ["retry", "cancel"])
def test_an_action_needs_its_own_permission(seen_by: SeenBy, action: str) -> None:
    other = {"retry": "cancel", "cancel": "retry"}[action]
    job = add_job("dead" if action == "retry" else "ready")
    before = job.state
    viewer = seen_by("view_job", "change_job", "delete_job", "add_job", f"{other}_job", "retry_outboxentry")

    assert act(viewer, action, job.id, confirmed="yes").status_code == 403
    assert f'value="{action}"' not in page(viewer, JOBS)
    assert f'value="{action}"' not in page(viewer, page_of(job))
    assert states(job) == [before]


def test_looking_needs_a_permission_and_acting_needs_to_look(seen_by: SeenBy) -> None:
    job = add_job("dead")
    client = seen_by("retry_job", "cancel_job")

    assert client.get(JOBS).status_code == 403
    assert client.get(page_of(job)).status_code == 403
    assert act(client, "retry", job.id, confirmed="yes").status_code == 403
    assert states(job) == ["dead"]


def test_an_action_is_a_post_with_its_token(seen_by: SeenBy) -> None:
    job = add_job("dead")
    client = seen_by("view_job", "retry_job", enforce_csrf_checks=True)
    query = {"action": "retry", "_selected_action": str(job.id), "confirmed": "yes"}

    client.get(JOBS, query)
    assert states(job) == ["dead"]
    assert client.post(JOBS, query).status_code == 403
    assert states(job) == ["dead"]

    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page(client, page_of(job)))
    assert token
    client.post(JOBS, {**query, "csrfmiddlewaretoken": token[1]})
    assert states(job) == ["ready"]


def test_a_selection_is_bounded(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [add_job("dead", number=n) for n in range(4)]
    monkeypatch.setattr(repairs, "MAX_SELECTED", 3)

    (told,) = confirm(admin_client, "retry", *[job.id for job in jobs])

    assert "At most 3 can be selected at once" in told
    assert states(*jobs) == ["dead"] * 4
    act(admin_client, "retry", jobs[0].id, confirmed="yes", select_across="1")
    assert states(*jobs) == ["ready", "dead", "dead", "dead"]


@pytest.mark.parametrize(
    "data",
    [
        {"action": "retry"},
        {"action": "", "_selected_action": ID},
        {"action": "explode", "_selected_action": ID},
        {"action": "retry", "_selected_action": "nonsense"},
        {"_selected_action": ID},
    ],
    ids=str,
)
def test_an_action_that_makes_no_sense_changes_nothing(admin_client: Client, data: dict[str, str]) -> None:
    job = add_job("dead", id=UUID(ID))

    answer = admin_client.post(JOBS, {"confirmed": "yes", **data}, follow=True)

    assert "Nothing was changed" in answer.content.decode()
    assert states(job) == ["dead"]


def test_a_reason_that_cannot_be_kept_is_asked_for_again(admin_client: Client) -> None:
    job = add_job("dead")

    for reason in ("x" * 256, "a\0b"):
        answer = act(admin_client, "retry", job.id, confirmed="yes", reason=reason)
        assert answer.status_code == 200
        assert "errorlist" in answer.content.decode()
    assert states(job) == ["dead"]


def test_what_is_not_logged_is_not_done(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = add_job("dead")
    admin_client.raise_request_exception = False

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the log is full")

    monkeypatch.setattr(repairs.RepairingAdmin, "log_change", fail)
    assert act(admin_client, "retry", job.id, confirmed="yes").status_code == 500
    assert states(job) == ["dead"]


def test_a_repair_that_the_database_refuses_is_told_and_changes_nothing(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job("dead")

    def fail(*_: object, **__: object) -> None:
        raise OperationalError("deadlock detected")

    monkeypatch.setattr(repairs.RepairingAdmin, "log_change", fail)
    (told,) = confirm(admin_client, "retry", job.id)

    assert told.startswith("The database refused (deadlock detected)")
    assert states(job) == ["dead"]


def test_set_aside_rows_come_first_and_are_retried_with_their_own_permission(seen_by: SeenBy) -> None:
    entry, waiting, published = add_staged(), add_staged(None), add_staged("published", job_id=uuid7())
    viewer, mender = seen_by("view_outboxentry", "retry_job"), seen_by("view_outboxentry", "retry_outboxentry")

    text = page(viewer, OUTBOX)
    assert str(entry.id) in text
    assert str(waiting.id) not in text
    assert str(waiting.id) in page(viewer, f"{OUTBOX}?outcome=waiting")
    assert str(published.id) in page(viewer, f"{OUTBOX}?outcome=newest")
    assert f"{published.id}/change" in page(viewer, f"{OUTBOX}?q={published.id}")
    assert "its key is held by another input" in page(viewer, f"{OUTBOX}{entry.id}/change/")
    assert act(viewer, "retry", entry.id, url=OUTBOX, confirmed="yes").status_code == 403

    told = confirm(mender, "retry", entry.id, published.id, url=OUTBOX)

    assert any(str(entry.id) in message for message in told)
    assert any("only that one can be retried" in message for message in told)
    assert OutboxEntry.objects.get(pk=entry.pk).outcome is None
    assert LogEntry.objects.get().object_id == str(entry.id)


PAGES = (
    JOBS,
    f"{JOBS}?state=all",
    f"{JOBS}?state=done&queue=mail",
    f"{JOBS}?q=order",
    OUTBOX,
    f"{OUTBOX}?outcome=newest",
    EVENTS,
    f"{EVENTS}?q=review.done",
)


def test_the_queries_of_a_page_do_not_grow_with_the_tables_and_count_nothing(admin_client: Client) -> None:
    job = add_job("dead", number=1000)

    def queries() -> list[int]:
        counts = []
        for url in (*PAGES, page_of(job)):
            with CaptureQueriesContext(connection) as captured:
                page(admin_client, url)
            ours = [one["sql"] for one in captured if re.search("x_jobs|x_outbox|x_job_events", one["sql"])]
            for sql in ours:
                if "RECURSIVE" not in sql:  # the depth of the queues, which counts to a cap
                    assert "COUNT(" not in sql.upper()
                    assert "LIMIT" in sql or re.search(r'"id" (=|IN)', sql) or "json" in sql, sql
            counts.append(len(captured))
        return counts

    def fill() -> None:
        for n in range(60):
            add_job("dead", number=n)
            add_job("done", number=n, queue="mail", idempotency_key="order")
            add_staged()
            add_event()
        for _ in range(60):
            add_attempt(job)
            add_step(job, f"step-{uuid7()}", 1)

    fill()
    before = queries()
    fill()

    assert queries() == before
    assert max(before) <= 25
