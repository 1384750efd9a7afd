"""The app: what happens when Django starts."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from ultimat3_jobs.discovery import discover_backfills


class Ultimat3JobsConfig(AppConfig):
    """Finds the jobs of the installed apps and registers the system checks."""

    name = "ultimat3_jobs"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import `jobs.py` and `backfills` of every installed app. One that raises stops the start, and is seen."""
        from ultimat3_jobs import checks  # noqa: F401, PLC0415 - registers once the apps are loaded

        autodiscover_modules("jobs")
        discover_backfills()
