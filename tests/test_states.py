"""The table of moves is whole and of one piece."""

from __future__ import annotations

import pytest

from ultimat3_jobs.errors import RowStatusUnknown
from ultimat3_jobs.models import Job
from ultimat3_jobs.states import FINAL, LIVE, MOVES, RETRYABLE, WAITING, Cause, State, Stop, may_move, parse_state


def test_every_state_is_live_or_final() -> None:
    assert [*LIVE, *FINAL] == list(State)
    assert set(WAITING) < set(LIVE)
    assert set(RETRYABLE) < set(FINAL)


def test_every_move_has_a_cause_and_every_cause_a_move() -> None:
    assert all(MOVES.values())
    assert set().union(*MOVES.values()) == set(Cause)


def test_only_the_moves_of_the_table_are_legal() -> None:
    legal = {(before, after) for before in State for after in State if may_move(before, after)}

    assert legal == set(MOVES)


def test_a_job_runs_only_from_ready() -> None:
    assert [before for before, after in MOVES if after is State.RUNNING] == [State.READY]


def test_only_failed_work_leaves_an_end_and_only_by_a_retry() -> None:
    leaving = {before: causes for (before, _), causes in MOVES.items() if before in FINAL}

    assert leaving == dict.fromkeys(RETRYABLE, frozenset({Cause.RETRY}))


def test_every_live_job_can_be_cancelled_and_nothing_else() -> None:
    assert {before for before, after in MOVES if after is State.CANCELLED} == set(LIVE)


@pytest.mark.parametrize("state", list(State))
def test_a_known_state_is_read(state: State) -> None:
    assert parse_state(state.value) is state


@pytest.mark.parametrize("text", ["", "paused", "READY", "ready "])
def test_an_unknown_state_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(RowStatusUnknown) as caught:
        parse_state(text)

    assert caught.value.code == "X_JOB_ROW_STATUS_UNKNOWN"
    assert repr(text) in caught.value.cause


def test_states_and_stops_fit_their_columns() -> None:
    lengths = {field: Job._meta.get_field(field).max_length or 0 for field in ("state", "stop")}

    assert max(map(len, State)) <= lengths["state"]
    assert max(map(len, Stop)) <= lengths["stop"]
    assert Job._meta.get_field("state").choices == [(state.value, state.value) for state in State]
