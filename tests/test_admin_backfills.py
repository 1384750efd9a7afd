"""Backfills in the admin: where they stand, how far their passes are, and what may be done by whom."""

from __future__ import annotations

import re
from datetime import time
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.app.models import Item
from tests.backfills.sweeping import declare
from tests.inspection.rows import LATER, add_job, add_worker
from tests.test_admin import SeenBy, act, confirm, page, seen_by
from tests.working import history, row
from ultimat3_jobs.ids import uuid7
from ultimat3_jobs.models import Backfill, Job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("isolated_registry")]

LIST = "/admin/ultimat3_jobs/backfill/"
ALL = ("view_backfill", "pause_backfill", "cancel_job", "start_backfill")

__all__ = ["seen_by"]  # the fixture


@pytest.fixture
def started(db: None) -> UUID:
    """A pass in the queue, of a backfill over three rows."""
    Item.objects.bulk_create(Item(number=number) for number in range(3))
    declare(None, Item, batch=2, rate=5)
    return add_pass("ready").id


def add_pass(state: str, name: str = "t.backfill", *, begun: bool = False, **values: Any) -> Job:
    job = add_job(state, name=name, idempotency_key="pass", tenant_id=None, input={"forced": False})
    if begun:
        times = {"created_at": job.created_at, "updated_at": job.created_at}
        Backfill.objects.create(run_id=job.id, name=name, table="app_item", batch=2, **times | values)
    return job


def unscoped(tenant: str) -> Any:
    """A project's own scoping that does not know a tenant."""
    raise LookupError(f"no tenant {tenant}")


def page_of(run_id: UUID) -> str:
    return f"{LIST}{run_id}/change/"


def start_of(name: str = "t.backfill") -> str:
    return f"{LIST}start/?name={name}"


def buttons(text: str) -> list[str]:
    return re.findall(r'name="action" value="(\w+)"', text)


def test_the_list_begins_with_what_is_declared_and_where_it_stands(started: UUID, admin_client: Client) -> None:
    declare(None, Item, name="t.never")
    add_pass("dead", "t.gone", begun=True, processed=1, total=2)

    text = page(admin_client, LIST)

    assert re.search(r"t\.never</th>\s*<td>pending</td>\s*<td><strong[^>]*>wait for it", text)
    assert re.search(r"t\.backfill</th>\s*<td>running</td>\s*<td>may go on", text)
    assert "t.gone</th>" not in text
    assert "1 of 2 rows (50 %)" in text
    assert "python manage.py backfill --list" in text
    assert str(started) in text  # which has not begun
    assert "t.gone" not in page(admin_client, f"{LIST}?q=t.backfill").split("result_list")[1]


def test_the_list_of_passes_goes_on_page_by_page(admin_client: Client) -> None:
    passes = [add_pass("done", f"t.{n}", begun=True, outcome="completed").id for n in range(60)]
    found: list[str] = []
    query: str | None = ""
    while query is not None:
        text = page(admin_client, f"{LIST}{query}")
        found += re.findall(r'name="_selected_action" value="([^"]+)"', text)
        older = re.search(r'<a href="([^"]+)" rel="next">', text)
        query = older[1].replace("&amp;", "&") if older else None

    assert found == [str(one) for one in passes[::-1]]


def test_a_passes_page_says_how_far_it_is_and_what_steers_it(admin_client: Client) -> None:
    declare(None, Item)
    job = add_pass("suspended", begun=True, processed=25, total=100, estimated=True, rate=5)
    Job.objects.filter(pk=job.id).update(park_reason="its window is 22:00-06:00", run_at=LATER)

    text = page(admin_client, page_of(job.id))

    assert '<progress id="x-jobs-progress" value="25" max="100">' in text
    assert "25 of about 100 rows (25 %)" in text
    assert "It waits for its turn: its window is 22:00-06:00; it looks again at 2124-02-05 12:00:00 UTC." in text
    assert f"python manage.py jobs pause {job.id}" in text
    assert buttons(text) == ["pause", "pace", "cancel"]
    assert f"/admin/ultimat3_jobs/job/{job.id}/change/" in text
    assert page_of(job.id) in page(admin_client, f"/admin/ultimat3_jobs/job/{job.id}/change/")


