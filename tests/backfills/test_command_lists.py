"""`manage.py backfill --list` and `--pending`: where backfills stand, and whether a deploy may go on."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.app.models import Item
from tests.backfills.commanding import as_json, refused, run
from tests.backfills.ledger_rows import ledger_row
from tests.backfills.sweeping import declare, sweep
from tests.commanding import printed
from tests.declaring import error_of
from tests.working import run_due
from ultimat3_jobs.backfills.controls import pause
from ultimat3_jobs.backfills.find import find_backfill
from ultimat3_jobs.inspection.repair import cancel
from ultimat3_jobs.models import Backfill as Ledger
from ultimat3_jobs.moments import instant

pytestmark = pytest.mark.usefixtures("queue", "nothing_declared")


def failing(run: Any, rows: list[Item]) -> None:
    raise ValueError("never \x1b[2J")


def commands(text: str) -> list[str]:
    """Return the command lines in a text."""
    return [line.strip().partition("  #")[0] for line in text.splitlines() if line.strip().startswith("python ")]


def in_staging(settings: Any) -> None:
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "ENVIRONMENT": "staging"}


@pytest.fixture
def several(settings: Any) -> None:
    """Backfills of every status."""
    in_staging(settings)
    Item.objects.create()
    sweep(declare(None, Item, name="a.completed"))
    sweep(declare(failing, Item, name="b.failed", retry=_once()))
    declare(None, Item, name="c.pending")
    declare(None, Item, name="d.elsewhere", environments=["production"])
    cancelled = declare(None, Item, name="e.cancelled", exclusive=False).enqueue()
    ledger_row("e.cancelled", run_id=cancelled.run_id)  # it had begun
    cancel([cancelled.id], by="ann", reason="on purpose")
    declare(None, Item, name="f.running", exclusive=False).enqueue()


def _once() -> Any:
    from ultimat3_jobs import Retry

    return Retry(attempts=1)


def test_a_list_tells_where_each_stands_and_what_comes_next(several: None) -> None:
    told = run("--list")

    assert [line for line in told.splitlines() if not line.startswith(" ")] == [
        "a.completed  completed",
        "b.failed  failed; a deploy that needs it must wait",
        "c.pending  pending; a deploy that needs it must wait",
        "d.elsewhere  excluded",
        "e.cancelled  cancelled; a deploy that needs it must wait",
        "f.running  running",
    ]
    assert "python manage.py backfill c.pending --write" in commands(told)
    assert "It failed (attempts-exhausted): ValueError: never \\x1b[2J" in told
    assert "\x1b" not in told


def test_a_list_as_json_and_its_filters(several: None) -> None:
    found = as_json("--list")["backfills"]

    assert {one["name"]: one["status"] for one in found}["d.elsewhere"] == "excluded"
    (completed,) = found[0]["passes"]
    assert (completed["status"], completed["percent"], completed["processed"]) == ("completed", 100, 1)
    assert [one["name"] for one in as_json("--list", "--status", "failed")["backfills"]] == ["b.failed"]
    assert [one["name"] for one in as_json("--list", "--name", "c.pending")["backfills"]] == ["c.pending"]
    assert sum(len(one["passes"]) for one in as_json("--list", "--limit", 2)["backfills"]) == 2
    # The command is that of the newest pass, whether or not that is listed.
    assert commands(run("--list", "--limit", 1)) == commands(run("--list"))
    assert "did you mean 'c.pending'?" in refused("--list", "--name", "c.pendin")[1]
    with pytest.raises(CommandError, match=r"--name is empty"):
        run("--list", "--name", "")


def test_a_deploy_is_held_by_what_is_unswept_alone(several: None) -> None:
    told, why = refused("--pending")

    names = [line.split()[0] for line in told.splitlines() if not line.startswith(" ")]
    assert names == ["b.failed", "c.pending", "e.cancelled", "f.running"]
    assert "f.running  running: its migration waits for its end\n" in told
    assert why == "3 backfills must be swept first"
    found = as_json("--pending", status=1)
    assert [one["name"] for one in found["pending"]] == names[:-1]
    assert len(found["backfills"]) == 6


def test_the_commands_that_let_a_deploy_go_on_can_be_run(several: None) -> None:
    declare(None, Item, name="b.failed", retry=_once())
    for line in commands(refused("--pending")[0]):
        call_command(*shlex.split(line)[2:])
    run_due()

    told = run("--pending")  # one may still wait for the table
    assert told.startswith("nothing "), told
    assert as_json("--pending")["pending"] == []


def test_a_deploy_is_held_where_nobody_says_which_environment_this_is() -> None:
    declare(None, Item, environments=["production"])

    told, _ = refused("--pending")

    assert "unknown-environment" in told
    assert 'ULTIMAT3_JOBS["ENVIRONMENT"] = ' in told


def test_without_backfills_nothing_is_unswept() -> None:
    assert run("--pending") == "nothing that is declared is unswept\n"
    assert run("--list") == "no backfill was found\n"


def test_passes_without_a_declaration_are_listed() -> None:
    done = sweep(declare(None, Item))
    Ledger.objects.filter(pk=done.run_id).update(name="t.gone")

    assert "t.gone  completed; no installed code declares it" in run("--list")


def test_a_list_says_of_which_the_declaration_has_changed() -> None:
    Item.objects.create()
    done = sweep(declare(None, Item))
    assert "has changed" not in run("--list")

    Ledger.objects.filter(pk=done.run_id).update(checksum="0" * 64)

    assert "1 of 1 row (100 %)\n        the declaration has changed since it was swept\n" in run("--list")


def test_a_completed_pass_is_listed_with_when_it_completed_and_who_started_it() -> None:
    Item.objects.create()
    declare(None, Item)
    run("t.backfill", "--write")
    run_due()
    kept = Ledger.objects.get()

    told = run("--list")

    assert f"completed at {instant(kept.finished_at)}, started by manage.py backfill (" in told
    assert commands(told) == []
    listed = as_json("--list")["backfills"][0]
    assert listed["command"] == "python manage.py backfill t.backfill --write --force"
    assert listed["passes"][0]["requested_by"] == kept.requested_by


def test_a_backfill_that_has_completed_and_whose_forced_pass_failed_offers_its_retry() -> None:
    Item.objects.create()
    sweep(declare(None, Item))
    job = declare(failing, Item, retry=_once()).enqueue(forced=True)
    run_due()

    assert commands(run("--list")) == [f"python manage.py jobs retry {job.id}"]


def test_of_a_pass_that_has_not_completed_a_list_says_that_the_declaration_has_changed_since_it_began() -> None:
    live = declare(None, Item).enqueue()
    ledger_row("t.backfill", run_id=live.run_id, checksum="0" * 64)

    assert "        the declaration has changed since it began\n" in run("--list")
    assert "declaration: changed since it began" in re.sub(" +", " ", printed("jobs", "show", live.id))


def test_a_tenant_that_cannot_be_told_is_told_for_its_own_backfill_and_holds_a_deploy(settings: Any) -> None:
    live = declare(None, Item, name="b.broken", aliases=["b.former"]).enqueue()
    declare(None, Item, name="b.broken", aliases=["b.former"], tenant=lambda: {}["acme"])
    declare(None, Item, name="a.pending")
    declare(None, Item, name="c.completed")
    ledger_row("c.completed", outcome="completed")
    cause = "X_JOB_DECLARATION_INVALID: the tenant of backfill 'b.broken' cannot be told: it raised KeyError: 'acme'"

    told, why = refused("--pending")
    listed = run("--list")

    assert why == "2 backfills must be swept first"
    assert [line for line in told.splitlines() if not line.startswith(" ")] == [
        "a.pending  pending",
        "b.broken  unknown-tenant",
    ]
    for text in (told, listed):
        assert f'    {cause}\n    tenant=lambda: "acme"  # in tests.backfills.sweeping: ' in text
    # Its pass is found by its name.
    assert f"{live.run_id}  running" in listed
    assert "c.completed  completed\n" in listed
    found = {one["name"]: one for one in as_json("--list")["backfills"]}
    assert found["b.broken"]["refused"]["code"] == "X_JOB_DECLARATION_INVALID"
    assert found["a.pending"]["refused"] is None
    assert [one["name"] for one in as_json("--list", "--status", "unknown-tenant")["backfills"]] == ["b.broken"]
    assert [one["refused"] is None for one in as_json("--pending", status=1)["pending"]] == [True, False]
    assert printed("jobs", "pause", "b.former").startswith(f"{live.run_id} b.broken is paused")


@pytest.mark.parametrize("given", [None, "", " ", 7])
def test_a_tenant_that_is_none_is_told_for_its_own_backfill(given: Any) -> None:
    declare(None, Item, name="b.broken", tenant=lambda: given)

    told, _ = refused("--pending")

    assert ("b.broken  unknown-tenant" in told) or given == 7
    assert "b.broken" in run("--list")


def test_a_pass_that_has_stalled_is_followed_by_a_new_one_and_not_by_a_retry() -> None:
    left = iter([3, 0])
    declare(None, Item, count=lambda: next(left))
    stalled = sweep(find_backfill("t.backfill"))

    again = "python manage.py backfill t.backfill --write"
    assert commands(refused("--pending")[0]) == commands(run("--list")) == [again]
    ended = as_json("t.backfill", "--wait", status=1)["passes"][0]
    assert [one["command"] for one in ended["commands"]] == [again]
    assert commands(refused("t.backfill", "--wait")[0]) == [again]
    for answer in (printed("jobs", "ls", "--state", "dead"), printed("jobs", "show", stalled.id)):
        assert commands(answer)[0] == again
        assert f"jobs retry {stalled.id}\n" not in answer
    assert json.loads(printed("jobs", "ls", "--json"))["jobs"][0]["command"] == again
    assert error_of("X_BACKFILL_NOT_LIVE", lambda: pause(stalled.id, by="ann", reason="")).fix == again
    call_command(*shlex.split(again)[2:])
    run_due()

    assert run("--pending") == "nothing that is declared is unswept\n"


def test_a_pass_whose_count_was_none_goes_on_by_a_retry() -> None:
    declare(None, Item, count=lambda: None)
    failed = sweep(find_backfill("t.backfill"))

    assert commands(refused("--pending")[0]) == [f"python manage.py jobs retry {failed.id}"]
    declare(None, Item, count=lambda: 0)
    call_command("jobs", "retry", str(failed.id))
    run_due()

    assert run("--pending") == "nothing that is declared is unswept\n"


def test_what_is_told_of_a_backfill_does_not_hang_on_the_passes_that_are_listed() -> None:
    sweep(declare(None, Item, name="a.completed"))
    Ledger.objects.filter(pk=sweep(declare(None, Item, name="b.gone")).run_id).update(name="t.gone")
    cancelled = declare(None, Item, name="c.again").enqueue()
    ledger_row("c.again", run_id=cancelled.run_id, day=1)
    ledger_row("c.again", outcome="completed")
    cancel([cancelled.id], by="ann", reason="")
    sweep(declare(None, Item, name="d.newest", exclusive=False))

    told = run("--list", "--limit", 1)

    assert [line.partition("  ")[0] for line in told.splitlines() if not line.startswith(" ")] == [
        *("a.completed", "b.gone", "c.again", "d.newest", "t.gone"),
    ]
    assert commands(told) == [
        "python manage.py backfill b.gone --write",
    ]
    assert [one["command"].rpartition("backfill ")[2] for one in as_json("--list", "--limit", 1)["backfills"]] == [
        *("a.completed --write --force", "b.gone --write", "c.again --write --force", "d.newest --write --force", ""),
    ]
    assert sum(len(one["passes"]) for one in as_json("--list", "--limit", 1)["backfills"]) == 1
    # What is not asked for takes no place on the list.
    completed = as_json("--list", "--status", "completed", "--limit", 2)["backfills"]
    assert [(one["name"], len(one["passes"])) for one in completed if one["passes"]] == [("d.newest", 1), ("t.gone", 1)]
    assert len(as_json("--list", "--name", "a.completed", "--limit", 1)["backfills"][0]["passes"]) == 1


def test_a_backfill_that_may_not_start_here_is_given_no_command_that_starts_it(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(None, Item, environments=["production", "staging"])
    monkeypatch.setenv("ENVIRONMENT", "staging")

    (mend,) = (line for line in run("--list").splitlines() if "ULTIMAT3_JOBS" in line)
    assert mend.endswith("; this backfill is meant for 'production', 'staging'")
    assert mend in refused("--pending")[0].splitlines()
    typed: dict[str, Any] = {"ULTIMAT3_JOBS": {}}
    exec(mend.strip(), typed)
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, **typed["ULTIMAT3_JOBS"]}
    assert commands(run("--list")) == ["python manage.py backfill t.backfill --write"]
    settings.ULTIMAT3_JOBS = {**settings.ULTIMAT3_JOBS, "ENVIRONMENT": "laptop"}

    assert commands(run("--list")) == []
