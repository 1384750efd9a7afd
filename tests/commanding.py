"""How tests run commands of `manage.py`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command


def printed(command: str, *arguments: object) -> str:
    """Run a command, and return what it printed."""
    out = io.StringIO()
    call_command(command, *map(str, arguments), stdout=out)
    return out.getvalue()


def printed_json(command: str, *arguments: object, status: int = 0) -> dict[str, Any]:
    """Run a command with --json, expect an exit status, and return the object."""
    out = io.StringIO()
    if status:
        with pytest.raises(SystemExit) as exited:
            call_command(command, *map(str, arguments), "--json", stdout=out)
        assert exited.value.code == status
    else:
        call_command(command, *map(str, arguments), "--json", stdout=out)
    (line,) = out.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found["version"] == 1
    return found
