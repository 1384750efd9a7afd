"""Settings of the example project: `DATABASE_URL` names its database, by default a file beside manage.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

# Good enough for a project that listens on this machine alone; set the variable anywhere else.
SECRET_KEY = env.str("SECRET_KEY", default="only-for-this-machine-set-SECRET_KEY-anywhere-else")
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

DATABASES: dict[str, dict[str, Any]] = {
    "default": env.db_url("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # A transaction that reads before it writes must hold the write lock from its start: SQLite refuses the
    # change from reader to writer at once, however long the timeout. WAL lets readers go on beside it.
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        transaction_mode="IMMEDIATE",
        timeout=30,  # seconds that a writer waits for its turn
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    )
else:
    DATABASES["default"].setdefault("CONN_HEALTH_CHECKS", True)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "ultimat3_jobs",
    "example_project.catalogs",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)-7s %(threadName)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="INFO")},
}

ULTIMAT3_JOBS = {
    # Shorter than the defaults: the scans are short, and what a killed worker held is taken over sooner.
    "LEASE": env.str("DEMO_LEASE", default="6s"),
    "RENEWAL": env.str("DEMO_RENEWAL", default="2s"),
    # The worker is woken by nothing but its own look at the queue, so it looks often.
    "POLL": "250ms",
}

# Where the demo keeps the broken catalogs that it makes; empty means a folder of its own for each database.
DEMO_FOLDER = env.str("DEMO_FOLDER", default="")

# The groups that the demo scans; empty means all that Django has. "redirects" is needed: it is the one rolled back.
DEMO_GROUPS = env.list("DEMO_GROUPS", default=[])

# Rows in one page of the backfill.
DEMO_BATCH = env.int("DEMO_BATCH", default=1_000)
