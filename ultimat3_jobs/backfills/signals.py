"""Conditions of the database under which a pass waits: a replica far behind, a vacuum held up, too much to write."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from django.db import Error, connections, transaction

from ultimat3_jobs import sql
from ultimat3_jobs.durations import Duration, parse_duration
from ultimat3_jobs.errors import DeclarationInvalid, DriverUnavailable
from ultimat3_jobs.traces import message_of

LARGEST_SHARE = 10.0
_MEGABYTE = 2**20


@dataclass(frozen=True)
class Unseen:
    """A condition that could not be looked at: neither a reason to wait nor a sign that all is well."""

    signal: str
    """The name of the signal's class."""
    reason: str


@dataclass(frozen=True)
class Heard:
    """What the signals said."""

    wait: str | None = None
    """Why to wait; None to go on."""
    unseen: tuple[Unseen, ...] = ()


class Signal(Protocol):
    """A condition of the database under which a pass should wait."""

    def ask(self, alias: str, table: str) -> str | Unseen | None:
        """Return why to wait, in words; what hid the answer; or None to go on.

        Args:
            alias: of the database in which the rows are.
            table: the name of their table, as the model has it.
        """


@dataclass(frozen=True)
class ReplicaLag:
    """Wait while a replica is further behind in applying what it was sent.

    A replica that is made to lag on purpose is behind for ever: choose a longer time, or leave this signal out.

    Args:
        most: how far behind is still well, as "30s", seconds or a timedelta.

    Raises:
        DeclarationInvalid: where that is no positive length of time.
    """

    most: Duration = "30s"

    def __post_init__(self) -> None:
        try:
            positive = parse_duration(self.most).total_seconds() > 0
        except ValueError:
            positive = False
        if not positive:
            raise DeclarationInvalid(
                f"ReplicaLag({self.most!r}) has no positive length of time", fix='ReplicaLag("30s")'
            )

    def ask(self, alias: str, table: str) -> str | Unseen | None:
        """Return how far behind a replica is, where that is too far."""
        ((replicas, hidden, lag, role),) = sql.run(alias, "replica_lag", {})
        most = parse_duration(self.most).total_seconds()
        if lag is not None and lag > most:
            return f"a replica is {_seconds(lag)} behind, over {_seconds(most)}"
        if hidden:
            return Unseen(
                type(self).__name__,
                f"the lag of {hidden} of {replicas} replicas is hidden from this role: GRANT pg_monitor TO {role}",
            )
        return None


@dataclass(frozen=True)
class VacuumWaiting:
    """Wait while a vacuum of the table, or other upkeep with its lock, waits for another to end."""

    def ask(self, alias: str, table: str) -> str | Unseen | None:
        """Return that a vacuum of the table waits, where one does."""
        quoted = connections[alias].ops.quote_name(table)
        ((there, waits),) = sql.run(alias, "vacuum_waiting", {"table": quoted})
        if not there:
            return Unseen(type(self).__name__, f"no table {quoted} is on the search path of this connection")
        return f"a vacuum waits for its lock on {table}" if waits else None


@dataclass(frozen=True)
class WalPressure:
    """Wait while the write-ahead log since the last checkpoint fills too much of what the server aims at.

    Args:
        share: of the server's `max_wal_size`, over 0 and up to 10.

    Raises:
        DeclarationInvalid: where it is no such number.
    """

    share: float = 0.9

    def __post_init__(self) -> None:
        number = isinstance(self.share, (int, float)) and not isinstance(self.share, bool)
        if not number or not 0 < self.share <= LARGEST_SHARE:
            raise DeclarationInvalid(
                f"WalPressure(share={self.share!r}) is no number over 0 and up to {LARGEST_SHARE:g}",
                fix="WalPressure(share=0.9)",
            )

    def ask(self, alias: str, table: str) -> str | Unseen | None:
        """Return how much write-ahead log there is, where that is too much."""
        ((since, aim),) = sql.run(alias, "wal_pressure", {})
        if aim is None or since <= self.share * aim:
            return None
        return (
            f"{since / _MEGABYTE:,.0f} MB of write-ahead log since the last checkpoint, over {self.share * 100:g} % "
            f"of the {aim / _MEGABYTE:,.0f} MB of max_wal_size"
        )


DEFAULT_SIGNALS: tuple[Signal, ...] = (ReplicaLag(), VacuumWaiting(), WalPressure())


def check_signals(value: object) -> tuple[Signal, ...]:
    """Return signals, checked: a list of instances that can be asked.

    Raises:
        DeclarationInvalid: where it is something else.
    """
    fix = 'signals=[ReplicaLag("30s"), VacuumWaiting()]  # from ultimat3_jobs.backfills.signals; [] for none'
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise DeclarationInvalid(f"signals={value!r} is no list of signals", fix=fix)
    for one in value:
        if inspect.isclass(one) or not callable(getattr(one, "ask", None)):
            raise DeclarationInvalid(f"signals={value!r}: {one!r} is no signal that can be asked", fix=fix)
    return tuple(value)


def ask(signals: Sequence[Signal], alias: str, table: str) -> Heard:
    """Return the first reason to wait, and what could not be seen before it was found.

    A statement that fails ends nothing: it is told as unseen, and a transaction that is open goes on.

    Args:
        signals: asked in this order, until one has a reason.
        alias: of the database in which the rows are.
        table: the name of their table, as the model has it.
    """
    unseen: list[Unseen] = []
    for signal in signals:
        try:
            with transaction.atomic(alias) if connections[alias].in_atomic_block else nullcontext():
                answer = signal.ask(alias, table)
        except DriverUnavailable as error:
            answer = Unseen(type(signal).__name__, error.cause)
        except Error as error:
            answer = Unseen(type(signal).__name__, " ".join(message_of(error).split()))
        if isinstance(answer, Unseen):
            unseen.append(answer)
        elif answer:
            return Heard(answer, tuple(unseen))
    return Heard(None, tuple(unseen))


def _seconds(seconds: float) -> str:
    return f"{round(seconds, 1 if seconds >= 1 else 3):g} s"
