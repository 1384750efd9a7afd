"""How tests run `manage.py backfill`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command


def run(*arguments: object) -> str:
    """Run the command, and return what it printed."""
    out = io.StringIO()
    call_command("backfill", *map(str, arguments), stdout=out)
    return out.getvalue()


def as_json(*arguments: object, status: int = 0) -> dict[str, Any]:
    """Run the command with --json, expect an exit status, and return the object."""
    out = io.StringIO()
    if status:
        with pytest.raises(SystemExit) as exited:
            call_command("backfill", *map(str, arguments), "--json", stdout=out)
        assert exited.value.code == status
    else:
        call_command("backfill", *map(str, arguments), "--json", stdout=out)
    (line,) = out.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found["version"] == 1
    return found


def refused(*arguments: object) -> tuple[str, str]:
    """Expect a refusal; return what was printed, and the refusal."""
    out = io.StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("backfill", *map(str, arguments), stdout=out)
    assert raised.value.returncode == 1
    return out.getvalue(), str(raised.value)
