"""A replica as far as the server can tell: it is sent the write-ahead log, and says what it has applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from psycopg import pq
from psycopg.conninfo import make_conninfo

from tests.processes import wait_for


class Replica:
    """A connection that follows the server's log and keeps none of it."""

    def __init__(self, following: pq.PGconn) -> None:
        self._following = following

    def apply(self) -> None:
        """Write to the server's log, wait until that has come here, and say that it is applied."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_logical_emit_message(false, 'replica', 'applied here', true)")
            cursor.execute("SELECT pg_current_wal_flush_lsn() - '0/0'")
            (flushed,) = cursor.fetchone()
        wait_for(lambda: self._received() >= flushed, "the log came to the replica")
        # What is written, kept and applied, when, and that no answer is asked for.
        position = int(flushed).to_bytes(8)
        self._following.put_copy_data(b"r" + 3 * position + bytes(8) + b"\0")
        wait_for(lambda: self._following.flush() == 0, "the server was told")

    def _received(self) -> int:
        received = 0
        self._following.consume_input()
        while True:
            length, message = self._following.get_copy_data(1)
            if length <= 0:
                return received
            message = bytes(message)
            if message[:1] == b"w":  # where it begins, where the server's log ends, when; then the log itself
                received = int.from_bytes(message[1:9]) + len(message) - 25


@contextmanager
def replica() -> Iterator[Replica]:
    """Follow the log of the test's server for the length of the block."""
    parameters = connection.get_connection_params()
    known = {name: parameters[name] for name in ("host", "port", "user", "password") if parameters.get(name)}
    following = pq.PGconn.connect(make_conninfo(**known, replication="true").encode())
    assert following.status == pq.ConnStatus.OK, following.error_message
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_flush_lsn()::text")
            (begin,) = cursor.fetchone()
        answer = following.exec_(f"START_REPLICATION PHYSICAL {begin}".encode())
        assert answer.status == pq.ExecStatus.COPY_BOTH, answer.error_message
        following.nonblocking = 1
        yield Replica(following)
    finally:
        following.finish()
