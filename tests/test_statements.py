"""What a string that goes to a database says: which ends the transaction, and which only reads."""

from __future__ import annotations

import pytest

from ultimat3_jobs.statements import ends_the_transaction, only_reads

ENDS: list[str | bytes] = [
    "COMMIT",
    "end",
    "SELECT 1; END",
    "SELECT 1; COMMIT -- done",
    "SELECT 1;COMMIT/* x */;;",
    "SELECT 1;\n rollback and chain ; ",
    "SELECT '--';COMMIT",
    "SELECT $a$ ; $a$; abort",
    "PREPARE TRANSACTION 'x'",
    "select 1; prepare /*;*/ transaction 'x'",
    "SELECT E'\\'; ' ; COMMIT",
    "/* /* */ */ COMMIT",
    "SELECT 'a''b;'; END TRANSACTION",
    "ROLLBACK WORK",
    "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; COMMIT",
    b"SELECT 1; COMMIT",
    'CREATE TABLE "begin" (i int); END',
    "SELECT 1;\rEND",
    "BEGIN; SELECT 1; END",
    "select 1; COMMIT PREPARED 'x'",
]
ENDS_NOTHING = [
    "SELECT '; COMMIT'",
    "SELECT '; rollback' /* ; commit */",
    "ROLLBACK TO x",
    "SELECT 1; ROLLBACK WORK TO SAVEPOINT x;",
    "DO $$ BEGIN PERFORM 1; END $$",
    "DO $x$ BEGIN; COMMIT; $$ END $x$; SELECT 1",
    "SELECT CASE WHEN a THEN 1 END",
    "SELECT 1 -- ; COMMIT",
    "CREATE TRIGGER t AFTER UPDATE ON x BEGIN SELECT 1; END",
    "CREATE TEMP TRIGGER t AFTER UPDATE ON x BEGIN UPDATE y SET a=CASE WHEN 1 THEN 2 END; SELECT 2; END;",
    "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END;",
    'SELECT "; COMMIT"',
    "PREPARE p AS SELECT 1",
    "SELECT E'a\\'; COMMIT; '",
    'SELECT 1 AS "end"; SELECT 2',
    "/* /* ; */ ; COMMIT */ SELECT 1",
]


@pytest.mark.parametrize("sql", ENDS)
def test_what_ends_the_transaction(sql: str | bytes) -> None:
    assert ends_the_transaction(sql, nested=True)


@pytest.mark.parametrize("sql", ENDS_NOTHING)
def test_what_only_holds_the_words(sql: str) -> None:
    assert not ends_the_transaction(sql, nested=True)


def test_comments_nest_on_postgresql_alone() -> None:
    assert ends_the_transaction("/* /* */ COMMIT", nested=False)
    assert not ends_the_transaction("/* /* */ COMMIT", nested=True)


def test_a_string_reads_where_each_of_its_statements_does() -> None:
    assert only_reads("(SELECT 1); /* DELETE */ SELECT '; DELETE';", nested=True)
    assert not only_reads("SELECT 1; DELETE FROM x", nested=True)
    assert not only_reads("WITH gone AS (DELETE FROM x RETURNING id) SELECT id FROM gone", nested=True)
