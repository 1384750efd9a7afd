"""The numbered system checks."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

from ultimat3_jobs.durations import parse_duration

pytestmark = pytest.mark.django_db  # other checks ask the database what it can do


def ours(setting: Any) -> list[CheckMessage]:
    """Return what the checks of this app say of a setting, as `manage.py check` runs them."""
    with override_settings(ULTIMAT3_JOBS=setting):
        return [message for message in run_checks() if str(message.id).startswith("ultimat3_jobs.")]


@pytest.mark.parametrize("setting", [{}, {"LEASE": "30s", "RENEWAL": "10s"}, {"LEASE": "3ms", "RENEWAL": "1ms"}])
def test_sound_settings_pass(setting: Any) -> None:
    assert ours(setting) == []


def test_e001_settings_that_cannot_be_read_are_reported_with_their_fix() -> None:
    (message,) = ours({"LEASE": "soon"})

    assert message.id == "ultimat3_jobs.E001"
    assert "soon" in message.msg
    assert message.hint == 'ULTIMAT3_JOBS["LEASE"] = "30s"'


@override_settings(ULTIMAT3_JOBS={"LEASES": "30s"})
def test_e001_stops_a_command() -> None:
    with pytest.raises(SystemCheckError, match=r"ultimat3_jobs\.E001.*LEASES"):
        call_command("check")


@pytest.mark.parametrize(
    "setting",
    [
        {"LEASE": "30s", "RENEWAL": "30s"},
        {"LEASE": "30s", "RENEWAL": "10001ms"},
        {"LEASE": "29s"},
        {"RENEWAL": "11s"},
        {"LEASE": "50ms", "RENEWAL": "1s"},
        {"LEASE": "10001ms", "RENEWAL": "9s"},
    ],
)
def test_e002_a_renewal_over_a_third_of_the_lease_is_reported_with_one_that_is_not(setting: dict[str, Any]) -> None:
    (message,) = ours(setting)
    assert message.id == "ultimat3_jobs.E002"
    assert message.hint is not None
    proposed = re.search(r'ULTIMAT3_JOBS\["RENEWAL"\].*"(\w+)"', message.hint)
    assert proposed, message.hint

    assert parse_duration(proposed[1]) > timedelta(0)
    assert ours(setting | {"RENEWAL": proposed[1]}) == []


def test_e002_of_a_lease_too_short_for_any_renewal_says_to_lengthen_it() -> None:
    (message,) = ours({"LEASE": "2ms", "RENEWAL": "1ms"})

    assert message.id == "ultimat3_jobs.E002"
    assert message.hint == 'set ULTIMAT3_JOBS["LEASE"] to "30s"'
