"""On PostgreSQL, with 1,000,000 finished jobs, 100,000 that wait and 130,000 that are ready, every statement goes by an
index and touches at most four rows for each that it returns.

That holds with the planner's defaults and right statistics (analyzed), with the one plan that serves all parameters
(generic), and where the statistics were taken before the backlog came (behind): then the planner believes that next
to nothing is ready, waits, runs or is dead. Where they were taken while the tables were almost empty and have outgrown
their pages since (outgrown) or only filled them again (refilled), most may read a table through, but not for each row
of their batch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plans.cases import KEPT, KEYS, Case, cases, loops
from tests.plans.conftest import Backlog
from tests.plans.database import QUEUES, TEN_TIMES
from tests.plans.explain import Plan
from ultimat3_jobs.sql import names

pytestmark = pytest.mark.postgresql_only(reason="EXPLAIN ANALYZE")

CIRCUMSTANCES = ("behind", "analyzed", "generic")
IDLE_PAGES = 10  # of indexes, from their roots down


def breaking(backlog: Backlog, circumstance: str, among: list[Case], rule: Callable[[Case, Plan], bool]) -> list[str]:
    """Return the names of the cases that break a rule, and print their plans."""
    broken = [case for case in among if not rule(case, backlog.plans[circumstance, case.name])]
    for case in broken:
        print(f"{case}, {circumstance}:\n{backlog.plans[circumstance, case.name].text}")
    return [str(case) for case in broken]


def test_every_statement_has_a_case() -> None:
    assert {case.statement for case in cases()} == set(names("postgresql"))


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_the_statements_do_what_they_are_for(backlog: Backlog, circumstance: str) -> None:
    def rule(case: Case, plan: Plan) -> bool:
        return plan.returned == (case.rows if case.returns else 0)

    assert breaking(backlog, circumstance, cases(), rule) == []


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_no_table_is_read_whole(backlog: Backlog, circumstance: str) -> None:
    assert breaking(backlog, circumstance, cases(), lambda case, plan: not plan.sequential) == []


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_the_indexes_are_those_made_for_it(backlog: Backlog, circumstance: str) -> None:
    def rule(case: Case, plan: Plan) -> bool:
        return plan.indexes <= case.indexes and bool(plan.indexes) == bool(case.indexes)

    assert breaking(backlog, circumstance, cases(), rule) == []


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_at_most_four_rows_are_touched_for_each_returned(backlog: Backlog, circumstance: str) -> None:
    def rule(case: Case, plan: Plan) -> bool:
        return plan.touched <= 4 * case.rows + case.probes

    assert breaking(backlog, circumstance, cases(), rule) == []


# What people do to jobs now and then, requests to run again, and what ends many jobs at once when something went wrong.
MAY_TAKE_LONG = {"retry", "forget steps", "ask again", "nack", "sweep"}


@pytest.mark.parametrize("circumstance", ["outgrown", "refilled"])
def test_no_batch_is_compared_with_every_row_of_a_table_of_which_the_statistics_are_far_off(
    backlog: Backlog, circumstance: str
) -> None:
    """They were taken while the tables had many pages and hardly a row: they seem to have next to none."""
    rows = TEN_TIMES.done + TEN_TIMES.dead + TEN_TIMES.delayed + TEN_TIMES.ready
    among = [case for case in cases() if case.name not in MAY_TAKE_LONG]

    assert breaking(backlog, circumstance, among, lambda case, plan: plan.handled <= 4 * rows) == []


def test_the_enqueue_meets_held_keys_in_the_index(backlog: Backlog) -> None:
    insert = backlog.plans["analyzed", "enqueue"].nodes[0]

    assert insert["Conflict Arbiter Indexes"] == ["x_jobs_key"]
    assert (insert["Tuples Inserted"], insert["Conflicting Tuples"]) == (KEPT, KEYS)


def test_a_loop_with_nothing_to_do_reads_a_few_pages(backlog: Backlog) -> None:
    def rule(case: Case, plan: Plan) -> bool:
        return plan.returned == plan.touched == 0 and plan.pages <= IDLE_PAGES

    assert breaking(backlog, "idle", loops(), rule) == []


def test_the_claim_of_a_queue_without_work_reads_one_row_of_each_queue(backlog: Backlog) -> None:
    plan = backlog.plans["analyzed", "claim from a queue without work"]

    assert plan.touched == len(QUEUES), plan.text
