"""Which sources are swept and which are refused: a filter by a foreign key joins nothing, one across it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, models
from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    IntegerField,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.functions import RowNumber
from django.db.models.lookups import GreaterThan
from django.test.utils import isolate_apps

from tests.app.models import Effect, Item, Organization, Restaurant
from tests.backfills.declared import definition
from tests.backfills.handlers import rich
from tests.backfills.sweeping import declare, handled, sweep
from tests.backfills.test_rows import add_one, model, table_of
from tests.declaring import error_of
from tests.working import row, run_due
from ultimat3_jobs.backfills.checksum import checksum
from ultimat3_jobs.backfills.source import open_rows, rows_of

pytestmark = pytest.mark.usefixtures("queue")

EACH = 5
"""Posts of the author 1, of the author 2, and of none."""


class Blog:
    """Models that refer to one another, with rows."""

    def __init__(self) -> None:
        self.Author = model("Author", label=models.TextField(), handled=models.IntegerField(default=0))
        self.Tag = model("Tag", label=models.TextField())
        self.Post = model(
            "Post",
            title=models.TextField(default=""),
            author=models.ForeignKey(self.Author, null=True, on_delete=models.CASCADE),
            editor=models.ForeignKey(self.Author, null=True, on_delete=models.CASCADE, related_name="edited"),
            tags=models.ManyToManyField(self.Tag),
            handled=models.IntegerField(default=0),
        )

    def fill(self) -> None:
        self.Author.objects.bulk_create(self.Author(pk=pk, label=f"author {pk}") for pk in (1, 2, 3))
        for author in (1, 2, None):
            self.Post.objects.bulk_create(self.Post(author_id=author, editor_id=2) for _ in range(EACH))

    @property
    def posts(self) -> QuerySet[Any]:
        """All posts."""
        found: QuerySet[Any] = self.Post.objects.all()
        return found

    @property
    def authors(self) -> QuerySet[Any]:
        """All authors."""
        found: QuerySet[Any] = self.Author.objects.all()
        return found


@pytest.fixture
def blog() -> Iterator[Blog]:
    with isolate_apps("tests.app"):
        made = Blog()
        with table_of(made.Author, made.Tag, made.Post):
            made.fill()
            yield made


SWEPT: dict[str, tuple[Callable[[Blog], Any], int]] = {
    "the column": (lambda b: b.posts.filter(author_id=1), EACH),
    "the relation": (lambda b: b.posts.filter(author=1), EACH),
    "an instance": (lambda b: b.posts.filter(author=b.authors.get(pk=1)), EACH),
    "its key": (lambda b: b.posts.filter(author__pk=1), EACH),
    "its key by name": (lambda b: b.posts.filter(author__id__gte=1), 2 * EACH),
    "null": (lambda b: b.posts.filter(author__isnull=True), EACH),
    "none": (lambda b: b.posts.filter(author=None), EACH),
    "not null": (lambda b: b.posts.filter(author__isnull=False), 2 * EACH),
    "a list": (lambda b: b.posts.filter(author__in=[1, 2]), 2 * EACH),
    "a subquery": (lambda b: b.posts.filter(author__in=b.authors.filter(label="author 1")), EACH),
    "a subquery that joins": (lambda b: b.posts.filter(pk__in=b.posts.filter(author__label="author 1")), EACH),
    "two relations": (lambda b: b.posts.filter(author=1, editor=2), EACH),
    "all but none": (lambda b: b.posts.exclude(author=None), 2 * EACH),
    "all but one": (lambda b: b.posts.exclude(author_id=1), 2 * EACH),
    "all but a subquery": (lambda b: b.posts.exclude(author__in=b.authors.filter(pk=1)), 2 * EACH),
    "either": (lambda b: b.posts.filter(Q(author=1) | Q(author=None)), 2 * EACH),
    "either queryset": (lambda b: b.posts.filter(author=1) | b.posts.filter(author=2), 2 * EACH),
    "both querysets": (lambda b: b.posts.filter(author=1) & b.posts.filter(editor=2), EACH),
    "neither": (lambda b: b.posts.filter(~Q(author=1), ~Q(author=None)), EACH),
    "an annotation": (lambda b: b.posts.annotate(by=F("author_id")), 3 * EACH),
    "an annotation that is filtered by": (lambda b: b.posts.annotate(by=F("author")).filter(by=1), EACH),
    "an alias": (lambda b: b.posts.alias(by=F("author_id")).filter(by=2), EACH),
    "a case": (
        lambda b: b.posts.annotate(by=Case(When(author=1, then=1), default=0, output_field=IntegerField())).filter(
            by=1
        ),
        EACH,
    ),
    "columns alike": (lambda b: b.posts.filter(author=F("editor")), EACH),
    "exists": (lambda b: b.posts.filter(Exists(b.authors.filter(pk=OuterRef("author_id")))), 2 * EACH),
    "exists by the relation": (lambda b: b.posts.filter(Exists(b.authors.filter(pk=OuterRef("author")))), 2 * EACH),
    "exists not": (lambda b: b.posts.filter(~Exists(b.authors.filter(pk=OuterRef("author_id")))), EACH),
    "a subquery's value": (
        lambda b: b.posts.annotate(by=Subquery(b.authors.filter(pk=OuterRef("author_id")).values("label")[:1])).filter(
            by="author 2"
        ),
        EACH,
    ),
    "a subquery that only refers": (
        lambda b: b.posts.annotate(by=Subquery(b.authors.filter(pk=1).values(by=OuterRef("author_id"))[:1])),
        3 * EACH,
    ),
    "a relation that is not used": (
        lambda b: b.posts.annotate(by=FilteredRelation("author", condition=Q(author__label="x"))).filter(author=1),
        EACH,
    ),
    "related": (lambda b: b.posts.select_related("author", "editor").filter(author=1), EACH),
    "related, some fields": (
        lambda b: b.posts.select_related("author").only("author__label", "handled").filter(author=None),
        EACH,
    ),
    "prefetched": (lambda b: b.posts.filter(author=1).prefetch_related(Prefetch("tags"), "author"), EACH),
    "one field": (lambda b: b.posts.filter(author=2).only("handled"), EACH),
    "a related manager": (lambda b: b.authors.get(pk=1).post_set, EACH),
    "the other side of it": (lambda b: b.authors.exclude(post__title="none of them"), 3),
    "the other side, with a subquery": (lambda b: b.authors.filter(pk__in=b.posts.values("author")), 2),
    "counted in a subquery": (
        lambda b: b.authors.filter(
            pk__in=b.posts.values("author").annotate(many=Count("pk")).filter(many__gt=1).values("author")
        ),
        2,
    ),
    "raw": (lambda b: b.posts.filter(author=1).extra(where=["author_id IN (SELECT 1)"]), EACH),
    "a window in a subquery": (
        lambda b: b.posts.filter(
            author=1,
            pk__in=b.posts.annotate(n=Window(RowNumber(), partition_by="author")).filter(n__gt=1).values("pk"),
        ),
        EACH - 1,
    ),
    "nothing": (lambda b: b.posts.filter(author=1).none(), 0),
}


@pytest.mark.parametrize("form", SWEPT)
def test_a_source_that_joins_nothing_is_swept_whole(blog: Blog, form: str) -> None:
    source, expected = SWEPT[form]
    given = source(blog)
    swept = given.model

    done = sweep(declare(lambda run, rows: add_one(rows), swept, source=lambda: source(blog), batch=2))

    assert done.state == "done", done.last_error
    assert {times: rows for times, rows in handled(swept).items() if times} == ({1: expected} if expected else {})
    assert set(given.values_list("handled", flat=True)) <= {1}, "and those were its rows"


def test_a_queryset_that_was_read_before_is_swept(blog: Blog) -> None:
    """The joins by which it was read are in it from then on."""
    kept = blog.posts.select_related("author").filter(editor=2)
    assert len(kept) == 3 * EACH

    done = sweep(declare(lambda run, rows: add_one(rows), blog.Post, source=lambda: kept, batch=4))

    assert (done.state, handled(blog.Post)) == ("done", {1: 3 * EACH}), done.last_error


JOINED: dict[str, tuple[Callable[[Blog], Any], str]] = {
    "a column of it": (lambda b: b.posts.filter(author__label="author 1"), "author"),
    "a column that is null": (lambda b: b.posts.filter(author__label=None), "author"),
    "a column beside its key": (lambda b: b.posts.filter(author=1).filter(author__label="author 1"), "author"),
    "the second relation": (lambda b: b.posts.filter(author=1, editor__label="author 2"), "author"),
    "all but a column of it": (lambda b: b.posts.exclude(author__label="author 1"), "author"),
    "either": (lambda b: b.posts.filter(Q(author=1) | Q(author__label="author 2")), "author"),
    "an annotation": (lambda b: b.posts.annotate(by=F("author__label")), "author"),
    "an alias": (lambda b: b.posts.alias(by=F("author__label")).filter(by="author 1"), "author"),
    "a case": (lambda b: b.posts.annotate(by=Case(When(author__label="x", then=1), default=Value(0))), "author"),
    "a relation that is used": (
        lambda b: b.posts.annotate(by=FilteredRelation("author", condition=Q(author__label="x"))).filter(by__label="x"),
        "author",
    ),
    "many to many": (lambda b: b.posts.filter(tags=1), "post_tags"),
    "the other side": (lambda b: b.authors.filter(post__title=""), "post"),
    "keys of the other side": (lambda b: b.authors.filter(post__isnull=False), "post"),
    "none on the other side": (lambda b: b.authors.filter(post=None), "post"),
    "another table by hand": (lambda b: b.posts.extra(tables=["app_author"]), "author"),
}


@pytest.mark.parametrize("form", JOINED)
def test_a_source_that_joins_is_refused(blog: Blog, form: str) -> None:
    source, table = JOINED[form]
    given = definition(source=lambda: source(blog))

    error = error_of("X_BACKFILL_SOURCE_INVALID", lambda: open_rows(given))

    assert f"joins app_{table}, which can give a row twice" in error.cause
    assert "Exists(...)" in error.fix


@pytest.mark.parametrize("source", [lambda: Restaurant.objects.filter(owner=1, name="r"), Restaurant.objects.all])
def test_the_tables_of_parents_are_no_joins(source: Any) -> None:
    owner = Organization.objects.create(pk=1, name="owner")
    Restaurant.objects.create(name="r", owner=owner)

    done = sweep(declare(None, Restaurant, source=source))

    assert (done.state, done.result["handled"]) == ("done", 1), done.last_error
    Restaurant.objects.all().delete()


INVALID: dict[str, tuple[Callable[[], Any], str, str]] = {
    "locks": (Item.objects.select_for_update, "locks its rows itself", "# lock=True"),
    "locks or fails": (lambda: Item.objects.select_for_update(nowait=True), "locks its rows itself", "Item.objects"),
    "another database": (
        lambda: Item.objects.using("nosuch"),
        "is of the database 'nosuch', which is none of DATABASES",
        "source=lambda: Item.objects.using('default')",
    ),
    "a mistyped database": (
        lambda: Item.objects.using("defualt"),
        "is of the database 'defualt'",
        "source=lambda: Item.objects.using('default')",
    ),
    "no database at all": (lambda: Item.objects.using(5), "is of the database 5", "Item.objects.using('default')"),
    "no such field": (lambda: Item.objects.only("nosuch"), "cannot be read: FieldDoesNotExist", "Item.objects"),
    "no such relation": (lambda: Item.objects.select_related("nosuch"), "cannot be read: FieldError", "Item.objects"),
    "a relation that is left out": (
        lambda: Restaurant.objects.only("stars").select_related("owner"),
        "cannot be read: FieldError",
        "Restaurant.objects",
    ),
    "the key left out": (lambda: Item.objects.defer("pk"), "cannot be read: FieldDoesNotExist", "Item.objects"),
    "rows of two databases": (
        lambda: Item.objects.filter(pk__in=Effect.objects.using("other").values("pk")),
        "cannot be read: ValueError: Subqueries aren't allowed across different databases",
        "Item.objects",
    ),
    "a filter by a window": (
        lambda: Item.objects.filter(GreaterThan(Window(RowNumber()), 1)),
        "has a window function",
        "Item.objects",
    ),
}


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize("form", INVALID)
def test_a_source_that_is_wrong_is_refused_and_no_traceback(form: str, lock: bool) -> None:
    source, why, instead = INVALID[form]
    given = definition(source=source, lock=lock)

    for reads in (open_rows, rows_of):
        error = error_of("X_BACKFILL_SOURCE_INVALID", lambda reads=reads: reads(given))

        assert why in error.cause
        assert instead in error.fix


@pytest.mark.parametrize("form", INVALID)
def test_a_pass_whose_source_is_wrong_ends_at_once(form: str) -> None:
    Item.objects.create()
    source, why, _ = INVALID[form]
    kind: list[Callable[[], Any]] = [Item.objects.all]

    def given() -> Any:
        return kind[0]()

    started = declare(None, Item, source=given).enqueue()
    kind[0] = source

    run_due()

    done = row(started)
    assert (done.state, done.stop, handled(Item)) == ("dead", "terminal", {0: 1})
    assert f"X_BACKFILL_SOURCE_INVALID: the source of backfill 't.backfill' {why}" in done.last_error


@pytest.mark.parametrize("form", SWEPT)
def test_every_source_that_is_swept_has_a_checksum(blog: Blog, form: str) -> None:
    source, _ = SWEPT[form]
    given = definition(source=lambda: source(blog), handler=rich)

    assert len(checksum(given, rows_of(given).queryset)) == 64


@pytest.mark.sqlite_only(reason="PostgreSQL can do it")
def test_what_a_database_cannot_do_is_refused() -> None:
    with isolate_apps("tests.app"):
        noted = model("Noted", notes=models.JSONField())

        error = error_of(
            "X_BACKFILL_SOURCE_INVALID",
            lambda: open_rows(definition(source=lambda: noted.objects.filter(notes__contains={"a": 1}))),
        )

    assert "cannot be read: NotSupportedError: contains lookup is not supported on this database" in error.cause


@pytest.mark.postgresql_only(reason="SQLite has no locks of rows")
def test_a_subquery_that_locks_is_refused() -> None:
    given = definition(source=lambda: Item.objects.filter(pk__in=Item.objects.select_for_update()))

    error = error_of("X_BACKFILL_SOURCE_INVALID", lambda: open_rows(given))

    assert "cannot be read: TransactionManagementError" in error.cause


class Asking(Value):
    """A value for which the database is asked when the SQL is made, as some expressions ask for its version."""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM nowhere")
        return super().as_sql(compiler, connection)


def test_a_database_that_cannot_be_asked_makes_no_source_invalid() -> None:
    """It may be there again for the next attempt."""
    with pytest.raises(DatabaseError, match="nowhere"):
        open_rows(definition(source=lambda: Item.objects.annotate(one=Asking(1))))


def test_a_source_that_would_end_the_process_is_a_refusal_that_names_the_backfill() -> None:
    def source() -> Any:
        raise SystemExit(3)

    error = error_of("X_BACKFILL_SOURCE_INVALID", lambda: rows_of(declare(None, Item, source=source).backfill))

    assert "SystemExit: 3" in error.cause
