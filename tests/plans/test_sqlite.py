"""On SQLite every statement goes by an index, and takes no more with ten times as much that is done, dead, waits or is
ready.

That holds without statistics (unknown), with right ones (analyzed), and with those that were taken before the backlog
came (behind).
"""

from __future__ import annotations

import pytest

from tests.plans.cases import cases, loops
from tests.plans.conftest import Backlog
from tests.plans.explain import indexes, sequential
from ultimat3_jobs.drivers.database.driver import STATS_CAP
from ultimat3_jobs.sql import names

pytestmark = pytest.mark.sqlite_only(reason="EXPLAIN QUERY PLAN and the steps of the virtual machine")

CIRCUMSTANCES = ("behind", "unknown", "analyzed")
# Below its cap the depth counts what is there, and that grows.
BOUNDED = [case for case in cases() if case.parameters.get("cap") != STATS_CAP]
IDLE_STEPS = 100


def test_every_statement_has_a_case() -> None:
    assert {case.statement for case in cases()} == set(names("sqlite"))


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_the_statements_do_what_they_are_for(backlog: Backlog, circumstance: str) -> None:
    returned = {case.name: backlog.work[circumstance, case.name].returned for case in cases()}

    assert returned == {case.name: case.rows if case.returns else 0 for case in cases()}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_no_table_is_read_whole(backlog: Backlog, circumstance: str) -> None:
    found = {case.name: sequential(case, backlog.lines[circumstance, case.name]) for case in cases()}

    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_the_indexes_are_those_made_for_it(backlog: Backlog, circumstance: str) -> None:
    others = {}
    for case in cases():
        used = indexes(backlog.lines[circumstance, case.name])
        if not used <= case.indexes or bool(used) != bool(case.indexes):
            others[case.name] = used

    assert others == {}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_ten_times_the_rows_take_no_more(backlog: Backlog, circumstance: str) -> None:
    grown = {}
    for case in BOUNDED:
        small, big = backlog.work["small", case.name], backlog.work[circumstance, case.name]
        if big.steps > 1.1 * small.steps + 10:
            grown[case.name] = (small.steps, big.steps)

    assert grown == {}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_the_claim_goes_on_behind_a_row_and_not_behind_its_time(backlog: Backlog, circumstance: str) -> None:
    assert "(run_at,id)>(?,?)" in "\n".join(backlog.lines[circumstance, "claim ten"])


def test_a_loop_with_nothing_to_do_takes_next_to_nothing(backlog: Backlog) -> None:
    idle = {case.name: backlog.work["idle", case.name] for case in loops()}

    assert {name: work for name, work in idle.items() if work.returned or work.steps > IDLE_STEPS} == {}
