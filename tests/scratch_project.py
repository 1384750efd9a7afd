"""A pytest plugin: a project made for one test, with apps on disk, an empty SQLite database and real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Child, Processes

SETTINGS = "from tests.settings import *\n\nINSTALLED_APPS = [*INSTALLED_APPS, *{apps!r}]\n"


class ScratchProject:
    """Apps below one folder; every process that is started has them installed."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder
        self._processes = processes
        self._apps: list[str] = []

    def app(self, name: str, files: Mapping[str, str]) -> None:
        """Write an app, each file by its path below the app's folder, and install it."""
        for path, text in {"__init__.py": "", **files}.items():
            self.write(f"{name}/{path}", text)
        if name not in self._apps:
            self._apps.append(name)
        self.write("scratch_settings.py", SETTINGS.format(apps=self._apps))

    def write(self, path: str, text: str) -> None:
        """Write a file, and its folder."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def manage(self, *arguments: str) -> Child:
        """Run `manage.py` to its end."""
        return self._ended(self._processes.manage(*arguments, **self._options()))

    def django(self, code: str) -> Child:
        """Run code with Django set up to its end."""
        return self._ended(self._processes.django(code, **self._options()))

    def _options(self) -> dict[str, Any]:
        path = os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")]))
        return {"env": {"DJANGO_SETTINGS_MODULE": "scratch_settings", "PYTHONPATH": path}}

    def _ended(self, child: Child) -> Child:
        child.wait()
        return child


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[ScratchProject]:
    """A project of the test's own, on an empty SQLite database."""
    folder = tmp_path / "project"
    folder.mkdir()
    with Processes(tmp_path, f"sqlite:///{tmp_path}/empty.sqlite3") as processes:
        yield ScratchProject(folder, processes)
