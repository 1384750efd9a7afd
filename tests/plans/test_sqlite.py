"""On SQLite every statement goes by an index, and takes no more with ten times as much that is done, dead, waits or is
ready.

That holds without statistics (unknown), with right ones (analyzed), and with those that were taken before the backlog
came (behind).
"""

from __future__ import annotations

import pytest

from tests.plans.cases import Case, cases, loops
from tests.plans.conftest import Backlog
from tests.plans.explain import indexes, sequential
from ultimat3_jobs.drivers.database.driver import STATS_CAP
from ultimat3_jobs.sql import names

pytestmark = pytest.mark.sqlite_only(reason="EXPLAIN QUERY PLAN and the virtual machine's loops")

CIRCUMSTANCES = ("behind", "unknown", "analyzed")
CASES = cases()
# Below its cap the depth counts what is there, and that grows.
BOUNDED = [case for case in CASES if case.parameters.get("cap") != STATS_CAP]
IDLE_ROUNDS = 60


def test_every_statement_has_a_case() -> None:
    assert {case.statement for case in CASES} == set(names("sqlite"))


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_table_is_read_whole(backlog: Backlog, case: Case, circumstance: str) -> None:
    lines = backlog.lines[circumstance, case.name]

    assert sequential(case, lines) == []
    assert indexes(lines) <= case.indexes, lines
    assert bool(indexes(lines)) == bool(case.indexes), lines


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
@pytest.mark.parametrize("case", BOUNDED, ids=str)
def test_ten_times_the_rows_take_no_more(backlog: Backlog, case: Case, circumstance: str) -> None:
    small, big = backlog.work["small", case.name], backlog.work[circumstance, case.name]

    assert big.returned == small.returned == (case.rows if case.returns else 0)
    assert big.rounds <= 1.1 * small.rounds + 10


@pytest.mark.parametrize("case", loops(), ids=str)
def test_a_loop_with_nothing_to_do_takes_next_to_nothing(backlog: Backlog, case: Case) -> None:
    idle = backlog.work["idle", case.name]

    assert idle.returned == 0
    assert idle.rounds <= IDLE_ROUNDS
