"""Commands as a person can type them here, and the database by a name that gives no secret away."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

SECRET = re.compile(r"pass|secret|token|key", re.IGNORECASE)


def manage(*arguments: str) -> str:
    """Return the command line that runs `manage.py` with these arguments from this process's folder."""
    script = "manage.py" if Path.cwd() == settings.BASE_DIR else str(settings.BASE_DIR / "manage.py")
    return shlex.join([_python(), script, *arguments])


def _python() -> str:
    """Return this interpreter as a shell finds it: "python" where that is the one, else its path."""
    # Not resolved: a virtual environment's interpreter is a link, and what it links to has no Django.
    mine = Path(sys.executable)
    twin = mine.with_name("python")
    if not (twin.exists() and twin.samefile(mine)):
        twin = mine
    found = shutil.which(twin.name)
    if found and Path(found) == twin:
        return twin.name
    return str(twin.relative_to(Path.cwd())) if twin.is_relative_to(Path.cwd()) else str(twin)


def database_name() -> str:
    """Return the database as a URL, with *** in place of a password."""
    database = connections[DEFAULT_DB_ALIAS].settings_dict
    if database["ENGINE"] == "django.db.backends.sqlite3":
        return f"sqlite:///{database['NAME']}"
    user, password = quote(database["USER"]), ":***" if database["PASSWORD"] else ""
    host, port = database["HOST"], f":{database['PORT']}" if database["PORT"] else ""
    at = "@" if user or password else ""
    # A folder of a Unix socket cannot stand where a host does.
    inside, folder = ("", host) if host.startswith("/") else (host, database["OPTIONS"].get("host", ""))
    query = f"?{urlencode({'host': folder}, safe='/')}" if folder else ""
    return f"postgresql://{user}{password}{at}{inside}{port}/{quote(database['NAME'])}{query}"


def environment() -> str | None:
    """Return the line to type first in another shell, so that the commands meet the same database.

    None where they do without. Where the URL holds a secret, the line is a comment and the URL has *** in it.
    """
    url = os.environ.get("DATABASE_URL")
    if not url:
        return None
    database = connections[DEFAULT_DB_ALIAS].settings_dict
    if database["PASSWORD"] or any(SECRET.search(str(option)) for option in database["OPTIONS"]):
        return f"# DATABASE_URL must be set, with the password, to {database_name()}"
    return f"export DATABASE_URL={shlex.quote(url)}"
