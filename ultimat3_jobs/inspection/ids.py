"""Ids as people give them: whole, or by the first digits."""

from __future__ import annotations

import re
from uuid import UUID

from ultimat3_jobs.aliases import outbox_aliases, queue_alias
from ultimat3_jobs.errors import AmbiguousId, UnknownJob
from ultimat3_jobs.models import Job, OutboxEntry

MIN_DIGITS = 8
DIGITS = 32
CANDIDATES = 10


def id_range(text: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last id that begin as `text` does, or None where it is not the beginning of one."""
    digits = text.strip().replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]+", digits) or not MIN_DIGITS <= len(digits) <= DIGITS:
        return None
    return UUID(digits.ljust(DIGITS, "0")), UUID(digits.ljust(DIGITS, "f"))


def search_jobs_by_id(text: str, *, limit: int) -> list[UUID]:
    """Return at most `limit` ids of jobs that begin as `text` does, newest first."""
    ids = id_range(text)
    return [] if ids is None else _between(Job, queue_alias(), ids, limit)


def search_staged_by_id(text: str, *, limit: int) -> list[UUID]:
    """Return at most `limit` ids of outbox rows that begin as `text` does, newest first."""
    ids = id_range(text)
    if ids is None:
        return []
    found = {one for alias in outbox_aliases() for one in _between(OutboxEntry, alias, ids, limit)}
    return sorted(found, reverse=True)[:limit]


def resolve(text: str) -> UUID:
    """Return the one id, of a job or of a row in the outbox, that begins as `text` does.

    Raises:
        UnknownJob: where there is none, or the text is too short or no id at all.
        AmbiguousId: where several begin so; it names them.
    """
    ids = id_range(text)
    if ids is None:
        raise UnknownJob(
            f"{text!r} is not an id, nor at least {MIN_DIGITS} of its first digits",
            fix="copy an id from `python manage.py jobs ls`",
        )
    more = CANDIDATES + 1
    found = {*search_jobs_by_id(text, limit=more), *search_staged_by_id(text, limit=more)}
    if not found:
        raise UnknownJob(
            f"there is no job {ids[0] if ids[0] == ids[1] else text}, and nothing of that id was staged",
            fix="copy an id from `python manage.py jobs ls`",
        )
    if len(found) > 1:
        candidates = sorted(found, reverse=True)[:CANDIDATES]
        raise AmbiguousId(
            f"{'more than ' if len(found) > CANDIDATES else ''}{min(len(found), CANDIDATES)} ids begin with {text}: "
            f"{', '.join(map(str, candidates))}",
            fix=f"python manage.py jobs show {candidates[0]}",
        )
    return found.pop()


def _between(model: type[Job | OutboxEntry], alias: str, ids: tuple[UUID, UUID], limit: int) -> list[UUID]:
    rows = model._default_manager.using(alias).filter(pk__gte=ids[0], pk__lte=ids[1]).order_by("-pk")
    return list(rows.values_list("pk", flat=True)[:limit])
