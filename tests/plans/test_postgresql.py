"""On PostgreSQL, with 1,000,000 finished jobs, 100,000 that wait and 130,000 that are ready, every statement goes by an
index and touches at most four rows for each that it returns.

That holds with the planner's defaults and right statistics (analyzed), with the one plan that serves all parameters
(generic), and where the statistics were taken before the backlog came (behind): then the planner believes that next
to nothing is ready, waits, has lapsed or is dead.
"""

from __future__ import annotations

import pytest

from tests.plans.cases import KEPT, KEYS, Case, cases, loops
from tests.plans.conftest import Backlog
from tests.plans.database import QUEUES
from ultimat3_jobs.sql import names

pytestmark = pytest.mark.postgresql_only(reason="EXPLAIN ANALYZE and its formats")

CIRCUMSTANCES = ("behind", "analyzed", "generic")
CASES = cases()
IDLE_PAGES = 10  # of indexes, from their roots down


def test_every_statement_has_a_case() -> None:
    assert {case.statement for case in CASES} == set(names("postgresql"))


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_table_is_read_whole(backlog: Backlog, case: Case, circumstance: str) -> None:
    plan = backlog.plans[circumstance, case.name]

    assert plan.sequential == set(), plan.text
    assert plan.indexes <= case.indexes, plan.text
    assert bool(plan.indexes) == bool(case.indexes), plan.text


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_at_most_four_rows_are_touched_for_each_returned(backlog: Backlog, case: Case, circumstance: str) -> None:
    plan = backlog.plans[circumstance, case.name]

    assert plan.returned == (case.rows if case.returns else 0), plan.text
    assert plan.touched <= 4 * case.rows + case.probes, plan.text


def test_the_enqueue_meets_held_keys_in_the_index(backlog: Backlog) -> None:
    top = backlog.plans["analyzed", "enqueue"].nodes[0]

    assert top["Conflict Arbiter Indexes"] == ["x_jobs_key"]
    assert (top["Tuples Inserted"], top["Conflicting Tuples"]) == (KEPT, KEYS)


@pytest.mark.parametrize("case", loops(), ids=str)
def test_a_loop_with_nothing_to_do_reads_a_few_pages(backlog: Backlog, case: Case) -> None:
    plan = backlog.plans["idle", case.name]

    assert (plan.returned, plan.touched) == (0, 0), plan.text
    assert plan.pages <= IDLE_PAGES, plan.text


def test_the_claim_of_a_queue_without_work_reads_one_row_of_each_queue(backlog: Backlog) -> None:
    plan = backlog.plans["analyzed", "claim from a queue without work"]

    assert plan.touched == len(QUEUES), plan.text
