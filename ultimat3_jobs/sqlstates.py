"""What a database error is, by the code that the server gave it."""

from __future__ import annotations

DEADLOCK = "40P01"
"""PostgreSQL's code for a transaction that was ended because it and another waited for one another."""
SERIALIZATION_FAILURE = "40001"
"""Its code for one that cannot be put in an order with another."""
AGAIN = (SERIALIZATION_FAILURE, DEADLOCK)
"""What ends a transaction for the sake of another: done again, it may pass."""
UNDEFINED = ("42P01", "42703")
"""Its codes for a table or a column that is not there."""
OUT_OF_SIGHT = ("42501", *UNDEFINED)
"""Its codes for what a role may not do, or does not find."""
QUERY_CANCELLED = "57014"
"""Its code for a statement that took longer than `statement_timeout`, or that a person ended."""


def is_undefined(error: BaseException) -> bool:
    """Whether a statement failed since a table or a column is not there, as far as its driver tells."""
    return sqlstate(error) in UNDEFINED or str(error).startswith("no such ")


def sqlstate(error: BaseException) -> str:
    """Return the server's code for a database error, Django's or the driver's own; empty where it has none."""
    # psycopg 2 has another name for it.
    named = (getattr(one, name, None) for one in (error, error.__cause__) for name in ("sqlstate", "pgcode"))
    return next((state for state in named if isinstance(state, str)), "")
