"""What a string that goes to a database says: which ends the transaction, and which only reads."""

from __future__ import annotations

import pytest

from ultimat3_jobs.statements import changes_the_session, ends_the_transaction, only_reads

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


READS: list[str | bytes] = [
    "(SELECT 1); /* DELETE */ SELECT '; DELETE';",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    b"with recursive a(n) as (select 1 union all select n + 1 from a) select n from a",
    "WITH a AS (SELECT 'DELETE' AS \"INSERT\") SELECT * FROM a FOR NO KEY UPDATE",
    "EXPLAIN SELECT 1 FOR UPDATE",
    "WITH a AS (SELECT 1) SELECT replace('a', 'b', 'c') FROM a",
    "FETCH FORWARD 10 FROM c",
    "DECLARE c CURSOR FOR SELECT 1",
    "LOCK TABLE x IN SHARE MODE",
    "START TRANSACTION; RESET ROLE; END",
    "",
]
WRITES: list[str | bytes] = [
    "SELECT 1; DELETE FROM x",
    "WITH gone AS (DELETE FROM x RETURNING id) SELECT id FROM gone",
    "WITH a AS (SELECT 1) INSERT INTO x SELECT * FROM a",
    "WITH a AS (SELECT 1 AS key) UPDATE x SET y = 1",
    b"EXPLAIN ANALYZE UPDATE x SET y = 1",
    "WITH a AS (SELECT 1) SELECT 1 FROM a FOR UPDATE; UPDATE x SET y = 1",
    "WITH a AS (SELECT 1) REPLACE INTO x SELECT * FROM a",
    "TRUNCATE x",
    "COPY x FROM STDIN",
    "CALL anything()",
]


@pytest.mark.parametrize("sql", READS)
def test_a_string_reads_where_each_of_its_statements_does(sql: str | bytes) -> None:
    assert only_reads(sql, nested=True)


@pytest.mark.parametrize("sql", WRITES)
def test_a_string_writes_where_one_of_its_statements_does(sql: str | bytes) -> None:
    assert not only_reads(sql, nested=True)


@pytest.mark.parametrize("number", [30, 20_000])
def test_comments_before_a_statement_cost_next_to_nothing(number: int) -> None:
    """Each in one way alone: a search that tries them in many would not end."""
    comments = "/* a * b */ -- c\n" * number
    assert not changes_the_session(f"{comments}SELECT 1")
    assert not changes_the_session(f"/* a */ UPDATE x /* b */ SET n = 1; {comments} UPDATE x SET n = 1")
    assert changes_the_session(f"SELECT 1; {comments} SET x = 1")
