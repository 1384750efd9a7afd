"""What the package shows: its names, their documentation, their types."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module, metadata
from importlib.resources import files
from typing import Any

import pytest

import ultimat3_jobs
from tests.processes import ROOT_DIRECTORY

NAMES = {
    "NO_TENANT",
    "Aborted",
    "AsyncRun",
    "Backfill",
    "EnqueueResult",
    "EventTimeout",
    "Job",
    "JobCall",
    "JobTimeout",
    "JobsError",
    "ReceivedEvent",
    "Retry",
    "Run",
    "apublish_event",
    "backfill",
    "current_tenant",
    "job",
    "publish_event",
    "register_error_retry",
}
DOCUMENTED = [getattr(ultimat3_jobs, name) for name in sorted(NAMES - {"NO_TENANT"})]


def test_the_public_names_are_these() -> None:
    assert set(ultimat3_jobs.__all__) == NAMES
    assert len(ultimat3_jobs.__all__) == len(NAMES)
    assert all(hasattr(ultimat3_jobs, name) for name in NAMES)


def test_a_star_import_gives_them_and_no_more() -> None:
    namespace: dict[str, Any] = {}
    exec("from ultimat3_jobs import *", namespace)

    assert namespace.keys() - {"__builtins__"} == NAMES


def test_the_version_is_that_of_the_distribution() -> None:
    assert ultimat3_jobs.__version__ == metadata.version("ultimat3-jobs")


def test_the_package_is_typed() -> None:
    assert (files(ultimat3_jobs) / "py.typed").is_file()


def members(thing: Any) -> list[Any]:
    """Return it and, of a class, its public methods and properties."""
    own = [
        member
        for name, member in vars(thing).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ]
    return [thing, *(own if inspect.isclass(thing) else [])]


@pytest.mark.parametrize("thing", [one for thing in DOCUMENTED for one in members(thing)], ids=repr)
def test_everything_public_is_documented_and_typed(thing: Any) -> None:
    function = thing.fget if isinstance(thing, property) else thing
    assert inspect.getdoc(function)
    if inspect.isfunction(function):
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty
        untyped = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.annotation is parameter.empty and name != "self"
        ]
        assert not untyped


def public(kind: type) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_an_async_run_has_what_a_run_has() -> None:
    run, async_run = public(ultimat3_jobs.Run), public(ultimat3_jobs.AsyncRun)

    assert run.keys() == async_run.keys()
    for name, method in run.items():
        if inspect.isfunction(method):
            assert inspect.signature(method) == inspect.signature(async_run[name]), name
            assert inspect.iscoroutinefunction(async_run[name]) is (async_run[name] is not method), name


def test_every_parameter_of_job_is_explained() -> None:
    arguments = (inspect.getdoc(ultimat3_jobs.job) or "").partition("Args:")[2].partition("Raises:")[0]

    explained = set(re.findall(r"^    (\w+): ", arguments, re.MULTILINE))
    assert explained == set(inspect.signature(ultimat3_jobs.job).parameters) - {"func"}


def test_every_module_says_what_it_is() -> None:
    package = ROOT_DIRECTORY / "ultimat3_jobs"
    modules = [path for path in package.rglob("*.py") if path.stat().st_size and "migrations" not in path.parts]

    undocumented = []
    for path in modules:
        name = ".".join(path.relative_to(ROOT_DIRECTORY).with_suffix("").parts).removesuffix(".__init__")
        if not import_module(name).__doc__:
            undocumented.append(name)
    assert not undocumented


def test_the_package_is_imported_without_settings_and_without_psycopg() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
import ultimat3_jobs
from ultimat3_jobs import NO_TENANT, Retry, job

@job(name="shop.ship", idempotency_key="k", tenant=NO_TENANT, retry=Retry(attempts=5))
def ship(run) -> None: ...

print(ship.name, ship.call)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT_DIRECTORY, env={}, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shop.ship ")


def test_no_tenant_reads_as_it_is_written() -> None:
    assert repr(ultimat3_jobs.NO_TENANT) == "NO_TENANT"
