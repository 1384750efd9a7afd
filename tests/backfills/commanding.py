"""How tests run `manage.py backfill`."""

from __future__ import annotations

import io
from functools import partial

import pytest
from django.core.management import CommandError, call_command

from tests.commanding import printed, printed_json

run = partial(printed, "backfill")
as_json = partial(printed_json, "backfill")


def refused(*arguments: object) -> tuple[str, str]:
    """Expect a refusal; return what was printed, and the refusal."""
    out = io.StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("backfill", *map(str, arguments), stdout=out)
    assert raised.value.returncode == 1
    return out.getvalue(), str(raised.value)
