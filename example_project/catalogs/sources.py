"""Finds catalogs: those in the installed Django, and those that the demo makes.

A job carries a catalog's path in a form that is the same on every machine ("django/contrib/auth/locale/..."),
so that any worker can find the file in its own installation, and so that it fits into a key.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import django
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.translation import to_language

DJANGO_FOLDER = Path(django.__file__).resolve().parent
PATTERN = "**/locale/*/LC_MESSAGES/*.po"


@dataclass(frozen=True, slots=True)
class Source:
    """A catalog's file, found and not yet read by a job."""

    path: str
    group: str
    checksum: str


def find_in_django() -> dict[str, list[Source]]:
    """Return the catalogs of the installed Django by group, in order; only the groups in `DEMO_GROUPS` if it is set."""
    found: dict[str, list[Source]] = defaultdict(list)
    for file in sorted(DJANGO_FOLDER.glob(PATTERN)):
        path = PurePosixPath("django", file.relative_to(DJANGO_FOLDER).as_posix())
        group = group_of(path)
        found[group].append(Source(str(path), group, checksum_of(file.read_bytes())))
    return {group: found[group] for group in sorted(found) if not settings.DEMO_GROUPS or group in settings.DEMO_GROUPS}


def group_of(path: PurePosixPath) -> str:
    """Return the group of a catalog in Django: "core" for its own messages, else the name of its app."""
    folder = path.parts[: path.parts.index("locale")]
    return "core" if folder == ("django", "conf") else folder[-1]


def language_of(path: str) -> str:
    """Return the language code that a catalog's folder says, such as "pt-br" for locale/pt_BR."""
    parts = PurePosixPath(path).parts
    return to_language(parts[parts.index("locale") + 1])


def checksum_of(content: bytes) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def locate(path: str) -> Path:
    """Return where the catalog named `path` lies on this machine.

    Raises:
        ValueError: where the path is not one that this module makes, or leads out of its folder.
    """
    root, *rest = PurePosixPath(path).parts
    roots = {"django": DJANGO_FOLDER, "demo": demo_folder()}
    if root not in roots or "locale" not in rest or ".." in rest:
        raise ValueError(f"{path!r} does not name a catalog")
    return roots[root].joinpath(*rest)


def demo_folder() -> Path:
    """Return the folder of the demo's own files: each database has its own, so that no two share a file."""
    if settings.DEMO_FOLDER:
        return Path(settings.DEMO_FOLDER)
    database = connections[DEFAULT_DB_ALIAS].settings_dict
    if database["ENGINE"] == "django.db.backends.sqlite3":
        file = Path(database["NAME"]).absolute()
        return file.parent / ".demo" / file.name
    where = (database["HOST"], database["PORT"], database["NAME"], database["OPTIONS"].get("host"))
    return settings.BASE_DIR / ".demo" / checksum_of(repr(where).encode())[:12]
