"""What the tables say when the storm is over, held against what was asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.app.models import Effect, Item
from tests.chaos.jobs import ATOMIC_STEP, ATOMIC_STEPS
from tests.chaos.ledger import Ledger
from ultimat3_jobs.models import Backfill, Job, OutboxEntry
from ultimat3_jobs.states import FINAL


@dataclass(frozen=True)
class Verdict:
    """The labels of the jobs that broke a promise, by the promise; and what else there is to know."""

    lost: set[str]
    ran_though_taken_back: set[str]
    not_exactly_once: set[str]
    not_final: set[str]
    ended_wrongly: set[str]
    swept_wrongly: set[str]
    passes: int
    by_state: dict[str, int]
    by_kind: Counter[str]
    started_again: int
    kept: bool = field(init=False)

    def __post_init__(self) -> None:
        broken = (self.lost, self.ran_though_taken_back, self.not_exactly_once, self.not_final, self.ended_wrongly)
        object.__setattr__(self, "kept", not any((*broken, self.swept_wrongly)))

    def lines(self) -> list[str]:
        """Return what is to be printed."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.by_kind.items()))
        states = ", ".join(f"{count:,} {state}" for state, count in sorted(self.by_state.items()))
        return [
            f"jobs committed: {sum(self.by_kind.values()):,} ({kinds})",
            f"jobs by state: {states}",
            f"jobs that were started again: {self.started_again:,}",
            _line("jobs lost", self.lost),
            _line("jobs of transactions that were taken back, and ran", self.ran_though_taken_back),
            _line("atomic effects that are not there exactly once", self.not_exactly_once),
            _line("jobs that reached no final state", self.not_final),
            _line("jobs that ended in another state than their bodies make them", self.ended_wrongly),
            f"passes of a backfill that completed: {self.passes}",
            _line("rows that were not handled once by each pass", self.swept_wrongly),
        ]


def _line(what: str, labels: set[str]) -> str:
    return f"{what}: {len(labels)}" + (f" ({', '.join(sorted(labels)[:10])})" if labels else "")


def pending() -> int:
    """Return how many jobs have not ended, those that the relay has yet to move included."""
    staged = OutboxEntry.objects.filter(outcome=None).count()  # looked at first: they become jobs meanwhile
    return staged + Job.objects.exclude(state__in=FINAL).count()


def judge(ledger: Ledger) -> Verdict:
    """Hold the tables against the ledger."""
    states = dict(Job.objects.values_list("idempotency_key", "state"))
    attempts = dict(Job.objects.values_list("idempotency_key", "attempt"))
    waiting = set(OutboxEntry.objects.filter(outcome=None).values_list("idempotency_key", flat=True))
    effects = Counter(Effect.objects.values_list("label", flat=True))
    lost = {label for label in ledger.committed if label not in states and label not in waiting}
    lost |= {
        label
        for label, kind in ledger.committed.items()
        if states.get(label) == "done" and kind != "atomic" and not effects[label]
    }
    done = {label for label, state in states.items() if state == "done"}
    in_steps = Counter(Effect.objects.filter(detail=ATOMIC_STEP).values_list("label", flat=True))
    not_exactly_once = {
        label for label, kind in ledger.committed.items() if kind == "atomic" and effects[label] != (label in done)
    }
    not_exactly_once |= {
        label
        for label, kind in ledger.committed.items()
        if kind == "steps" and (in_steps[label] > ATOMIC_STEPS or (label in done and in_steps[label] < ATOMIC_STEPS))
    }
    passes = Backfill.objects.filter(outcome="completed").count()
    return Verdict(
        lost=lost,
        swept_wrongly=set(map(str, Item.objects.exclude(handled=passes))),
        passes=passes,
        ran_though_taken_back={label for label in ledger.taken_back if label in states or effects[label]},
        not_exactly_once=not_exactly_once,
        not_final={label for label in ledger.committed if label in waiting or states.get(label, "done") not in FINAL},
        ended_wrongly={
            label
            for label, kind in ledger.committed.items()
            if states.get(label) in FINAL and states[label] != ("dead" if kind == "doomed" else "done")
        },
        by_state=dict(Counter(states.values())),
        by_kind=Counter(ledger.committed.values()),
        started_again=sum(
            attempts.get(label, 0) > 1 for label, kind in ledger.committed.items() if kind not in {"flaky", "doomed"}
        ),
    )
