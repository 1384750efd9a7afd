"""The verdict of the chaos run names each broken promise."""

from __future__ import annotations

from django.db.models import F

from tests.app.models import Effect, Item
from tests.chaos.jobs import ATOMIC_STEP, plain, steps
from tests.chaos.ledger import Ledger
from tests.chaos.verdict import Verdict, judge, pending
from tests.processes import wait_for
from tests.working import age, run_due, states
from ultimat3_jobs.models import JobStep


def judged(committed: dict[str, str], taken_back: set[str] | None = None) -> Verdict:
    return judge(Ledger(committed, taken_back or set()))


def test_what_ended_as_it_should_is_as_promised(queue: None) -> None:
    Item.objects.bulk_create(Item(number=number) for number in range(25))
    plain.enqueue(label="a")
    steps.enqueue(label="s")
    from tests.chaos.sweeping import sweeping  # here, where what it declares is forgotten

    sweeping.enqueue()
    assert pending() == 3
    wait_for(lambda: (run_due(), pending())[1] == 0, "the sleep is over")

    assert judged({"a": "plain", "s": "steps"}, {"b"}).kept


def test_each_promise_that_is_broken_is_named(queue: None) -> None:
    for label in ("wrongly", "without effect", "twice"):
        plain.enqueue(label=label)
    for label in ("step twice", "step lost"):
        steps.enqueue(label=label)
    run_due()
    age(60, "run_at")
    JobStep.objects.filter(kind="sleep").update(until=F("started_at"))
    run_due()
    assert states() == {"done": 5}
    Effect.objects.create(label="step twice", detail=ATOMIC_STEP)
    Effect.objects.filter(label="step lost", detail=ATOMIC_STEP).first().delete()
    Effect.objects.filter(label="without effect").delete()
    Effect.objects.create(label="twice")
    Effect.objects.create(label="taken back")
    plain.enqueue(label="waits")
    Item.objects.create(number=7, handled=1)

    verdict = judged(
        {
            "wrongly": "doomed",
            "without effect": "plain",
            "gone": "plain",
            "twice": "atomic",
            "waits": "plain",
            "step twice": "steps",
            "step lost": "steps",
        },
        {"taken back"},
    )

    assert not verdict.kept
    assert verdict.lost == {"without effect", "gone"}
    assert verdict.ran_though_taken_back == {"taken back"}
    assert verdict.not_exactly_once == {"twice", "step twice", "step lost"}
    assert verdict.not_final == {"waits"}
    assert verdict.ended_wrongly == {"wrongly"}
    assert [one.split("(")[1] for one in verdict.swept_wrongly] == ["7), handled 1 times"]
