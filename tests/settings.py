"""Settings of the test suite and of the child processes that its tests start.

Children are told by the environment what their test wants: `DATABASE_URL` names the test database itself,
`TEST_SECOND_URL` a second one of the same kind, `TEST_ROUTERS` the database routers, `TEST_JOBS_SETTINGS` is a JSON
object laid over `ULTIMAT3_JOBS`, `TEST_USE_TZ=0` and `TEST_TIME_ZONE` set the time zone support, `TEST_LOG_LEVEL` how
much is logged to standard error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ

env = environ.Env()
BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "only-for-tests"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "localhost"]

# The name of a SQLite database is not used by the suite: conftest.py gives the test database a file of its
# own.
DATABASES: dict[str, dict[str, Any]] = {"default": env.db_url("DATABASE_URL", default="sqlite://:memory:")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        transaction_mode="IMMEDIATE",
        timeout=60,  # seconds that a writer waits for its turn: tests hold the one write lock on purpose
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    )
# A second database, for the children of tests that make one.
if second_url := env.str("TEST_SECOND_URL", default=""):
    DATABASES["second"] = {**DATABASES["default"], **env.db_url_config(second_url)}
DATABASE_ROUTERS = env.list("TEST_ROUTERS", default=[])
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "ultimat3_jobs",
    "tests.app",
    "example_project.catalogs",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
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
]
ROOT_URLCONF = "example_project.urls"
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

USE_TZ = env.bool("TEST_USE_TZ", default=True)
TIME_ZONE = env.str("TEST_TIME_ZONE", default="UTC")
LANGUAGE_CODE = "en-us"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(threadName)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("TEST_LOG_LEVEL", default="WARNING")},
}

# Workers of tests look often, so that a test waits for work and not for a poll.
ULTIMAT3_JOBS: dict[str, Any] = {"POLL": "50ms", **env.json("TEST_JOBS_SETTINGS", default={})}

DEMO_FOLDER = env.str("DEMO_FOLDER", default="")
DEMO_GROUPS = env.list("DEMO_GROUPS", default=[])
DEMO_BATCH = 10
