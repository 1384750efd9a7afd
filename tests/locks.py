"""Who waits for a lock, on PostgreSQL: SQLite shows nobody who waits for its one write lock.

All ask `pg_locks`, which is read anew each time. `pg_stat_activity` stands still in a transaction: who came after its
first look would never be seen.
"""

from __future__ import annotations

from django.db import connection


def waiting_for_this_session() -> int:
    """Return how many sessions wait for what this one has locked."""
    return _count("SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))")


def waiting_behind_this_session() -> int:
    """Return how many sessions wait for what this one has locked, or for others that do."""
    return _count(
        "WITH RECURSIVE waiting AS ("
        " SELECT pid FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        " UNION SELECT l.pid FROM waiting AS w JOIN pg_locks AS l"
        " ON NOT l.granted AND w.pid = ANY (pg_blocking_pids(l.pid))"
        ") SELECT count(*) FROM waiting"
    )


def waiting_in_this_database() -> int:
    """Return how many sessions of this database wait for what another one has locked."""
    # What waits for a transaction's end names no database; the session holds a lock on a relation as well.
    return _count(
        "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pid IN ("
        " SELECT pid FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    )


def _count(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])
