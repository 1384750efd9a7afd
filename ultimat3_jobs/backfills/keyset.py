"""Pages by primary key: how a key is kept, and the statements that read by it. Never by offset into what was read.

One page is bounded twice: by its rows, and by a stretch of keys of the whole table, filtered or not, so that a source
of which few rows match does not make one statement look through all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import Field, Model, QuerySet
from django.db.models.expressions import Col
from django.db.models.lookups import GreaterThan, LessThanOrEqual
from django.db.models.sql.where import AND

from ultimat3_jobs.backfills.commands import backfill_command
from ultimat3_jobs.backfills.source import Rows, tables_read
from ultimat3_jobs.errors import BackfillSourceInvalid
from ultimat3_jobs.sql import run

Key = Any
"""A primary key as Python has it: one value, or a tuple of those of a composite key."""
StoredKey = list[str | int]
"""The same as JSON has it, one value a column."""

_ORDERED = (int, float, Decimal, UUID, date, time, timedelta)


class Keys:
    """The primary key of a model: its columns, and how its values are kept as JSON.

    Args:
        model: whose.
        backfill: name of the one that sweeps it, for messages.
    """

    def __init__(self, model: type[Model], *, backfill: str) -> None:
        self._model = model
        self._backfill = backfill
        self._composite = len(model._meta.pk_fields) > 1
        self._columns: list[Field[Any, Any]] = [_target(field) for field in model._meta.pk_fields]

    def store(self, key: Key) -> StoredKey:
        """Return a key as it is kept.

        Raises:
            BackfillSourceInvalid: where it does not come back as it was.
        """
        values = tuple(key) if self._composite else (key,)
        stored = _plain(values)
        if self.load(stored) != key:
            raise BackfillSourceInvalid(
                f"the primary key of {self._model.__name__} ({', '.join(type(one).__name__ for one in self._columns)}) "
                f"does not come back from text as it was: {key!r}",
                fix="source=lambda: OtherModel.objects.all()  # a key of numbers, text, UUIDs, dates or decimals",
            )
        return stored

    def load(self, stored: Sequence[str | int]) -> Key:
        """Return a kept key as Python has it."""
        try:
            values = tuple(column.to_python(value) for column, value in zip(self._columns, stored, strict=True))
        except (ValidationError, ValueError, TypeError):
            values = ()
        if _plain(values) != list(stored):  # text that looks like a number, say, is of another order
            raise BackfillSourceInvalid(
                f"the cursor of a pass over {self._model.__name__} is {list(stored)!r}, which is none of its primary "
                "keys: was the key of the model changed since?",
                fix=f"{backfill_command(self._backfill, '--write')}  # a new pass, once this one is cancelled",
            )
        return values if self._composite else values[0]


def last_key(rows: Rows) -> Key | None:
    """Return the last key of the table, or None where it is empty: the bound of a pass."""
    # An ordered look-up: not every database has a maximum of every type of key.
    return rows.everything.order_by("-pk").values_list("pk", flat=True).first()


def stretch(rows: Rows, after: Key | None, bound: Key, length: int) -> Key:
    """Return the key at which the next stretch of the table ends: `length` keys on, at most the bound.

    Args:
        rows: what is swept.
        after: the key behind which it begins; None: at the first.
        bound: the last key of the pass.
        length: keys.
    """
    keys = _between(rows.everything, after, bound).order_by("pk").values_list("pk", flat=True)
    ends = list(keys[length - 1 : length])
    return ends[0] if ends else bound


def page_of(rows: Rows, after: Key | None, until: Key, size: int) -> QuerySet[Any]:
    """Return the next rows by key, locked until the transaction ends where they are to be.

    Args:
        rows: what is swept.
        after: the key behind which they begin; None: at the first.
        until: the last key of the stretch.
        size: rows at most.
    """
    page = _bound_parents(_between(rows.queryset, after, until), after, until).order_by("pk")
    if rows.locked is not None:
        # Not against new rows that refer to these: a sweep changes no key.
        page = page.select_for_update(no_key=True, of=rows.locked)
    return page[:size]


def read_page(rows: Rows, after: Key | None, until: Key, size: int) -> list[Model]:
    """Read the rows that `page_of` gives."""
    with unsorted(rows):
        return list(page_of(rows, after, until, size))


def go_up(after: Key | None, found: Sequence[Key], until: Key) -> bool:
    """Whether the keys of a page, one at least, go up, from behind `after` to `until` at most.

    They were read so. But where a row was locked by another transaction that changed its key, PostgreSQL gives the new
    key in the old one's place. The order of text is known to the database alone: there each has to be another one.
    """
    keys = [*([] if after is None else [after]), *found]
    if all(_is_ordered(key) for key in (*keys, until)):
        return all(one < other for one, other in pairwise(keys)) and keys[-1] <= until
    return len(set(keys)) == len(keys)


def up_to(queryset: QuerySet[Any], bound: Key) -> QuerySet[Any]:
    """Return the rows that lie within the bound."""
    return _between(queryset, None, bound)


def _between(queryset: QuerySet[Any], after: Key | None, until: Key) -> QuerySet[Any]:
    if after is not None:
        queryset = queryset.filter(pk__gt=after)
    return queryset.filter(pk__lte=until)


def _target(field: Any) -> Any:
    """Return the field that a key's values are of: what a relation refers to, at its end."""
    while field.remote_field is not None:
        field = field.target_field
    return field


def _is_ordered(key: Key) -> bool:
    """Whether Python orders such a key as databases do."""
    return all(isinstance(value, _ORDERED) for value in (key if isinstance(key, tuple) else (key,)))


def _plain(values: Sequence[Any]) -> StoredKey:
    return [int(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value) for value in values]


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _bound_parents(page: QuerySet[Any], after: Key | None, until: Key) -> QuerySet[Any]:
    """Bound the keys in the tables of the model's parents as well.

    They are the same ones. The planner of PostgreSQL does not know it: a merge join with the table of a parent would
    read that from its first row on, and each page would take longer than the one before.
    """
    meta = page.model._meta.concrete_model._meta
    query: Any = page.query
    start = query.get_initial_alias()
    seen = {None: start}
    link: Any = meta.pk
    while getattr(link.remote_field, "parent_link", False):
        parent = link.remote_field.model._meta.concrete_model
        # The very join that reads the parent's columns.
        alias = query.join_parent_model(meta, parent, start, seen)
        link = parent._meta.pk
        column = Col(alias, link, _target(link))
        query.where.add(LessThanOrEqual(column, until), AND)
        if after is not None:
            query.where.add(GreaterThan(column, after), AND)
    return page


@contextmanager
def unsorted(rows: Rows) -> Iterator[None]:
    """Have the rows read in the order of their keys, whatever the statistics of the table say.

    Where they are behind, the planner may take a filter for one that leaves a handful of rows: it would read all that
    match by an index on the filter, for each page anew, and sort them.
    """
    # Joins and subqueries may need to sort: without it, some are left with a loop over all of the other table per row.
    alone = len(tables_read(rows.queryset)) <= 1 and not rows.nested and not rows.model._meta.all_parents
    if connections[rows.alias].vendor != "postgresql" or not alone or not rows.queryset.query.where:
        yield
        return
    ((before, _),) = run(rows.alias, "let_sort", {"sort": "off"})
    yield
    # The handler's statements are planned as ever. Where the read fails, its transaction takes this back.
    run(rows.alias, "let_sort", {"sort": before})