def test_a_pass_that_has_not_begun_has_a_page(started: UUID, admin_client: Client) -> None:
    add_worker()

    text = page(admin_client, page_of(started))

    assert "a worker that serves the queue" in text
    assert buttons(text) == ["pause", "pace", "cancel"]


@pytest.mark.parametrize("state", ["done", "dead", "cancelled"])
def test_a_pass_that_has_ended_offers_no_controls(admin_client: Client, state: str) -> None:
    job = add_pass(state, begun=True, outcome="completed" if state == "done" else "")

    text = page(admin_client, page_of(job.id))

    assert buttons(text) == (["retry"] if state == "dead" else [])
    assert ("x-jobs-alarm" in text) is (state == "dead")


def test_what_is_no_pass_leads_back(admin_client: Client) -> None:
    for odd in (uuid7(), "nonsense", add_job("dead").id):
        assert admin_client.get(f"{LIST}{odd}/change/").status_code == 302


def test_a_pass_is_paused_and_resumed_with_a_reason_that_is_kept(started: UUID, seen_by: SeenBy) -> None:
    ann = seen_by(*ALL)
    asked = act(ann, "pause", started, url=LIST).content.decode()
    assert f"python manage.py jobs pause {started}" in asked
    assert not Backfill.objects.exists()

    assert confirm(ann, "pause", started, url=LIST, reason="too much load") == [f"{started}: paused"]

    kept = Backfill.objects.get(pk=started)
    assert kept.paused_by.startswith("ann-")
    assert kept.pause_reason == "too much load"
    assert LogEntry.objects.get().change_message == "Paused. too much load"
    assert buttons(page(ann, page_of(started))) == ["resume", "pace", "cancel"]
    assert confirm(ann, "resume", started, url=LIST) == [f"{started}: resumed"]
    assert Backfill.objects.get(pk=started).paused_at is None
    assert [one.kind for one in history(started)] == ["pause", "resume"]


def test_a_pace_is_asked_for_and_checked(started: UUID, admin_client: Client) -> None:
    def answer(**asked: str) -> str:
        return act(admin_client, "pace", started, url=LIST, confirmed="yes", **asked).content.decode()

    assert "Give a rate, hours, or any hour." in answer()
    assert "does not say" in answer(window="late-early")
    assert "not both" in answer(window="22:00-06:00", always="on")
    assert "greater than or equal to 0.0001" in answer(rate="0")
    assert history(started) == []

    assert answer(rate="2.5", window="22:00-06:00", reason="by day") == ""

    kept = Backfill.objects.get(pk=started)
    assert (kept.rate, f"{kept.window_start:%H:%M}", f"{kept.window_end:%H:%M}") == (2.5, "22:00", "06:00")
    answer(always="on")
    kept.refresh_from_db()
    assert (kept.rate, kept.window_start, kept.window_end) == (2.5, None, None)
    assert [one.rule for one in history(started)] == ["rate 2.5, window 22:00-06:00", "no window"]


def test_a_pace_is_asked_for_beside_the_present_one(started: UUID, admin_client: Client) -> None:
    begun = add_pass("running", "t.other", begun=True, window_start=time(22), window_end=time(6))

    asked = act(admin_client, "pace", started, begun.id, url=LIST).content.decode()

    assert "t.backfill, 0 rows; now 5 pages a second at most, at any hour</span>" in asked
    assert "t.other, 0 rows; now at any speed, 22:00-06:00</span>" in asked
    assert "; now" not in act(admin_client, "pause", started, url=LIST).content.decode()


def test_a_cancelled_pass_says_by_whom_and_why(admin_client: Client) -> None:
    job = add_pass("cancelled", begun=True)
    Job.objects.filter(pk=job.id).update(cancel_requested_by="ann", cancel_reason="by mistake")

    assert "cancelled by ann: by mistake" in page(admin_client, LIST)
    Job.objects.filter(pk=job.id).update(cancel_requested_by="", cancel_reason="")
    assert "cancelled: no reason was given" in page(admin_client, LIST)


