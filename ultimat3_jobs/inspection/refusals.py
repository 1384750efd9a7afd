"""What a project's code raises about one backfill, as a refusal that names it: others have nothing to do with it."""

from __future__ import annotations

from django.db import DatabaseError

from ultimat3_jobs.backfills.asking import told
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.errors import DeclarationInvalid, DriverUnavailable, JobsError
from ultimat3_jobs.text import command_line


def refusal(name: str, error: BaseException) -> JobsError:
    """Return what was raised about a backfill as a refusal: itself, where it is one.

    Args:
        name: of the backfill.
        error: what was raised.
    """
    if isinstance(error, JobsError):
        return error
    if isinstance(error, DatabaseError):
        return DriverUnavailable(
            f"a database refused what backfill {name!r} asks: {told(error)}", fix=command_line("check")
        )
    return DeclarationInvalid(
        f"what backfill {name!r} is declared with raised {told(error)}", fix=f"{backfill_command(name)}  # shows where"
    )
