"""System checks: what would fail later is said at the start, with a hint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.checks import CheckMessage, Error, register

from ultimat3_jobs.durations import format_duration
from ultimat3_jobs.errors import SettingsInvalid
from ultimat3_jobs.settings import get_settings

RENEWALS_A_LEASE = 3


@register()
def check_settings(**_: Any) -> list[CheckMessage]:
    """E001: `ULTIMAT3_JOBS` cannot be read. E002: leases are renewed too seldom to survive one missed renewal."""
    try:
        settings = get_settings()
    except SettingsInvalid as error:
        return [Error(error.cause, hint=error.fix, id="ultimat3_jobs.E001")]
    if settings.renewal * RENEWALS_A_LEASE > settings.lease:
        # Whole milliseconds, rounded down: what the hint proposes must itself pass.
        longest = timedelta(milliseconds=settings.lease // timedelta(milliseconds=RENEWALS_A_LEASE))
        return [
            Error(
                f'ULTIMAT3_JOBS["RENEWAL"] is {format_duration(settings.renewal)}, over a third of "LEASE" '
                f"({format_duration(settings.lease)}): one late renewal and a job runs twice at once",
                hint=f'set ULTIMAT3_JOBS["RENEWAL"] to "{format_duration(longest)}" or less'
                if longest
                else 'set ULTIMAT3_JOBS["LEASE"] to "30s"',
                id="ultimat3_jobs.E002",
            )
        ]
    return []
