"""The death of a process, as what it leaves: what was committed stays, what was open is undone, nothing follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from django.db import connections

from ultimat3_jobs.records import StepKind, StepRecord, StepState, StoredStep
from ultimat3_jobs.steps.steps import Begun, Replayed, Steps
from ultimat3_jobs.testing.borrowed import BorrowedConnections

Where = Literal["before", "inside", "after", "before the ack", "nowhere"]
Finish = Callable[[str | None], None]


@dataclass(frozen=True, repr=False)
class CrashPoint:
    """A moment at which the process that ran a job died.

    Attributes:
        where: "before" a step, "inside" it (what it calls is done and not recorded; a sleep or a wait is recorded and
            not parked), "after" its record; "before the ack", where the body has ended; "nowhere": no crash.
        step: name of the step, the sleep or the wait. Empty where it is none: "before" is then before an atomic body.
    """

    where: Where
    step: str = ""

    def __str__(self) -> str:
        if self.where == "nowhere":
            return "no crash"
        if self.where == "before the ack":
            return "a crash after the body, before its ack"
        return f"a crash {self.where} step {self.step!r}" if self.step else "a crash before the body"

    def __repr__(self) -> str:
        return f"<CrashPoint: {self}>"


class Died(BaseException):
    """The process is dead: takes a body to its end from the point at which that happened."""


class Life:
    """One job's way to its end, with one death at most.

    Attributes:
        reached: the points that it came to, in order.
        crashed: whether it came to the point where it is to die.
        dead: whether the present attempt is dead: nothing that its body still does has an effect on a database.
    """

    def __init__(self, target: CrashPoint) -> None:
        self.reached: dict[CrashPoint, None] = {}
        self.crashed = self.dead = False
        self._target = target
        self._hooks: dict[str, list[object]] = {}

    def check(self) -> None:
        """Raise what ends the body, also where it kept its death to itself."""
        if self.dead:
            raise Died

    def reach(self, where: Where, step: str = "") -> None:
        """Come to a point, and die there where it is the one."""
        self.check()
        point = CrashPoint(where, step)
        self.reached.setdefault(point)
        if point == self._target and not self.crashed:
            self.crashed = self.dead = True
            for one in connections.all(initialized_only=True):
                self._hooks[one.alias] = [hook[1] for hook in one.run_on_commit]
            raise Died

    def ends_before_its_ack(self) -> bool:
        """Come to the end of a body; return whether it died there."""
        with suppress(Died):
            self.reach("before the ack")
        return self.dead

    def transaction(self, opened: AbstractContextManager[Finish]) -> AbstractContextManager[Finish]:
        """Wrap the transaction of an atomic job: it may die at either end of the body."""

        @contextmanager
        def mortal() -> Iterator[Finish]:
            with opened as finish:
                self.reach("before")

                def end(text: str | None) -> None:
                    self.reach("before the ack")
                    finish(text)

                yield end

        return mortal()

    def statement(self, execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """Wrap each statement of the body: the dead send none, and what they had open is undone."""
        if not self.dead:
            return execute(sql, params, many, context)
        text = str(sql)
        if text.startswith("RELEASE SAVEPOINT"):
            return execute(f"ROLLBACK TO{text.removeprefix('RELEASE')}", params, many, context)
        if text.startswith("ROLLBACK TO"):
            return execute(sql, params, many, context)
        raise Died

    def forget_later_hooks(self) -> None:
        """Drop what a dead body left to be called at a commit: it can commit nothing."""
        for connection in connections.all(initialized_only=True) if self.dead else ():
            kept = self._hooks.get(connection.alias, [])
            # By the function: Django makes the list anew where a savepoint is rolled back.
            connection.run_on_commit = [one for one in connection.run_on_commit if any(one[1] is hook for hook in kept)]


class MortalConnections:
    """The caller's connections, lent to a body that may die."""

    def __init__(self, borrowed: BorrowedConnections, life: Life) -> None:
        self._borrowed = borrowed
        self._life = life

    def __enter__(self) -> None:
        self._borrowed.__enter__()
        # Not only those that are open: the body may be the first to open one.
        for connection in connections.all():
            connection.execute_wrappers.append(self._life.statement)

    def __exit__(self, *raised: Any) -> None:
        for connection in connections.all():
            with suppress(ValueError):
                connection.execute_wrappers.remove(self._life.statement)
        self._life.forget_later_hooks()
        self._borrowed.__exit__(*raised)


class MortalSteps(Steps):
    """Steps that know where their process may die. `life` is set before the body asks for the first."""

    life: Life
    _paused = ""

    def check(self) -> None:
        """Raise what ends the body: its death first."""
        self.life.check()
        super().check()

    def begin(self, name: str, fn: Callable[..., Any], *, returns: Any, atomic: bool) -> Replayed | Begun:
        """Look a step up; where it is not recorded, it is about to be done."""
        begun = super().begin(name, fn, returns=returns, atomic=atomic)
        if isinstance(begun, Begun):
            self.life.reach("before", name)
        return begun

    def finish(self, begun: Begun, result: Any) -> Any:
        """Record a plain step."""
        return self._after(begun, super().finish(begun, result))

    def record(
        self, name: str, kind: StepKind, *, state: StepState, delay: float | None, seq: int | None = None
    ) -> StepRecord:
        """Return a sleep or a wait as it is about to be recorded."""
        self._paused = name
        self.life.reach("before", name)
        return super().record(name, kind, state=state, delay=delay, seq=seq)

    def landed(self, answer: Any) -> Any:
        """Return the answer to a write; after that of a sleep or a wait the run is not parked yet."""
        landed = super().landed(answer)
        if self._paused:
            over = landed.state != StepState.WAITING
            self.life.reach("after" if over else "inside", self._paused)
            self._paused = ""
        return landed

    def take(self, name: str, kind: StepKind) -> StoredStep | None:
        """Return what is recorded of a sleep or a wait; where it is over, the body goes on behind it."""
        stored = super().take(name, kind)
        if stored is not None and (stored.is_over or stored.state != StepState.WAITING):
            self.life.reach("after", name)
        return stored

    def _record(self, begun: Begun, text: str) -> StepRecord:
        self.life.reach("inside", begun.name)
        return super()._record(begun, text)

    def _atomically(self, begun: Begun, *call: Any) -> Any:
        return self._after(begun, super()._atomically(begun, *call))

    def _within_the_job(self, begun: Begun, *call: Any) -> Any:
        return self._after(begun, super()._within_the_job(begun, *call))

    def _after(self, begun: Begun, value: Any) -> Any:
        self.life.reach("after", begun.name)
        return value
