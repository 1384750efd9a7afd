"""A drain lends the test's own connection and transaction to bodies, and gives them back sound."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, close_old_connections, connection, connections, transaction
from django.test import TestCase, TransactionTestCase

from tests.app.models import Effect, Organization
from tests.declaring import error_of
from tests.worker.test_connections import session
from tests.working import declare, row, states
from ultimat3_jobs import Retry, Run, registry
from ultimat3_jobs.models import Job as JobRow
from ultimat3_jobs.testing import drain

AT_LAST = Retry(attempts=1)


def save(name: str) -> None:
    """Write something that can be written once."""
    Organization.objects.create(name=name)


def saved() -> list[str]:
    """Return what was written."""
    return list(Organization.objects.order_by("pk").values_list("name", flat=True))


def break_the_transaction(run: Run, n: int) -> None:
    """Catch an error of the database without a block around it."""
    save("before")
    try:
        save("twice")
    except IntegrityError:
        return


def break_it_past_django(run: Run, n: int) -> None:
    """Do the same with a statement of its own."""
    save("before")
    try:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO app_organization (name) VALUES ('twice')")
    except IntegrityError:
        return


@pytest.fixture(params=["test case", "block of the caller"])
def in_a_transaction(request: pytest.FixtureRequest, isolated_registry: None) -> Any:
    """A transaction that a test has open: Django's own, or one that is like any other."""
    if request.param == "test case":
        request.getfixturevalue("db")
        yield
    else:
        request.getfixturevalue("queue")
        with transaction.atomic():
            yield
            transaction.set_rollback(True)


@pytest.mark.usefixtures("in_a_transaction")
class TestInATransaction:
    """Whoever has opened it."""

    def test_it_stays_open_and_usable_and_its_connection_the_same(self) -> None:
        before, depth = session(), len(connection.savepoint_ids)
        save("the caller's")
        declare(lambda run, n: save("the body's")).enqueue(1)
        drain()

        assert session() == before
        assert (connection.in_atomic_block, len(connection.savepoint_ids)) == (True, depth)
        assert saved() == ["the caller's", "the body's"]

    @pytest.mark.parametrize("close", [close_old_connections, connections.close_all, lambda: None])
    def test_clearing_old_connections_never_ends_it(self, close: Any) -> None:
        before = session()
        save("the caller's")
        declare(lambda run, n: close()).enqueue(1)
        connection.close_at = 0.0  # long over its age
        connection.errors_occurred = True
        drain()

        assert session() == before
        assert saved() == ["the caller's"]
        assert not {"close", "close_if_unusable_or_obsolete"} & vars(connections["default"]).keys(), "it can be closed"
        connection.close_at, connection.errors_occurred = None, False

    @pytest.mark.parametrize("body", [break_the_transaction, break_it_past_django], ids=["orm", "sql"])
    def test_one_that_a_body_breaks_is_mended_and_says_so(self, body: Any) -> None:
        save("twice")
        declare(body, retry=AT_LAST).enqueue(1)
        broken = body is break_the_transaction or connection.vendor == "postgresql"
        if broken:
            error = error_of("X_TRANSACTION_BROKEN", drain)
            assert "'default'" in error.cause
        else:
            drain()

        assert saved() == (["twice"] if broken else ["twice", "before"])
        assert states() == {"dead" if broken else "done": 1}
        save("the caller goes on")

    def test_an_error_of_the_database_is_raised_as_it_is(self) -> None:
        save("twice")
        failing = declare(lambda run, n: save("twice"), retry=AT_LAST).enqueue(1)
        with pytest.raises(IntegrityError):
            drain()

        assert saved() == ["twice"]
        assert "IntegrityError" in row(failing).last_error

    def test_an_error_that_a_body_catches_around_a_block_is_its_own_affair(self) -> None:
        def body(run: Run, n: int) -> None:
            try:
                with transaction.atomic():
                    save("twice")
            except IntegrityError:
                save("another")

        save("twice")
        declare(body).enqueue(1)

        assert drain().counts == {"done": 1}
        assert saved() == ["twice", "another"]

    def test_a_body_that_fails_otherwise_keeps_what_it_wrote(self) -> None:
        def body(run: Run, n: int) -> None:
            save("kept")
            with transaction.atomic():
                save("undone")
                raise LookupError

        declare(body, retry=AT_LAST).enqueue(1)
        drain(raise_errors=False)

        assert saved() == ["kept"]

    def test_a_durable_block_of_a_body_does_not_mind(self) -> None:
        def body(run: Run, n: int) -> None:
            with transaction.atomic(durable=True):
                save("durable")

        declare(body).enqueue(1)
        drain()

        assert saved() == ["durable"]

    def test_hooks_on_the_commit_of_a_body_are_called_when_it_has_ended(self) -> None:
        called: list[str] = []
        transaction.on_commit(lambda: called.append("the caller's"))

        def body(run: Run, n: int) -> None:
            transaction.on_commit(lambda: called.append("first"))
            with transaction.atomic():
                transaction.on_commit(lambda: transaction.on_commit(lambda: called.append("inner")))
            with transaction.atomic():
                transaction.on_commit(lambda: called.append("rolled back"))
                transaction.set_rollback(True)
            called.append("body")

        declare(body).enqueue(1)
        drain()

        assert called == ["body", "first", "inner"]
        assert len(connection.run_on_commit) == 1, "the caller's own still waits"
        connection.run_on_commit.clear()

    def test_a_hook_that_fails_fails_its_body(self) -> None:
        def hook() -> None:
            raise LookupError("in the hook")

        def body(run: Run, n: int) -> None:
            transaction.on_commit(hook, robust=n == 1)

        handle = declare(body, retry=AT_LAST)
        handle.enqueue(1)
        assert drain().counts == {"done": 1}
        handle.enqueue(2)
        with pytest.raises(LookupError, match="in the hook"):
            drain()
        assert states() == {"dead": 1, "done": 1}

    def test_hooks_of_a_broken_body_are_not_called(self) -> None:
        called: list[int] = []

        def body(run: Run, n: int) -> None:
            transaction.on_commit(lambda: called.append(n))
            break_the_transaction(run, n)

        save("twice")
        declare(body, retry=AT_LAST).enqueue(1)
        drain(raise_errors=False)

        assert (called, connection.run_on_commit) == ([], [])

    @pytest.mark.postgresql_only(reason="SQLite has no limit on idle transactions")
    def test_it_may_be_idle_as_long_as_before(self) -> None:
        def limit() -> str:
            with connection.cursor() as cursor:
                cursor.execute("SHOW idle_in_transaction_session_timeout")
                return str(cursor.fetchone()[0])

        before = limit()
        declare(lambda run, n: None).enqueue(1)
        drain()

        assert limit() == before


