"""Proves that the installed wheel is whole: `python check_wheel.py REPOSITORY LIST`, in an environment with
the wheel alone.

LIST holds the paths of all files that belong into the wheel, separated by NUL characters. Each must be there
as it is in the repository, each module must be importable without the optional dependencies, and a worker
must run on a new database.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

PACKAGE = "ultimat3_jobs"
CONTRIB = ("admin", "auth", "contenttypes", "sessions", "messages")
# Modules that are of use to a test suite alone may need what only a test suite has.
MAY_NEED = {"ultimat3_jobs.testing": "pytest"}


def main(repository: Path, listed: Path) -> None:
    """Check the files, the imports and a worker; the first that is wrong raises."""
    spec = find_spec(PACKAGE)
    assert spec is not None, f"{PACKAGE} is not installed"
    assert spec.origin is not None, f"{PACKAGE} has no __init__.py"
    installed = Path(spec.origin).parent.parent
    assert installed.is_relative_to(sys.prefix), f"{PACKAGE} comes from {installed}"
    assert find_spec("psycopg") is None, "this environment is not empty"

    shipped = [path for path in listed.read_text().split("\0") if path]
    for path in shipped:
        file = installed / path
        assert file.is_file(), f"not in the wheel: {path}"
        assert file.read_bytes() == (repository / path).read_bytes(), f"not as committed: {path}"
    data = ("py.typed", "sql/postgresql/*.sql", "sql/sqlite/*.sql", "templates/**/*.html", "static/**/*.css")
    for needed in (*data, "migrations/0*.py"):
        assert list((installed / PACKAGE).glob(needed)), f"not in the wheel: {needed}"

    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": "wheel.sqlite3",
                "OPTIONS": {
                    "transaction_mode": "IMMEDIATE",
                    "timeout": 20,
                    "init_command": "PRAGMA journal_mode=WAL",
                },
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in CONTRIB), PACKAGE],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        SECRET_KEY="only-for-this-check",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()
    sources = [Path(path).with_suffix("") for path in shipped if path.endswith(".py")]
    modules = [".".join(path.parts).removesuffix(".__init__") for path in sources]
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in {needs for within, needs in MAY_NEED.items() if module.startswith(within)}:
                raise
    call_command("check", fail_level="WARNING")
    call_command("migrate", verbosity=0)
    call_command("jobs_worker", "--burst")
    print(f"{PACKAGE} {version('ultimat3-jobs')}: {len(shipped)} files and {len(modules)} modules are whole")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
