"""Rows that the queue's tables refuse, as a project's own trigger or constraint would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

_MAKE = {
    "postgresql": (
        """CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.idempotency_key LIKE '%%:bad%%' THEN
            RAISE EXCEPTION '{message}' USING ERRCODE = '{code}';
        END IF;
        RETURN NEW; END $$""",
        "CREATE TRIGGER refuse_bad BEFORE INSERT ON x_jobs FOR EACH ROW EXECUTE FUNCTION refuse_bad()",
    ),
    "sqlite": (
        """CREATE TRIGGER refuse_bad BEFORE INSERT ON x_jobs WHEN NEW.idempotency_key LIKE '%%:bad%%'
        BEGIN SELECT RAISE(ABORT, '{message}'); END""",
    ),
}
_DROP = {
    "postgresql": ("DROP TRIGGER refuse_bad ON x_jobs", "DROP FUNCTION refuse_bad"),
    "sqlite": ("DROP TRIGGER refuse_bad",),
}


@contextmanager
def refusing(alias: str = "default", *, message: str = "it is bad", code: str = "23514") -> Iterator[None]:
    """Refuse jobs whose label begins with "bad".

    Args:
        alias: of the queue's database.
        message: of the refusal.
        code: the refusal's on PostgreSQL. On SQLite it is an IntegrityError.
    """
    _execute(alias, *(text.format(message=message, code=code) for text in _MAKE[connections[alias].vendor]))
    try:
        yield
    finally:
        _execute(alias, *_DROP[connections[alias].vendor])


def _execute(alias: str, *statements: str) -> None:
    with connections[alias].cursor() as cursor:
        for text in statements:
            cursor.execute(text.replace("%%", "%"))
