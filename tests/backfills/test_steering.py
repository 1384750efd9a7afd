"""`manage.py jobs pause | resume | pace`: a live pass by its id, the first digits of it, or the backfill's name."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client

from tests.app.models import Item
from tests.backfills.sweeping import declare, handled, ledger, sweep
from tests.inspection.rows import add_job
from tests.processes import Processes
from tests.test_admin import act
from tests.working import history, row, run_due
from ultimat3_jobs import Retry, registry
from ultimat3_jobs.drivers import get_driver
from ultimat3_jobs.management.reporting import who

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture
def started(queue: None) -> UUID:
    Item.objects.bulk_create(Item(number=number) for number in range(10))
    return declare(None, Item, batch=10, rate=5).enqueue().id


def jobs(*arguments: object) -> str:
    out = io.StringIO()
    call_command("jobs", *map(str, arguments), stdout=out)
    return out.getvalue()


def answered(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(jobs(*arguments, "--json"))
    assert found["version"] == 1
    return found


def refused(*arguments: object) -> str:
    with pytest.raises(CommandError) as error:
        jobs(*arguments)
    return str(error.value)


@pytest.mark.parametrize("by", ["id", "digits", "name", "former name"])
def test_a_pass_is_found_by_its_id_or_by_the_name_of_its_backfill(started: UUID, by: str) -> None:
    declare(None, Item, batch=10, rate=5, aliases=["t.former"])
    which = {"id": str(started), "digits": started.hex[:20], "name": "t.backfill", "former name": "t.former"}[by]

    text = jobs("pause", which, "--reason", "too much load")

    assert text.startswith(f"{started} t.backfill is paused")
    assert f"python manage.py jobs resume {started}" in text
    kept = ledger(row(started))
    assert (kept.paused_by, kept.pause_reason) == (who("manage.py jobs"), "too much load")


@pytest.mark.parametrize("arguments", [("pause",), ("resume",), ("pace", "--rate", "1")], ids=lambda one: one[0])
def test_an_empty_name_steers_no_pass_that_happens_to_be_live(started: UUID, arguments: tuple[str, ...]) -> None:
    for empty in ("", " "):
        assert "X_BACKFILL_UNKNOWN" in refused(arguments[0], empty, *arguments[1:])

    assert history(started) == []


@pytest.mark.parametrize("asked", ["t.renamed", "t.backfill"])
def test_a_pass_that_was_queued_under_a_former_name_is_cancelled_by_any(
    started: UUID, isolated_registry: None, asked: str
) -> None:
    registry._by_name.clear()
    declare(None, Item, name="t.renamed", aliases=["t.backfill"])

    assert "--write would cancel 1 job." in jobs("cancel", "--name", asked)
    assert jobs("cancel", "--name", asked, "--write").startswith(f"{started} cancelled\n")
    assert row(started).state == "cancelled"


def test_a_name_that_looks_like_an_id_is_a_name(started: UUID) -> None:
    named = declare(None, Item, name=started.hex[:8]).enqueue().id

    assert jobs("pause", started.hex[:8]).startswith(f"{named} ")


def test_a_pass_is_resumed_and_goes_on(started: UUID) -> None:
    jobs("pause", started)
    run_due()

    assert jobs("resume", "t.backfill").startswith(f"{started} t.backfill goes on")

    run_due()
    assert handled(Item) == {1: 10}


def test_to_resume_what_is_not_paused_is_no_error(started: UUID) -> None:
    assert "was not paused; nothing was changed" in jobs("resume", started)
    assert answered("resume", started)["verdict"] == "not-paused"


def test_a_pace_is_changed_and_told(started: UUID) -> None:
    assert "2 pages a second at most, 22:00-06:00" in jobs(
        "pace", started, "--rate", 2, "--window", "22:00-06:00", "--reason", "it is day"
    )
    found = answered("pace", started, "--no-window")

    assert (found["verdict"], found["pass"]["rate"], found["pass"]["window"]) == ("paced", 2, None)
    assert [(one.rule, one.reason) for one in history(started)] == [
        ("rate 2, window 22:00-06:00", "it is day"),
        ("no window", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "give --rate, --window or --no-window"),
        (("--rate", "0"), "'0' is no number of pages a second from 0.0001 to 1,000"),
        (("--rate", "nan"), "'nan' is no number of pages a second"),
        (("--rate", "fast"), "'fast' is no number of pages a second"),
        (("--window", "late"), "give hours as 22:00-06:00"),
        (("--window", "22:00-22:00"), "give hours as 22:00-06:00"),
        (("--window", "22:00-06:00", "--no-window"), "not allowed with argument"),
    ],
)
def test_a_pace_that_is_none_is_refused(started: UUID, arguments: tuple[str, ...], why: str) -> None:
    assert why in refused("pace", started, *arguments)
    assert history(started) == []


def test_what_is_no_live_pass_is_refused_with_what_mends_it(started: UUID) -> None:
    assert "did you mean 't.backfill'?" in refused("pause", "t.backfil")
    assert "X_JOB_UNKNOWN" in refused("pause", "0" * 32)
    assert "X_BACKFILL_NOT_LIVE" in refused("pause", add_job("ready").id)
    get_driver().cancel([started])
    text = refused("resume", "t.backfill")
    assert "X_BACKFILL_NOT_LIVE: no pass of backfill 't.backfill' is live" in text
    assert "fix: python manage.py backfill --list --name t.backfill" in text
    assert f"cannot pace the pass {started} of backfill 't.backfill': it is cancelled" in (
        refused("pace", started, "--rate", 1)
    )


def test_a_refusal_is_json_where_json_is_asked_for(processes: Processes) -> None:
    output = processes.run("jobs", "pause", "0" * 32, "--json", status=1)

    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    found = json.loads(line)
    assert (found["version"], found["error"]["code"]) == (1, "X_JOB_UNKNOWN")
    assert found["error"]["fix"] == "python manage.py backfill --list"


def test_show_tells_the_pass_of_a_job(started: UUID) -> None:
    jobs("pause", started, "--reason", "too\x1b[31m red")

    text = jobs("show", started)

    assert "backfill:     t.backfill" in text
    assert f"by {who('manage.py jobs')}: too\\x1b[31m red" in text
    assert f"python manage.py jobs resume {started}" in text
    told = answered("show", started)["pass"]
    assert (told["status"], told["paused_by"], told["begun"]) == ("paused", who("manage.py jobs"), True)
    assert answered("show", add_job("dead").id)["pass"] is None


def test_a_preview_says_what_becomes_of_a_sweep() -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(4))
    failing = [True]

    def handler(run: Any, rows: list[Item]) -> None:
        Item.objects.filter(pk__in=[one.pk for one in rows]).update(handled=F("handled") + 1)
        if failing and rows[0].number == 2:
            failing.clear()
            raise ValueError("once")

    one = sweep(declare(handler, Item, batch=2, retry=Retry(attempts=1)))
    assert (one.state, handled(Item)) == ("dead", {0: 2, 1: 2})

    goes_on, anew = jobs("retry", one.id, "--preview"), jobs("retry", one.id, "--preview", "--from-step", "sweep")
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    asked = act(client, "retry", one.id, from_step="sweep").content.decode()

    forgets = "sweep forgets its cursor: every row is handled again, from the first one"
    assert "  skipped, their results are kept: 0\n" in goes_on
    assert "  sweep goes on behind its cursor\n" in goes_on
    assert f"  {forgets}\n" in anew
    assert f"{forgets}." in asked
    assert answered("retry", one.id, "--preview")["previews"][0]["notes"] == ["sweep goes on behind its cursor"]
    # And so it is.
    jobs("retry", one.id, "--from-step", "sweep")
    run_due()
    assert handled(Item) == {1: 2, 2: 2}
