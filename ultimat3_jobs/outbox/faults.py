"""What a failed publication says: that the row cannot be published, or that nothing can be just now. Pure."""

from __future__ import annotations

from enum import Enum

from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.db.utils import ProgrammingError

from ultimat3_jobs.errors import DriverUnavailable, JobsError
from ultimat3_jobs.failures import class_name
from ultimat3_jobs.sqlstates import sqlstate
from ultimat3_jobs.text import bounded, storable

UNCLEAR_TRIES = 5
"""Passes that a row may fail for no clear reason before it is set aside."""
MAX_ERROR = 1_000
"""Characters of an error that are kept with its row."""

# The first two characters of PostgreSQL's codes: what the values are, what the constraints and the triggers of the
# tables say of them, and what is too large.
_OF_THE_ROW = frozenset({"22", "23", "44", "54", "P0"})
# The connection, the transaction's mode, deadlocks and serialisation, tables and rights that are not there yet, room,
# locks that were not got, an operator's stop, the system's and the server's own faults.
_PASSING = frozenset({"08", "25", "40", "42", "53", "55", "57", "58", "XX"})


class Fault(Enum):
    """What is at fault."""

    OF_THE_ROW = 1  # the same row fails the same way tomorrow
    UNCLEAR = UNCLEAR_TRIES  # it looks like the row; several passes must agree
    PASSING = 0  # it says nothing of the row: the pass stops, and no row is ever set aside for it


# Of what carries no code: the first that fits decides.
_BY_CLASS = (
    ((DriverUnavailable, OSError, MemoryError), Fault.PASSING),
    ((JobsError, DataError, IntegrityError), Fault.OF_THE_ROW),
    ((OperationalError, InterfaceError, ProgrammingError), Fault.PASSING),
)


def fault_of(error: BaseException) -> Fault:
    """Return what is at fault where publishing failed with `error`."""
    if kind := sqlstate(error)[:2]:
        return Fault.OF_THE_ROW if kind in _OF_THE_ROW else Fault.PASSING if kind in _PASSING else Fault.UNCLEAR
    for classes, fault in _BY_CLASS:
        if isinstance(error, classes):
            return fault
    return Fault.UNCLEAR


def label_of(error: BaseException) -> str:
    """Return the class of an error, with the database's code for it where there is one: all that a log may hold."""
    code = error.code if isinstance(error, JobsError) else sqlstate(error)
    return storable(f"{class_name(type(error))} ({code})" if code else class_name(type(error)))


def text_of(error: BaseException) -> str:
    """Return class and message of an error, in bounded text that every database takes."""
    if isinstance(error, JobsError):
        text = f"{error.code}: {error.cause}"
    else:
        try:
            message = str(error)
        except Exception:  # an exception whose text raises must not stop its own record
            message = "<its text could not be read>"
        # The first line alone: the next ones quote the row, its input too.
        text = f"{label_of(error)}: {message.strip().partition(chr(10))[0]}"
    return bounded(text, MAX_ERROR)
