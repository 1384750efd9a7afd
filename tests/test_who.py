"""On whose behalf commands say that they do things."""

from __future__ import annotations

import getpass

import pytest

from tests.app.models import Item
from tests.backfills.sweeping import declare
from tests.commanding import printed
from tests.inspection.rows import add_job
from ultimat3_jobs.management.reporting import who
from ultimat3_jobs.models import Backfill, Job, JobAttempt

pytestmark = pytest.mark.usefixtures("queue")


def test_each_repair_and_each_control_names_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    dead, live = add_job("dead"), add_job("ready")
    declare(None, Item)
    started = printed("backfill", "t.backfill", "--write")
    swept = Job.objects.get(name="t.backfill")

    printed("jobs", "retry", dead.id)
    printed("jobs", "cancel", live.id)
    printed("jobs", "pause", swept.id)
    assert Backfill.objects.get(pk=swept.run_id).paused_by == "manage.py jobs (ann)"
    printed("jobs", "resume", swept.id)
    printed("jobs", "pace", swept.id, "--rate", 3)

    assert started
    assert swept.enqueued_by == "manage.py backfill (ann)"
    kept = {(one.kind, one.by) for one in JobAttempt.objects.all()}
    assert kept == {(kind, "manage.py jobs (ann)") for kind in ("retry", "cancel", "pause", "resume", "pace")}


def test_where_the_user_has_no_name_the_command_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert who("manage.py jobs") == "manage.py jobs"


def test_a_name_is_kept_as_far_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "a\nb\x1b" + "x" * 300)

    assert who("manage.py jobs").startswith("manage.py jobs (abx")
    assert len(who("manage.py jobs")) == 255