@pytest.mark.usefixtures("isolated_registry")
class TestWithoutOne:
    """In autocommit, a body gets the connection as it is, and what it left open is rolled back."""

    pytestmark = pytest.mark.usefixtures("queue")

    @pytest.fixture(autouse=True)
    def _no_organizations(self, queue: None) -> Any:
        yield
        Organization.objects.all().delete()

    def leave_a_block_open(self) -> None:
        transaction.atomic().__enter__()
        save("lost")

    def turn_autocommit_off(self) -> None:
        connection.set_autocommit(False)
        save("lost")

    def begin(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
        save("lost")

    @pytest.mark.parametrize("leave", ["leave_a_block_open", "turn_autocommit_off", "begin"])
    def test_what_a_body_left_open_is_rolled_back_on_the_same_connection(self, leave: str) -> None:
        before = session()
        first = declare(lambda run, n: getattr(self, leave)()).enqueue(1)
        drain()

        assert session() == before
        assert (connection.in_atomic_block, connection.get_autocommit(), saved()) == (False, True, [])
        assert row(first).state == "done"
        save("the caller goes on")

    def test_a_body_may_close_its_connection(self) -> None:
        def close_in_a_block() -> None:
            transaction.atomic().__enter__()
            save("lost")
            connection.close()

        for n, close in enumerate((connection.close, close_in_a_block)):
            declare(lambda run, n, close=close: close(), name=f"t.{n}").enqueue(n)
        drain()

        assert states() == {"done": 2}
        assert saved() == []

    def test_an_integrity_error_that_a_body_catches_breaks_nothing(self) -> None:
        save("twice")
        declare(break_the_transaction).enqueue(1)

        assert drain().counts == {"done": 1}
        assert saved() == ["twice", "before"]


class TestDjangosTestCase(TestCase):
    """Django's own classes, without pytest's fixtures."""

    def test_drain(self) -> None:
        with registry.isolated():
            declare(lambda run, n: Effect.objects.create(label="drained")).enqueue(1)
            assert drain(raise_errors=False).counts == {"dead": 1}  # the result cannot be stored
        assert Effect.objects.count() == 1
        assert connection.in_atomic_block

    def test_nothing_is_left_by_the_other_test(self) -> None:
        assert JobRow.objects.count() + Effect.objects.count() == 0

    test_nothing_is_left_by_the_one_before = test_nothing_is_left_by_the_other_test


class TestDjangosTransactionTestCase(TransactionTestCase):
    """The one that commits."""

    available_apps = ("ultimat3_jobs", "tests.app")

    def test_drain(self) -> None:
        with registry.isolated():
            handle = declare(lambda run, n: None)
            handle.enqueue(1)
            with transaction.atomic():
                handle.enqueue(2)
            assert drain().counts == {"done": 2}
        assert not connection.in_atomic_block
