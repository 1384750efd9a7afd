"""Guards of how a page is read: by key, whatever the planner believes."""

from __future__ import annotations

from tests.mutations.mutation import POSTGRESQL, Mutation

KEYSET = "ultimat3_jobs/backfills/keyset.py"
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
)
