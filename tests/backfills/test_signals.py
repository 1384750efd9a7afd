"""The built-in reasons to wait, on a real server: what is seen, what is hidden, and what fails."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction

from tests.app.models import Organization
from tests.conftest import InThreads
from tests.declaring import error_of
from tests.processes import TIMEOUT, wait_for
from ultimat3_jobs import sql
from ultimat3_jobs.backfills.signals import (
    DEFAULT_SIGNALS,
    Heard,
    ReplicaLag,
    Unseen,
    VacuumWaiting,
    WalPressure,
    ask,
    check_signals,
)

INVALID = "X_JOB_DECLARATION_INVALID"
TABLE = Organization._meta.db_table
on_postgresql = pytest.mark.postgresql_only(reason="SQLite has no replicas, vacuums and checkpoints of a server")
NAMES = {"ReplicaLag": ReplicaLag, "VacuumWaiting": VacuumWaiting, "WalPressure": WalPressure}


class Broken:
    """A signal whose statement fails."""

    def ask(self, alias: str, table: str) -> str | None:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT no_such_function()")
        raise AssertionError("it did not fail")


class Waits:
    """A signal that always has a reason."""

    def ask(self, alias: str, table: str) -> str | None:
        return f"{alias}.{table}"


@pytest.fixture
def powerless(transactional_db: None) -> Iterator[str]:
    """Be a role without any privilege for the length of a test; its name."""
    role = f"powerless_{uuid.uuid4().hex[:12]}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
        cursor.execute(f"SET ROLE {role}")
        yield role
        cursor.execute("RESET ROLE")
        cursor.execute(f"DROP ROLE {role}")


def test_where_nothing_is_wrong_there_is_nothing_to_wait_for(transactional_db: None) -> None:
    assert ask(DEFAULT_SIGNALS, "default", TABLE) == Heard()


class TestAsking:
    def test_the_first_reason_counts(self) -> None:
        assert ask([Waits(), Broken()], "default", "t") == Heard("default.t")

    def test_a_statement_that_fails_is_told_and_ends_nothing(self, transactional_db: None) -> None:
        heard = ask([Broken(), Waits()], "default", "t")

        assert heard.wait == "default.t"
        (unseen,) = heard.unseen
        assert unseen.signal == "Broken"
        assert "no_such_function" in unseen.reason
        assert "\n" not in unseen.reason

    def test_a_transaction_that_is_open_goes_on(self, transactional_db: None) -> None:
        with transaction.atomic():
            Organization.objects.create(name="before")
            heard = ask([Broken()], "default", "t")
            Organization.objects.create(name="after")

        assert len(heard.unseen) == 1
        assert Organization.objects.count() == 2

    def test_a_fault_of_the_signal_itself_is_raised(self) -> None:
        class Faulty:
            def ask(self, alias: str, table: str) -> str | None:
                raise KeyError(table)

        with pytest.raises(KeyError, match="t"):
            ask([Faulty()], "default", "t")

    def test_a_database_without_statements_is_unseen(self) -> None:
        class Elsewhere:
            def ask(self, alias: str, table: str) -> str | None:
                return sql.statement("oracle", "wal_pressure")

        (unseen,) = ask([Elsewhere()], "default", "t").unseen

        assert unseen == Unseen("Elsewhere", "the database driver speaks postgresql and sqlite, not oracle")


class TestDeclaring:
    @pytest.mark.parametrize("most", ["30s", 0.5, 1, timedelta(minutes=2), "1h30m"])
    def test_a_lag_is_a_length_of_time(self, most: Any) -> None:
        assert ReplicaLag(most).most == most

    @pytest.mark.parametrize("most", ["", "30", 0, -1, timedelta(0), None, True, float("nan"), float("inf"), []])
    def test_what_is_no_lag_is_refused_and_mended_by_typing_the_fix(self, most: Any) -> None:
        error = error_of(INVALID, lambda: ReplicaLag(most))

        assert eval(error.fix, NAMES) == ReplicaLag("30s")

    @pytest.mark.parametrize("share", [0, -0.5, 10.1, float("nan"), float("inf"), True, "0.9", None])
    def test_what_is_no_share_is_refused_and_mended_by_typing_the_fix(self, share: Any) -> None:
        error = error_of(INVALID, lambda: WalPressure(share=share))

        assert eval(error.fix, NAMES) == WalPressure()

    @pytest.mark.parametrize("value", [[], DEFAULT_SIGNALS, [Waits()], (ReplicaLag("5s"),)])
    def test_signals_are_a_list(self, value: Any) -> None:
        assert check_signals(value) == tuple(value)

    @pytest.mark.parametrize("value", [None, True, "lag", ReplicaLag(), [VacuumWaiting], [None], ["lag"], {Waits()}])
    def test_what_is_no_list_of_signals_is_refused_and_mended_by_typing_the_fix(self, value: Any) -> None:
        error = error_of(INVALID, lambda: check_signals(value))

        mended: dict[str, Any] = eval(f"dict({error.fix}\n)", NAMES)
        assert check_signals(mended["signals"])


@on_postgresql
class TestVacuum:
    def test_one_that_waits_for_the_table_is_a_reason_until_it_goes_on(self, in_threads: InThreads) -> None:
        held = threading.Event()

        def vacuum() -> None:
            assert held.wait(TIMEOUT)
            with connection.cursor() as cursor:
                cursor.execute(f"VACUUM {TABLE}")

        def hold() -> tuple[Heard, Heard, Heard]:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {TABLE} IN SHARE UPDATE EXCLUSIVE MODE")
                before = ask([VacuumWaiting()], "default", TABLE)
                held.set()
                heard = wait_for(lambda: (found := ask([VacuumWaiting()], "default", TABLE)).wait and found, "it waits")
                return before, heard, ask([VacuumWaiting()], "default", "x_jobs")

        _, (before, heard, other) = in_threads(vacuum, hold)

        assert before == Heard()
        assert heard == Heard(f"a vacuum waits for its lock on {TABLE}")
        assert other == Heard()
        assert ask([VacuumWaiting()], "default", TABLE) == Heard()

    def test_a_role_without_privileges_sees_it(self, powerless: str, in_threads: InThreads) -> None:
        held, seen = threading.Event(), threading.Event()

        def vacuum() -> None:
            assert held.wait(TIMEOUT)
            with connection.cursor() as cursor:
                cursor.execute(f"VACUUM {TABLE}")

        def hold() -> None:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {TABLE} IN SHARE UPDATE EXCLUSIVE MODE")
                held.set()
                assert seen.wait(TIMEOUT)

        def look() -> Any:
            with connection.cursor() as cursor:
                cursor.execute(f"SET ROLE {powerless}")
            try:
                return wait_for(lambda: ask([VacuumWaiting()], "default", TABLE).wait, "a vacuum waits")
            finally:
                seen.set()

        assert in_threads(vacuum, hold, look)[2] == f"a vacuum waits for its lock on {TABLE}"

    def test_another_lock_that_waits_is_no_vacuum(self, in_threads: InThreads) -> None:
        held = threading.Event()

        def wait() -> None:
            assert held.wait(TIMEOUT)
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {TABLE} IN EXCLUSIVE MODE")

        def waits() -> bool:
            with connection.cursor() as cursor:
                cursor.execute("SELECT FROM pg_locks WHERE relation = %s::regclass AND NOT granted", [TABLE])
                return cursor.rowcount > 0

        def hold() -> Heard:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {TABLE} IN SHARE UPDATE EXCLUSIVE MODE")
                held.set()
                wait_for(waits, "a lock waits")
                return ask([VacuumWaiting()], "default", TABLE)

        assert in_threads(wait, hold)[1] == Heard()

    def test_a_table_of_another_database_is_another_table(self, transactional_db: None) -> None:
        first, second = (f"twin_{uuid.uuid4().hex[:12]}" for _ in range(2))
        parameters = connection.get_connection_params()
        known = {name: parameters[name] for name in ("host", "port", "user", "password") if parameters.get(name)}
        server = psycopg.connect(**known, dbname="postgres", autocommit=True)
        try:
            server.execute(f"CREATE DATABASE {first} TEMPLATE template0")
            with psycopg.connect(**known, dbname=first) as one:
                one.execute("CREATE TABLE twin ()")
            server.execute(f"CREATE DATABASE {second} TEMPLATE {first}")  # its table has the same oid
            statement, twin = sql.statement("postgresql", "vacuum_waiting"), {"table": "twin"}
            with (
                psycopg.connect(**known, dbname=first) as holder,
                psycopg.connect(**known, dbname=first) as waiter,
                psycopg.connect(**known, dbname=first, autocommit=True) as here,
                psycopg.connect(**known, dbname=second, autocommit=True) as there,
            ):
                holder.execute("LOCK TABLE twin IN SHARE UPDATE EXCLUSIVE MODE")
                waiter.execute("SELECT 1")  # begins a transaction
                waiter.pgconn.send_query(b"LOCK TABLE twin IN SHARE UPDATE EXCLUSIVE MODE")
                wait_for(lambda: here.execute(statement, twin).fetchone() == (True, True), "a lock waits")
                assert there.execute(statement, twin).fetchone() == (True, False)
                holder.rollback()
                while waiter.pgconn.get_result():
                    pass
                waiter.rollback()
        finally:
            for name in (second, first):
                server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            server.close()

    def test_a_table_is_found_by_its_exact_name(self, transactional_db: None) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute('CREATE TABLE "Mixed Case" ()')
            assert ask([VacuumWaiting()], "default", "Mixed Case") == Heard()
            transaction.set_rollback(True)

    def test_a_table_that_is_not_found_is_unseen(self, transactional_db: None) -> None:
        (unseen,) = ask([VacuumWaiting()], "default", "No Such").unseen

        assert unseen == Unseen("VacuumWaiting", 'no table "No Such" is on the search path of this connection')


@on_postgresql
class TestWal:
    def test_more_than_its_share_is_a_reason(self, transactional_db: None) -> None:
        reason = ask([WalPressure(share=1e-12)], "default", TABLE).wait

        assert reason is not None
        assert "MB of write-ahead log since the last checkpoint, over 1e-10 % of the 1,024 MB of max_wal_size" in reason

    def test_a_role_without_privileges_sees_it(self, powerless: str) -> None:
        assert ask([WalPressure(share=1e-12)], "default", TABLE).wait

    def test_a_function_that_is_out_of_bounds_is_unseen(self, powerless: str) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("RESET ROLE")
            cursor.execute("REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC")
            cursor.execute(f"SET ROLE {powerless}")
            heard = ask([WalPressure(share=1e-12)], "default", TABLE)
            transaction.set_rollback(True)

        assert heard == Heard(None, (Unseen("WalPressure", "permission denied for function pg_control_checkpoint"),))


@on_postgresql
class TestReplicas:
    def test_one_that_is_behind_is_a_reason(self, transactional_db: None) -> None:
        from tests.backfills.replica import replica

        hurried, patient = ReplicaLag(timedelta(microseconds=1)), ReplicaLag("1h")
        with replica() as follower:
            follower.apply()
            reason = wait_for(lambda: ask([hurried], "default", TABLE).wait, "the replica's lag is known")
            assert ask([patient], "default", TABLE) == Heard()

        assert reason.startswith("a replica is ")
        assert " s behind, over " in reason

    def test_one_whose_lag_is_hidden_is_unseen(self, powerless: str) -> None:
        from tests.backfills.replica import replica

        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE")
            with replica() as follower:
                follower.apply()
                cursor.execute(f"SET ROLE {powerless}")
                heard = ask([ReplicaLag("1h")], "default", TABLE)

        (unseen,) = heard.unseen
        assert (heard.wait, unseen.signal) == (None, "ReplicaLag")
        assert unseen.reason.startswith("the lag of 1 of 1 replicas is hidden from this role")
        assert unseen.reason.endswith(f": GRANT pg_monitor TO {powerless}")

    def test_without_any_there_is_nothing_to_wait_for(self, transactional_db: None) -> None:
        assert ask([ReplicaLag("1h")], "default", TABLE) == Heard()
