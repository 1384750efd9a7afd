"""Guards of which rows a source may give, and of how a page is read: by key, whatever the planner believes."""

from __future__ import annotations

from tests.mutations.mutation import POSTGRESQL, Mutation

KEYSET = "ultimat3_jobs/backfills/keyset.py"
SOURCE = "ultimat3_jobs/backfills/source.py"
SOURCES = "tests/backfills/test_sources.py::"
WRONG = f"{SOURCES}test_a_source_that_is_wrong_is_refused_and_no_traceback"
PLANS = "tests/backfills/test_page_plans.py::"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "keys: a page is read in the order of keys, and not sorted",
        KEYSET,
        '{"sort": "off"}',
        '{"sort": "on"}',
        f"{PLANS}test_a_filter_that_the_statistics_take_for_rare_is_not_read_whole_for_each_page",
        POSTGRESQL,
    ),
    Mutation(
        "keys: the handler's statements are planned as ever",
        KEYSET,
        '{"sort": before}',
        '{"sort": "off"}',
        f"{PLANS}test_a_filter_that_the_statistics_take_for_rare_is_not_read_whole_for_each_page",
        POSTGRESQL,
    ),
    Mutation(
        "keys: the tables of parents are bounded as well",
        KEYSET,
        "            query.where.add(GreaterThan(column, after), AND)\n",
        "            pass\n",
        f"{PLANS}test_the_table_of_a_parent_is_not_read_from_its_first_row_on",
        POSTGRESQL,
    ),
    Mutation(
        "keys: a filter by a foreign key is no join, and is read in the order of keys",
        KEYSET,
        "len(tables_read(rows.queryset)) <= 1",
        "len(rows.queryset.query.alias_map) <= 1",
        f"{PLANS}test_a_filter_by_a_foreign_key_is_read_in_the_order_of_keys_too",
        POSTGRESQL,
    ),
    Mutation(
        "keys: rows that another table decides on may be sorted",
        KEYSET,
        " and not rows.nested and ",
        " and ",
        f"{PLANS}test_rows_that_another_table_decides_on_may_be_sorted[exists not]",
        POSTGRESQL,
    ),
    Mutation(
        "keys: a column that is called select is no subquery",
        SOURCE,
        """(?<!["\\w])SELECT(?!["\\w])""",
        """SELECT""",
        f"{PLANS}test_a_column_that_is_called_select_is_no_subquery",
        POSTGRESQL,
    ),
    Mutation(
        "source: a join that was trimmed is none",
        SOURCE,
        " if query.alias_refcount[alias]]",
        "]",
        f"{SOURCES}test_a_source_that_joins_nothing_is_swept_whole[the column]",
    ),
    Mutation(
        "source: a join is refused, beside a filter that needs none too",
        SOURCE,
        " if query.alias_refcount[alias]]",
        " if query.alias_refcount[alias] > 1]",
        f"{SOURCES}test_a_source_that_joins_is_refused[a column beside its key]",
    ),
    Mutation(
        "source: one that locks by itself is refused",
        SOURCE,
        'does that already": query.select_for_update,',
        'does that already": False,',
        f"{WRONG}[locks-True]",
    ),
    Mutation(
        "source: one that filters by a window function is refused",
        SOURCE,
        "[query.where, *query.annotations.values()]",
        "[*query.annotations.values()]",
        f"{WRONG}[a filter by a window-True]",
    ),
    Mutation(
        "source: one of no database is refused",
        SOURCE,
        "    if alias not in connections:\n",
        "    if False:\n",
        f"{WRONG}[another database-True]",
    ),
    Mutation(
        "source: one of which there is no SQL is refused",
        SOURCE,
        '        raise _refuse(backfill, fault, f"{name}.objects.filter(...)") from error\n',
        "        raise\n",
        f"{WRONG}[no such field-True]",
    ),
    *(
        Mutation(
            f"source: one of which this database makes no SQL is refused, {error}",
            SOURCE,
            "(NotSupportedError, TransactionManagementError)",
            f"({left},)",
            f"{SOURCES}{test}",
            (vendor,),
        )
        for error, left, test, vendor in (
            (
                "what it cannot do",
                "TransactionManagementError",
                "test_what_a_database_cannot_do_is_refused",
                "sqlite",
            ),
            (
                "what locks",
                "NotSupportedError",
                "test_a_subquery_that_locks_is_refused",
                "postgresql",
            ),
        )
    ),
    Mutation(
        "source: one whose database cannot be asked now is tried again",
        SOURCE,
        "            raise  # the database cannot be asked now\n",
        "            pass\n",
        f"{SOURCES}test_a_database_that_cannot_be_asked_makes_no_source_invalid",
    ),
    *(
        Mutation(
            f"source: the rows of parents are locked whatever fields are read, {mode}",
            SOURCE,
            old,
            new,
            f"tests/backfills/test_page_locks.py::test_the_rows_of_parents_are_locked_whatever_fields_are_read[{mode}]",
            POSTGRESQL,
        )
        for mode, old, new in (
            ("only", "else names | keys)", "else names)"),
            ("defer", "frozenset(names - keys if", "frozenset(names if"),
        )
    ),
)
