"""`backfills.py` of every installed app, or each module of a package of that name, is imported when Django starts."""

from __future__ import annotations

import pytest

from tests.scratch_project import ScratchProject

pytestmark = pytest.mark.sqlite_only(reason="the processes are on a SQLite database of their own")

DECLARED = """
from ultimat3_jobs import NO_TENANT, backfill

print("imported", __name__)

@backfill(tenant=NO_TENANT, source=lambda: None)
def {name}(run, rows): ...
"""
LIST = """
from ultimat3_jobs import registry
import sys
print("own", "ultimat3_jobs.backfills.skeleton" in sys.modules)
print("found", [one.name for one in registry.all_jobs() if one.name.startswith(("shop.", "store.", "loose."))])
"""


def test_backfills_of_every_app_are_found_at_the_start(scratch: ScratchProject) -> None:
    scratch.app("shop", {"backfills.py": DECLARED.format(name="ship")})
    scratch.app(
        "store",
        {
            "backfills/__init__.py": "",
            "backfills/zones.py": DECLARED.format(name="zones"),
            "backfills/areas.py": DECLARED.format(name="areas"),
            "backfills/__main__.py": "1 / 0",
        },
    )
    scratch.app("loose", {"backfills/without_init.py": DECLARED.format(name="late")})
    scratch.app("idle", {})

    started = scratch.django(LIST)

    assert started.wait() == 0
    output = started.output()
    assert "found ['loose.late', 'shop.ship', 'store.areas', 'store.zones']" in output
    assert "own False" in output, "the package that makes backfills declares none"
    # In the order of their names, whatever the folder says.
    assert [line for line in output.splitlines() if line.startswith("imported store")] == [
        "imported store.backfills.areas",
        "imported store.backfills.zones",
    ]


@pytest.mark.parametrize("place", ["backfills.py", "backfills/__init__.py", "backfills/late.py"])
@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("1 / 0  # on purpose", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
    ids=["error", "import"],
)
def test_one_that_raises_stops_the_start_with_its_traceback(
    scratch: ScratchProject, place: str, source: str, error: str
) -> None:
    scratch.app("shop", {place: source})

    started = scratch.manage("check")

    assert started.wait() == 1
    output = started.output()
    assert f'File "{scratch.folder}/shop/{place}", line 1' in output
    assert error in output
    assert "System check identified no issues" not in output
