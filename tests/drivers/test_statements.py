"""The named statements: readable, alike in both dialects, known to the database, and of one mind about keys."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps.registry import Apps
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from ultimat3_jobs import sql
from ultimat3_jobs.models import OutboxEntry
from ultimat3_jobs.records import LapseKind, NackKind, StepKind, StepState
from ultimat3_jobs.states import LIVE, RETRYABLE, WAITING, State, Stop

NAMES = sql.names("postgresql")
BOTH = [(vendor, name) for vendor in sql.VENDORS for name in sql.names(vendor)]
LOOK_UPS_OF_A_KEY = ["holders", "live_passes", "retry", "release_keys_for"]

# An example of every parameter: with these, each statement can be explained.
EXAMPLES: dict[str, Any] = {
    "rows": "[]",
    "only": "[]",
    "excluded": "[]",
    "limit": 10,
    "seen": "[]",
    "cap": 10,
    "lease": 30.0,
    "worker": "worker",
    "by": "ann",
    "reason": "mended",
    "with_rerun": True,
    "lapsed": 1,
    "lapsed_text": "lapsed",
    "unbegun_text": "unbegun",
    "most_lapses": 5,
    "lost_text": "lost",
    "error_class": "WorkerLost",
    "cause": "c" * 64,
    "relay": "relay",
    "milliseconds": 1_000,
    "keep": 60.0,
    "after": "0" * 32,
    "before": "f" * 32,
    "queue": "default",
    "state": "dead",
    "name": "name",
    "tenant": "tenant",
    "key": "key",
    "budget": 1_000,
    "id": "0" * 32,
    "token": "0" * 32,
    "run_id": "0" * 32,
    "seq": 1,
    "kind": "step",
    "attempt": 1,
    "output": "1",
    "delay": 0.0,
    "took": 0.0,
    "table_name": "shop_order",
    "batch": 100,
    "rate": 1.0,
    "window_start": "22:00:00",
    "window_end": "06:00:00",
    "environment": "staging",
    "requested_by": "ann",
    "forced": False,
    "with_window": True,
    "known": True,
    "checksum": "c" * 64,
    "release": "1.0",
    "bound": "[1]",
    "total": 10,
    "estimated": False,
    "processed": 5,
    "holder": "0" * 32,
    "table": '"x_jobs"',
    "data": "{}",
    "sort": "on",
}


def parameters(vendor: str, name: str) -> set[str]:
    """Return the names of the parameters that a statement takes."""
    return set(re.findall(r"%\((\w+)\)s", sql.statement(vendor, name)))


def plain(text: str) -> str:
    """Return SQL without comments, quotes around names, the names of tables, and line breaks."""
    text = re.sub(r"--.*", "", text).replace('"', "")
    return re.sub(r"\s+", " ", re.sub(r"\b(?:j|x|x_jobs)\.(?=\w)", "", text)).strip()


def declared_key(apps: Apps) -> tuple[str, str]:
    """Return the expression and the predicate of the unique index over keys as the migrations declare it."""
    model = apps.get_model("ultimat3_jobs", "Job")
    (constraint,) = [one for one in model._meta.constraints if one.name == "x_jobs_key"]
    with connection.schema_editor(collect_sql=True) as editor:
        index = plain(str(constraint.create_sql(model, editor)))
    found = re.fullmatch(r"CREATE UNIQUE INDEX x_jobs_key ON x_jobs \((.*)\) WHERE \((.*)\)", index)
    assert found, index
    # An expression stands in brackets of its own where the index is made, and nowhere else.
    return re.sub(r"\((COALESCE\(.*?\))\)", r"\1", found[1]), found[2]


def test_both_dialects_have_the_same_statements() -> None:
    assert sql.names("sqlite") == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_both_dialects_of_a_statement_take_the_same_parameters(name: str) -> None:
    assert parameters("sqlite", name) == parameters("postgresql", name)


@pytest.mark.parametrize(("vendor", "name"), BOTH)
def test_a_statement_opens_with_what_it_does(vendor: str, name: str) -> None:
    first, *_ = sql.read(vendor, name).splitlines()

    assert re.match(r"-- [A-Z].{20,}", first)


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_is_known_to_its_database(transactional_db: None, vendor: str, name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql.statement(vendor, name)}", EXAMPLES)
        assert cursor.fetchall()


@pytest.mark.parametrize(("vendor", "name"), BOTH)
def test_every_word_in_a_statement_is_one_that_the_code_knows(vendor: str, name: str) -> None:
    known = {*State, *Stop, *NackKind, *LapseKind, *OutboxEntry.Kind.values, *OutboxEntry.Outcome.values}
    known |= {*StepKind, *StepState, "payload", "published_at", "requested_at", "completed", "table", "worker"}
    kinds_of_history = {"failure", "retry"}
    words = set(re.findall(r"'([a-z][a-z_-]*)'", plain(sql.read(vendor, name))))
    settings_of_the_server = {"idle_in_transaction_session_timeout", "max_wal_size", "enable_sort"}

    assert words <= {*known, *kinds_of_history, *settings_of_the_server, "now"}


@pytest.mark.parametrize(("vendor", "name"), BOTH)
def test_every_list_of_states_is_one_of_the_code(vendor: str, name: str) -> None:
    lists = re.findall(r"state(?: \|\| '')? (?:NOT )?IN \((.*?)\)", plain(sql.read(vendor, name)))
    tried_again = (State.DELAYED, State.READY)  # where the history tells of a next attempt
    known = {", ".join(f"'{state}'" for state in states) for states in (LIVE, WAITING, RETRYABLE, tried_again)}

    assert set(lists) <= known


@pytest.mark.parametrize(("vendor", "name"), BOTH)
def test_no_statement_asks_for_a_time_that_stands_still_in_a_transaction(vendor: str, name: str) -> None:
    still = r"\bnow\(\)|transaction_timestamp|current_timestamp|current_time|localtime|current_date"

    assert not re.search(still, plain(sql.read(vendor, name)), re.IGNORECASE)


def test_index_conflict_target_and_look_ups_spell_one_key(transactional_db: None) -> None:
    expression, predicate = declared_key(MigrationLoader(connection).project_state().apps)

    assert expression == "name, COALESCE(tenant_id, ''), idempotency_key"
    assert predicate == f"state IN ({', '.join(repr(str(state)) for state in LIVE)}) OR key_until IS NOT NULL"
    for vendor in sql.VENDORS:
        target = f"ON CONFLICT ({expression}) WHERE {predicate} DO NOTHING"
        assert target in plain(sql.read(vendor, "enqueue")), vendor
        for name in LOOK_UPS_OF_A_KEY:
            look_up = plain(sql.read(vendor, name))
            compared = re.search(
                r"\bname = \S.*? AND (COALESCE\(tenant_id, ''\)) = (?i:coalesce)\(.*?tenant_id.*?, ''\)"
                r" AND idempotency_key = .*? AND \((state IN .*? IS NOT NULL)\)",
                look_up,
            )
            assert compared, (vendor, name, look_up)
            assert f"name, {compared[1]}, idempotency_key" == expression, (vendor, name)
            assert compared[2] == predicate, (vendor, name)


def test_the_models_and_the_migrations_declare_one_key(transactional_db: None) -> None:
    from django.apps import apps

    assert declared_key(apps) == declared_key(MigrationLoader(connection).project_state().apps)


@pytest.mark.parametrize("name", LOOK_UPS_OF_A_KEY)
def test_a_look_up_of_a_key_can_use_its_index(transactional_db: None, vendor: str, name: str) -> None:
    with connection.cursor() as cursor:
        if vendor == "postgresql":
            cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        words = "EXPLAIN" if vendor == "postgresql" else "EXPLAIN QUERY PLAN"
        cursor.execute(f"{words} {sql.statement(vendor, name)}", EXAMPLES)
        plan = "\n".join(str(row) for row in cursor.fetchall())

    assert "x_jobs_key" in plan, plan
