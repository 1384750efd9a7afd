"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class CatalogsConfig(AppConfig):
    """Message catalogs and what a scan found in them."""

    name = "example_project.catalogs"
    verbose_name = "message catalogs"
    default_auto_field = "django.db.models.BigAutoField"
