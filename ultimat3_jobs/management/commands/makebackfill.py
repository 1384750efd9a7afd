"""`manage.py makebackfill`: write the file that a new backfill begins as."""

from __future__ import annotations

import keyword
import re
import shlex
import sysconfig
from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.migrations.loader import MigrationLoader
from django.db.models import Model

from ultimat3_jobs import registry
from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.skeleton import IMPORTED, Swept, text_of
from ultimat3_jobs.discovery import BACKFILLS
from ultimat3_jobs.text import MAX_NAME

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_INSTALLED = {"site-packages", "dist-packages"}
FIRST_MIGRATION = "0001_initial"


class Command(BaseCommand):
    help = (
        "Writes <app>/backfills/<name>.py, a commented file that declares a backfill. It is found at the next start. "
        "Exit codes: 0 written; 1 refused; 2 the command line is wrong."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012 - as Django declares it

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("app", help="label of the installed app that gets it")
        parser.add_argument("name", help="the backfill's name, such as rewrite-slugs")
        parser.add_argument("--model", help="the model whose rows are swept, as blog.Post, or Post of the same app")
        parser.add_argument("--dry-run", action="store_true", help="print the file, and write nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        config, name = _app(options["app"]), options["name"]
        model = _model(options["model"], config) if options["model"] else None
        function = _function(name, model)
        folder = Path(config.path) / BACKFILLS
        file = folder / f"{function}.py"
        _check_place(folder, file)
        label = model._meta.app_label if model else config.label
        text = text_of(
            name=name,
            function=function,
            label=label,
            migration=_latest_migration(label),
            swept=Swept(model.__module__, model.__name__, _manager(model)) if model else None,
        )
        if options["dry_run"]:
            self.stdout.write(f"# {_shown(file)}\n{text}", ending="")
            return
        try:
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").touch()
            with file.open("x", encoding="utf-8") as written:
                written.write(text)
        except OSError as error:
            raise CommandError(f"cannot write {_shown(file)}: {error}") from None
        self.stdout.write(f"wrote {_shown(file)}")
        if model is None:
            self.stdout.write("name its model in it, then look: ", ending="")
        self.stdout.write(backfill_command(name))


def _app(label: str) -> AppConfig:
    try:
        config = apps.get_app_config(label)
    except LookupError as error:
        raise CommandError(f"{error} Is INSTALLED_APPS right?") from None
    path = Path(config.path).resolve()
    libraries = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
    if _INSTALLED & set(path.parts) or libraries & set(path.parents):
        raise CommandError(
            f"the app {label} is installed in {path}, outside of the project: name an app of the project, and with "
            f"--model {label}.Model the rows"
        )
    return config


def _model(name: str, config: AppConfig) -> type[Model]:
    if name.count(".") > 1:
        raise CommandError(f"--model {name}: write it as app_label.Model, or Model alone where it is of {config.label}")
    full = name if "." in name else f"{config.label}.{name}"
    try:
        return apps.get_model(full)
    except (LookupError, ValueError) as error:
        raise CommandError(f"--model {name}: {error}") from None


def _manager(model: type[Model]) -> str:
    return str(model._default_manager.name)


def _function(name: str, model: type[Model] | None) -> str:
    """Return the name of the handler and of its module."""
    function = name.replace("-", "_")
    if not _NAME.fullmatch(name):
        raise CommandError(f"{name!r} cannot be a module's name: use letters, digits, dashes and underscores")
    if len(name) > MAX_NAME:
        raise CommandError(f"the name has {len(name)} characters, more than the {MAX_NAME} that a backfill's may have")
    if keyword.iskeyword(function):
        raise CommandError(f"{name!r} is a word of Python's own: choose another name")
    if function in IMPORTED or (model is not None and function == model.__name__):
        raise CommandError(f"{name!r} is what the file itself imports: choose another name")
    taken = registry.find(name)
    if taken is not None:
        raise CommandError(f"{name!r} is declared by {taken.func.__module__} already: choose another name")
    return function


def _check_place(folder: Path, file: Path) -> None:
    module = folder.with_suffix(".py")
    if module.exists():
        package, old = shlex.quote(_shown(folder)), shlex.quote(_shown(module))
        raise CommandError(
            f"{_shown(module)} is in the way of a package of that name\n"
            f"  fix: mkdir -p {package} && git mv {old} {package}/__init__.py"
        )
    for one in (file, file.with_suffix("")):
        if one.exists():
            raise CommandError(f"{_shown(one)} is there already: choose another name")


def _latest_migration(label: str) -> str:
    leaves = MigrationLoader(None).graph.leaf_nodes(label)
    return leaves[0][1] if leaves else FIRST_MIGRATION


def _shown(path: Path) -> str:
    """Return a path as it is shortest to type."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