def test_a_passes_page_says_when_it_began_and_ended_and_at_which_attempt(admin_client: Client) -> None:
    def facts(job: Job) -> list[tuple[str, str]]:
        text = page(admin_client, page_of(job.id))
        return re.findall(r"<dt>(Attempt|Began|Ended)</dt><dd>([^<]*)</dd>", text)

    moment = "2024-02-29 12:00:00 UTC"
    declare(None, Item)
    assert facts(add_pass("running", begun=True)) == [("Attempt", "1 of 3"), ("Began", moment)]
    assert facts(add_pass("dead", begun=True)) == [("Attempt", "1 of 3"), ("Began", moment), ("Ended", moment)]
    declare(None, Item, name="t.queued")
    assert facts(add_pass("ready", "t.queued")) == [("Attempt", "1 of 3"), ("Began", "not yet")]


def test_a_pass_is_cancelled_with_the_permission_of_jobs(started: UUID, seen_by: SeenBy) -> None:
    assert act(seen_by("view_backfill", "pause_backfill"), "cancel", started, url=LIST).status_code == 403

    assert confirm(seen_by("view_backfill", "cancel_job"), "cancel", started, url=LIST) == [f"{started}: cancelled"]
    assert row(started).state == "cancelled"


def test_a_failed_pass_is_retried_with_the_permission_of_jobs(seen_by: SeenBy) -> None:
    job = add_pass("dead", begun=True)
    assert act(seen_by("view_backfill", "pause_backfill"), "retry", job.id, url=LIST).status_code == 403

    assert confirm(seen_by("view_backfill", "retry_job"), "retry", job.id, url=LIST) == [f"{job.id}: retried"]
    assert row(job.id).state == "ready"


def test_a_failed_pass_is_not_retried_beside_a_live_one_of_another_name(admin_client: Client) -> None:
    declare(None, Item, name="t.new", aliases=["t.old"])
    dead, live = add_pass("dead", "t.old", begun=True), add_pass("ready", "t.new")

    (told,) = confirm(admin_client, "retry", dead.id, url=LIST)

    assert f"another pass of it is live: {live.id}. What to do: python manage.py jobs retry {dead.id}" in told
    assert (row(dead.id).state, LogEntry.objects.exists()) == ("dead", False)


def test_what_has_ended_meanwhile_is_refused_with_what_mends_it(admin_client: Client) -> None:
    job = add_pass("done", begun=True, outcome="completed")

    (told,) = confirm(admin_client, "pause", job.id, url=LIST)

    assert "it has completed. What to do: python manage.py backfill --list --name t.backfill" in told
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("action", ["pause", "resume", "pace"])
def test_who_may_look_may_not_steer(started: UUID, seen_by: SeenBy, action: str) -> None:
    viewer = seen_by("view_backfill")

    text = page(viewer, page_of(started))

    assert buttons(text) == []
    assert "start/?" not in page(viewer, LIST)
    assert act(viewer, action, started, url=LIST, confirmed="yes", rate="1").status_code == 403
    assert viewer.get(start_of()).status_code == 403
    assert viewer.post(start_of()).status_code == 403
    assert seen_by().get(LIST).status_code == 403
    assert seen_by("start_backfill").get(start_of()).status_code == 403
    assert history(started) == []


def test_a_pass_is_started_and_the_log_knows_by_whom(seen_by: SeenBy) -> None:
    declare(None, Item, name="t.new")
    ann = seen_by(*ALL)
    asked = page(ann, start_of("t.new"))
    assert "A pass may start." in asked
    assert "python manage.py backfill t.new --write" in asked
    assert not Job.objects.exists()

    answer = ann.post(start_of("t.new"), {"reason": "the release"}, follow=True)

    (told,) = answer.context["messages"]
    assert str(told).startswith("t.new: pass ")
    assert LogEntry.objects.get().change_message == "Started. the release"


def test_a_start_behind_a_pass_that_failed_says_how_that_one_goes_on(admin_client: Client) -> None:
    declare(None, Item)
    failed = add_pass("dead", begun=True, processed=5)

    asked = page(admin_client, start_of())

    assert "failed after 5 rows" in asked
    assert f"python manage.py jobs retry {failed.id} lets that one go on from its last page." in asked


