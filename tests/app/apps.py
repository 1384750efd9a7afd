"""The test app's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class TestsAppConfig(AppConfig):
    """The app `app`: its jobs are named `app.<function>`."""

    name = "tests.app"
    label = "app"
