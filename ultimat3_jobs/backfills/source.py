"""The rows of a backfill: what its source gives, and why some querysets cannot be swept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, DatabaseError, Error, NotSupportedError, ProgrammingError, connections, router
from django.db.models import Manager, Model, QuerySet
from django.db.models.query import ModelIterable
from django.db.models.sql.datastructures import BaseTable, Join
from django.db.transaction import TransactionManagementError

from ultimat3_jobs.aliases import queue_alias
from ultimat3_jobs.backfills.asking import ask, told
from ultimat3_jobs.backfills.commands import migrate_command
from ultimat3_jobs.errors import BackfillSourceInvalid, JobsError
from ultimat3_jobs.text import command_line, nearest
from ultimat3_jobs.traces import first_line, message_of

if TYPE_CHECKING:
    from ultimat3_jobs.backfills.definition import BackfillDefinition

_SELECT = re.compile(r"""(?<!["\w])SELECT(?!["\w])""", re.IGNORECASE)  # and no column of that name


@dataclass(frozen=True)
class Rows:
    """The rows that a pass sweeps.

    Attributes:
        queryset: those that are to be handled, on the database that is written to.
        everything: all rows of their table, whose keys bound what one statement reads.
        alias: of their database.
        in_one: whether a page and its cursor commit together: exactly once.
        locked: what of a row is locked with it, as `select_for_update(of=...)` takes it; None: nothing.
        nested: whether the statement that reads them has another one in it.
    """

    queryset: QuerySet[Any]
    everything: QuerySet[Any]
    alias: str
    in_one: bool
    locked: tuple[str, ...] | None
    nested: bool

    @property
    def model(self) -> type[Model]:
        """The model of the rows."""
        model: type[Model] = self.queryset.model
        return model

    @property
    def tables(self) -> list[str]:
        """The tables that its pages write to, those of the model's parents too; sorted, so that all take them alike."""
        models = (self.model, *self.model._meta.all_parents)
        return sorted({one._meta.db_table for one in models})

    @property
    def table(self) -> str:
        """The table whose keys are swept."""
        return self.model._meta.db_table


def open_rows(backfill: BackfillDefinition) -> Rows:
    """Call the source of a backfill and return what it gives.

    Raises:
        BackfillSourceInvalid: where it cannot be swept by primary key in pages.
    """
    given = backfill.source()
    queryset = given.all() if isinstance(given, Manager) else given
    if not isinstance(queryset, QuerySet):
        raise _refuse(backfill, f"gives {type(given).__name__}, which is no queryset", "Post.objects.all()")
    # Where it writes: a replica would show rows as they were.
    alias = vars(queryset)["_db"] or router.db_for_write(queryset.model)
    if alias not in connections:
        fault = f"is of the database {alias!r}, which is none of DATABASES"
        meant = nearest(alias, connections.databases) or DEFAULT_DB_ALIAS
        raise _refuse(backfill, fault, f"{queryset.model.__name__}.objects.using({meant!r})")
    queryset = queryset.using(alias)
    _check(backfill, queryset)
    sql = _sql(backfill, queryset)
    return Rows(
        queryset=_with_parents(queryset) if backfill.lock else queryset,
        # Of no manager: one may hide rows.
        everything=QuerySet(queryset.model, using=alias),
        alias=alias,
        in_one=backfill.atomic and alias == queue_alias(),
        locked=_locked(queryset.model) if backfill.lock else None,
        nested=len(_SELECT.findall(sql)) > 1,
    )


def rows_of(backfill: BackfillDefinition) -> Rows:
    """Return the rows of a backfill. For people: what its source raises is a refusal that names the backfill.

    Raises:
        BackfillSourceInvalid: where the source raises, or gives nothing that can be swept.
    """

    def refuse(error: BaseException) -> JobsError:
        return BackfillSourceInvalid(
            f"the source of backfill {backfill.name!r} raised {told(error)}",
            fix=f"source=lambda: Post.objects.all()  # in {backfill.handler.__module__}",
        )

    return ask(lambda: open_rows(backfill), refuse=refuse)


@contextmanager
def readable(backfill: BackfillDefinition, rows: Rows) -> Iterator[None]:
    """Have what the database says of rows that are read in the block be a refusal that names the backfill.

    Raises:
        BackfillSourceInvalid: where they cannot be read: most often a column is not there yet.
    """
    try:
        yield
    except DatabaseError as error:
        first = first_line(error) or type(error).__name__
        raise BackfillSourceInvalid(
            f"the rows of backfill {backfill.name!r} cannot be read from {rows.alias!r}: {first}",
            fix=migrate_command(alias=rows.alias)
            if isinstance(error, ProgrammingError) or first.startswith("no such")
            else command_line("check", "--database", rows.alias),
        ) from error