def test_a_start_beside_a_live_pass_has_a_way_back_and_no_command_that_is_refused(admin_client: Client) -> None:
    declare(None, Item)
    add_pass("running", begun=True)

    asked = page(admin_client, start_of())

    assert "x-jobs-back" in asked
    assert "does the same" not in asked


def test_a_start_that_the_gate_refuses_says_why_and_force_is_asked_for(admin_client: Client) -> None:
    declare(None, Item)
    add_pass("done", begun=True, outcome="completed")

    asked = page(admin_client, start_of())
    assert "As things stand no pass may start: a pass of backfill &#x27;t.backfill&#x27; completed" in asked
    assert "python manage.py backfill t.backfill --write --force" in asked
    answer = admin_client.post(start_of(), {"reason": ""}, follow=True)
    assert "What to do: python manage.py backfill t.backfill --write --force" in str(*answer.context["messages"])
    assert not LogEntry.objects.exists()

    admin_client.post(start_of(), {"forced": "on"})

    assert LogEntry.objects.get().change_message == "Started by force."


def test_whatever_its_code_raises_a_start_answers_with_the_refusal(admin_client: Client, settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "TENANT_CONTEXT": f"{__name__}.unscoped"}
    declare(None, Item, name="t.scope", tenant=lambda: "acme")
    declare(None, Item, name="t.tenant", tenant=lambda: {}["acme"])
    declare(None, Item, name="t.query", tenant=lambda: str(Item.objects.extra(where=["no such"]).count()))

    for name, why in (
        ("t.scope", "is declared with raised LookupError: no tenant acme"),
        ("t.tenant", "cannot be told: it raised KeyError"),
        ("t.query", "cannot be told: it raised django.db.utils."),
    ):
        asked = page(admin_client, start_of(name))
        assert "As things stand no pass may start" in asked
        assert why in asked
        answer = admin_client.post(start_of(name), {"reason": ""}, follow=True)
        assert answer.status_code == 200
        assert why in str(*answer.context["messages"])
    assert not LogEntry.objects.exists()
    assert not Job.objects.exists()


def test_the_list_goes_on_where_the_tenant_of_one_cannot_be_told(admin_client: Client) -> None:
    declare(None, Item, name="t.broken", tenant=lambda: {}["acme"])
    declare(None, Item, name="t.other")
    add_pass("ready", "t.broken")
    add_worker()

    text = page(admin_client, LIST)

    assert re.search(r"t\.broken</th>\s*<td>unknown-tenant</td>\s*<td><strong[^>]*>wait for it", text)
    assert re.search(r"t\.other</th>\s*<td>pending</td>", text)
    assert "a worker that serves the queue" in text


def test_what_is_not_declared_cannot_be_started(admin_client: Client) -> None:
    for name in ("", "t.none", "%00"):
        assert admin_client.get(start_of(name)).status_code == 404


def test_text_from_rows_is_shown_as_what_it_is(admin_client: Client) -> None:
    job = add_pass("suspended", "<b>t", begun=True, paused_by="<i>", pause_reason="\u202eevil", paused_at=None)
    Job.objects.filter(pk=job.id).update(park_reason="<script>x\u202e")

    for url in (LIST, page_of(job.id)):
        text = page(admin_client, url)
        assert "<b>t" not in text
        assert "<script>x" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_the_queries_of_a_page_do_not_grow_with_the_ledger(admin_client: Client) -> None:
    declare(None, Item)

    def queries() -> list[int]:
        counts = []
        for url in (LIST, f"{LIST}?q=t.backfill", page_of(job.id), start_of()):
            with CaptureQueriesContext(connection) as captured:
                page(admin_client, url)
            for one in captured:
                assert "COUNT(" not in one["sql"].upper() or "app_item" not in one["sql"], one["sql"]
            counts.append(len(captured))
        return counts

    job = add_pass("dead", begun=True)
    for _ in range(3):
        add_pass("dead", begun=True)
    before = queries()
    for _ in range(40):
        add_pass("dead", begun=True)

    assert queries() == before
    assert max(before) <= 25
