"""Finds the backfills of the installed apps: they register themselves where they are imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from django.apps import apps
from django.utils.module_loading import module_has_submodule

BACKFILLS = "backfills"
_OWN = "ultimat3_jobs"  # has a package of that name itself, which declares none


def discover_backfills() -> None:
    """Import `backfills.py` of every installed app or, where that is a package, each module in it, by name.

    What a module raises is raised.
    """
    for config in apps.get_app_configs():
        if config.name == _OWN or not module_has_submodule(config.module, BACKFILLS):
            continue
        package = import_module(f"{config.name}.{BACKFILLS}")
        for name in sorted(module.name for module in pkgutil.iter_modules(getattr(package, "__path__", ()))):
            if name != "__main__":  # it is there to be run
                import_module(f"{package.__name__}.{name}")
