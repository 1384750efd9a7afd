"""The verdict of the chaos run names each broken promise."""

from __future__ import annotations

from tests.app.models import Effect
from tests.chaos.jobs import plain
from tests.chaos.ledger import Ledger
from tests.chaos.verdict import Verdict, judge, pending
from tests.working import run_due


def judged(committed: dict[str, str], taken_back: set[str] | None = None) -> Verdict:
    return judge(Ledger(committed, taken_back or set()))


def test_what_ended_as_it_should_is_as_promised(queue: None) -> None:
    plain.enqueue(label="a")
    assert pending() == 1
    run_due()

    assert pending() == 0
    assert judged({"a": "plain"}, {"b"}).kept


def test_each_promise_that_is_broken_is_named(queue: None) -> None:
    for label in ("wrongly", "without effect", "twice"):
        plain.enqueue(label=label)
    run_due()
    Effect.objects.filter(label="without effect").delete()
    Effect.objects.create(label="twice")
    Effect.objects.create(label="taken back")
    plain.enqueue(label="waits")

    verdict = judged(
        {"wrongly": "doomed", "without effect": "plain", "gone": "plain", "twice": "atomic", "waits": "plain"},
        {"taken back"},
    )

    assert not verdict.kept
    assert verdict.lost == {"without effect", "gone"}
    assert verdict.ran_though_taken_back == {"taken back"}
    assert verdict.not_exactly_once == {"twice"}
    assert verdict.not_final == {"waits"}
    assert verdict.ended_wrongly == {"wrongly"}