def _check(backfill: BackfillDefinition, queryset: QuerySet[Any]) -> None:
    query, name = queryset.query, queryset.model.__name__
    joined = _joined(queryset)
    expressions: list[Any] = [query.where, *query.annotations.values()]
    faults = {
        f"is a {query.combinator} of querysets": query.combinator,
        "is sliced": query.is_sliced,
        "is distinct": query.distinct or query.distinct_fields,
        "is grouped by an aggregate": query.group_by is not None,
        "has a window function, whose rows cannot be locked": any(one.contains_over_clause for one in expressions),
        "is ordered, and a sweep goes in the order of the primary key": (
            query.order_by or query.extra_order_by or not query.standard_ordering
        ),
        "skips rows that others have locked, which would then never be handled": query.select_for_update_skip_locked,
        "locks its rows itself, and each page of a sweep does that already": query.select_for_update,
        "gives values instead of model instances": not issubclass(queryset._iterable_class, ModelIterable),
        f"joins {joined}, which can give a row twice": joined,
    }
    fault = next((what for what, is_so in faults.items() if is_so), None)
    if fault is not None:
        instead = "filter(...)"
        if joined:
            instead = "filter(Exists(...))  # a subquery gives each row once"
        elif query.select_for_update:
            instead = "filter(...)  # lock=True, which is the default, locks the rows of each page"
        raise _refuse(backfill, fault, f"{name}.objects.{instead}")


def _refuse(backfill: BackfillDefinition, fault: str, instead: str) -> BackfillSourceInvalid:
    return BackfillSourceInvalid(f"the source of backfill {backfill.name!r} {fault}", fix=f"source=lambda: {instead}")


def _joined(queryset: QuerySet[Any]) -> str:
    """Return the first table that the rows are joined with, but for the tables of the model's own parents."""
    model = queryset.model
    own = {model._meta.db_table, *(parent._meta.db_table for parent in model._meta.all_parents)}
    for join in tables_read(queryset):
        if not isinstance(join, BaseTable) and not (join.table_name in own and _is_parent_link(join)):
            return join.table_name
    tables = queryset.query.extra_tables
    return str(tables[0]) if tables else ""


def tables_read(queryset: QuerySet[Any]) -> list[BaseTable | Join]:
    """Return the tables that the rows are read from: the model's own, and those that it is joined with."""
    query = queryset.query
    # What refers to nothing was trimmed: it is there, and not in the SQL. A filter by a foreign key leaves one.
    return [join for alias, join in query.alias_map.items() if query.alias_refcount[alias]]


def _sql(backfill: BackfillDefinition, queryset: QuerySet[Any]) -> str:
    """Return the SQL that reads the rows, "" where none can match.

    Raises:
        BackfillSourceInvalid: where there is none: a name that is no field's, what this database cannot do.
    """
    try:
        sql, _ = queryset.query.get_compiler(using=queryset.db).as_sql()
    except EmptyResultSet:
        return ""
    except Exception as error:
        if isinstance(error, Error) and not isinstance(error, (NotSupportedError, TransactionManagementError)):
            raise  # the database cannot be asked now
        name = queryset.model.__name__
        fault = f"cannot be read: {type(error).__name__}: {message_of(error)}"
        raise _refuse(backfill, fault, f"{name}.objects.filter(...)") from error
    return str(sql)


def _is_parent_link(join: Join) -> bool:
    field = getattr(join.join_field, "field", join.join_field)  # seen from the parent, it is the link's other side
    return bool(getattr(getattr(field, "remote_field", None), "parent_link", False))


def _locked(model: type[Model]) -> tuple[str, ...]:
    """Return what to lock of a row: it and its parts in the tables of its parents, since a `save()` writes them all."""
    names = ["self"]

    def walk(of: type[Model], path: str) -> None:
        parents: dict[type[Model], Any] = dict(of._meta.parents)
        for parent, link in parents.items():
            if link is None:  # of a proxy
                walk(parent, path)
                continue
            name = f"{path}__{link.name}" if path else link.name
            names.append(name)
            walk(parent, name)

    walk(model, "")
    return tuple(dict.fromkeys(names))


def _with_parents(queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Have the keys of the parents' rows read too where `only()` or `defer()` leaves them out.

    Django locks no table of which no column is read.
    """
    queryset = queryset.all()
    names, is_deferred = queryset.query.deferred_loading
    keys = {key.name for parent in queryset.model._meta.all_parents for key in parent._meta.pk_fields}
    if names:
        queryset.query.deferred_loading = (frozenset(names - keys if is_deferred else names | keys), is_deferred)
    return queryset
