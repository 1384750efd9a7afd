"""`jobs.py` of every installed app is imported when Django starts, and one that raises stops the start."""

from __future__ import annotations

import pytest

from tests.scratch_project import ScratchProject

pytestmark = pytest.mark.sqlite_only(reason="the processes are on a SQLite database of their own")

DECLARED = """
from ultimat3_jobs import NO_TENANT, job

@job(idempotency_key="k", tenant=NO_TENANT)
def {name}(run) -> None: ...
"""
LIST_JOBS = """
from ultimat3_jobs import registry
print("found", [one.name for one in registry.all_jobs() if one.name.startswith(("shop.", "store."))])
"""


def test_jobs_of_every_app_are_found_at_the_start(scratch: ScratchProject) -> None:
    scratch.app("shop", {"jobs.py": DECLARED.format(name="ship")})
    scratch.app(
        "store",
        {"jobs/__init__.py": "from store.jobs import nightly", "jobs/nightly.py": DECLARED.format(name="count")},
    )
    scratch.app("idle", {})

    started = scratch.django(LIST_JOBS)

    assert started.wait() == 0
    assert "found ['shop.ship', 'store.count']" in started.output()


def test_jobs_may_be_declared_in_models(scratch: ScratchProject) -> None:
    scratch.app("shop", {"models.py": DECLARED.format(name="ship")})

    assert "found ['shop.ship']" in scratch.django(LIST_JOBS).output()


@pytest.mark.parametrize("place", ["__init__.py", "apps.py"])
def test_a_job_that_is_declared_before_the_apps_are_loaded_is_told_where_it_belongs(
    scratch: ScratchProject, place: str
) -> None:
    scratch.app("shop", {place: DECLARED.format(name="ship")})

    started = scratch.django(LIST_JOBS)

    assert started.wait() == 1
    assert "shop.ship is declared before the apps are loaded" in started.output().replace("shop.apps.ship", "shop.ship")
    assert "fix: move it to the jobs.py of its app" in started.output()


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("1 / 0  # on purpose", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("from ultimat3_jobs import nothing_like_that", "ImportError: cannot import name 'nothing_like_that'"),
        (DECLARED.replace(", tenant=NO_TENANT", "").format(name="ship"), "X_JOB_TENANT_REQUIRED: the job ship is"),
    ],
    ids=["error", "import", "name", "refusal"],
)
def test_one_that_raises_stops_the_start_with_its_traceback(scratch: ScratchProject, source: str, error: str) -> None:
    scratch.app("shop", {"jobs.py": source})
    scratch.app("store", {"jobs.py": DECLARED.format(name="count")})

    started = scratch.manage("check")

    assert started.wait() == 1
    output = started.output()
    assert "Traceback (most recent call last):" in output
    assert f'File "{scratch.folder}/shop/jobs.py", line ' in output
    assert error in output
    assert "System check identified no issues" not in output


def test_no_worker_starts_where_one_raises(scratch: ScratchProject) -> None:
    scratch.app("shop", {"jobs.py": "1 / 0"})

    started = scratch.manage("jobs_worker", "--burst")

    assert started.wait() == 1
    assert f'File "{scratch.folder}/shop/jobs.py", line 1' in started.output()
    assert "jobs.worker.started" not in started.output()


def test_two_apps_that_declare_one_name_stop_the_start(scratch: ScratchProject) -> None:
    scratch.app("shop", {"jobs.py": DECLARED.format(name="ship").replace("@job(", '@job(name="ship", ')})
    scratch.app(
        "store", {"jobs.py": DECLARED.format(name="send").replace("@job(", '@job(name="send", aliases=["ship"], ')}
    )

    started = scratch.manage("check")

    assert started.wait() == 1
    assert (
        "X_JOB_DUPLICATE: 'ship' is declared by shop.jobs.ship (line 4) and by store.jobs.send (line 4)\n"
        '  fix: pin another name: @job(name="ship_2", ...)'
    ) in started.output()
