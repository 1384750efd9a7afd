"""Settings of the benchmarks: the package with its defaults, on the database of `DATABASE_URL`."""

from __future__ import annotations

from typing import Any

import environ

env = environ.Env()

SECRET_KEY = "only-for-benchmarks"
DATABASES: dict[str, dict[str, Any]] = {"default": env.db_url("DATABASE_URL", default="sqlite://:memory:")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        transaction_mode="IMMEDIATE",
        timeout=30,  # seconds that a writer waits for its turn
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    )
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "ultimat3_jobs", "benchmarks"]
USE_TZ = True
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
