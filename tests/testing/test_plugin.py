"""The pytest plugin: its fixture, in a project of its own, and what it asks of the process that loads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT_DIRECTORY
from tests.working import declare
from ultimat3_jobs import testing
from ultimat3_jobs.testing.plugin import Jobs, jobs

__all__ = ["jobs"]


@pytest.mark.django_db
def test_the_fixture_runs_and_looks_up_jobs(jobs: Jobs, isolated_registry: None) -> None:
    handle = declare(lambda run, n: None)
    handle.enqueue(1)

    jobs.assert_enqueued(handle, n=1, count=1)
    jobs.assert_not_enqueued(handle, n=2)
    assert jobs.drain().counts == {"done": 1}


def test_the_fixture_has_the_functions_of_the_package() -> None:
    for name in ("drain", "assert_enqueued", "assert_not_enqueued", "enqueued"):
        assert getattr(Jobs, name) is getattr(testing, name)


def test_the_plugin_is_loaded_without_settings_and_without_a_database_driver() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
import ultimat3_jobs.testing.plugin
from django.apps import apps
from django.conf import settings
assert not settings.configured and not apps.ready
assert "ultimat3_jobs.models" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=ROOT_DIRECTORY, timeout=60)


def test_a_project_names_the_plugin_and_has_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["ultimat3_jobs.testing.plugin"]\n')
    (tmp_path / "test_it.py").write_text("def test_it(jobs):\n    assert callable(jobs.drain)\n")
    arguments = ["-p", "no:django", "-p", "no:cacheprovider", "-W", "error", "--rootdir", str(tmp_path), str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=tmp_path, timeout=60, check=False, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT_DIRECTORY)},
    )  # fmt: skip

    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
