"""`python -m benchmarks.one`: the measurements on the database of `DATABASE_URL`, which is empty; JSON comes out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from benchmarks.measurements import Sizes

ONCE = ("steps", "idle")  # what takes long to prepare, and is measured over many steps or looks
PAGES = {"page-start": "ms", "page-middle": "ms", "page-end": "ms"}
SWEPT = {"by-hand": "rows/s", "sweep": "rows/s", "share": "%", **PAGES, "memory-start": "MiB", "memory-end": "MiB"}


def measure(names: Sequence[str], *, tiny: bool) -> dict[str, Any]:
    """Measure what is named, all where nothing is; return the figures of all rounds."""
    from django.core.management import call_command
    from django.db import connection

    from benchmarks import jobs, measurements, steps, sweeping
    from benchmarks.measurements import Sizes, drain, pick_up

    call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    few = Sizes(single=5, many=10, drained=10, picked=1, rounds=1, steps=20, suspended=20, looks=2, swept=50, page=10)
    sizes = few if tiny else Sizes()
    known: dict[str, tuple[str, Callable[[Sizes], list[float]]]] = {
        "raw-insert": ("commits/s", measurements.raw_insert),
        "enqueue-outside": ("jobs/s", measurements.enqueue_outside),
        "enqueue-inside": ("jobs/s", measurements.enqueue_inside),
        "enqueue-many": ("jobs/s", measurements.enqueue_many),
        "raw-update-pair": ("pairs/s", measurements.raw_update),
        "drain-nothing": ("jobs/s", drain(jobs.nothing)),
        "drain-one-write": ("jobs/s", drain(jobs.one_write)),
        "drain-atomic-write": ("jobs/s", drain(jobs.atomic_write)),
        "pick-up-outside": ("ms", pick_up(staged=False)),
        "pick-up-staged": ("ms", pick_up(staged=True)),
        "steps-record-1000": ("steps/s", steps.record(0.1)),
        "steps-record-10000": ("steps/s", steps.record(1)),
        "steps-replay-1000": ("steps/s", steps.replay(0.1)),
        "steps-replay-5000": ("steps/s", steps.replay(0.5)),
        "steps-replay-10000": ("steps/s", steps.replay(1)),
        "steps-replay-memory": ("MiB", steps.replay_memory),
        "idle-claim": ("us", steps.looks("claim")),
        "idle-claim-sleeping": ("us", steps.looks("claim", suspended="sleep")),
        "idle-claim-waiting": ("us", steps.looks("claim", suspended="wait")),
        "idle-look": ("us", steps.looks("promote")),
        "idle-look-sleeping": ("us", steps.looks("promote", suspended="sleep")),
        "idle-look-waiting": ("us", steps.looks("promote", suspended="wait")),
    }
    together: dict[str, tuple[dict[str, str], Callable[[Sizes], dict[str, list[float]]]]] = {
        "backfill-update": (SWEPT, sweeping.against_hand("update")),
        "backfill-instances": (SWEPT, sweeping.against_hand("instances", part=0.1)),
        "backfill-sparse": ({"passed": "rows/s", **PAGES}, sweeping.sparse),
    }
    measured: dict[str, tuple[dict[str, str], Callable[[Sizes], dict[str, list[float]]]]] = {
        **{name: ({name: unit}, _alone(name, one)) for name, (unit, one) in known.items()},
        **{
            name: ({f"{name}-{figure}": unit for figure, unit in units.items()}, _named(name, one))
            for name, (units, one) in together.items()
        },
    }
    chosen = [name for name in measured if not names or any(name.startswith(word) for word in names)]
    figures: dict[str, Any] = {
        figure: {"unit": unit, "values": []} for name in chosen for figure, unit in measured[name][0].items()
    }
    for turn in range(sizes.rounds):  # in turn: what else the machine does meets all of them
        for name in chosen:
            if turn and name.startswith(ONCE):
                continue
            measurements.empty()
            for figure, values in measured[name][1](sizes).items():
                figures[figure]["values"] += values
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version" if connection.vendor == "postgresql" else "SELECT sqlite_version()")
        version = f"{connection.display_name} {cursor.fetchone()[0]}"
    return {"database": version, "sizes": vars(sizes), "figures": figures}


def _alone(name: str, one: Callable[[Sizes], list[float]]) -> Callable[[Sizes], dict[str, list[float]]]:
    return lambda sizes: {name: one(sizes)}


def _named(name: str, one: Callable[[Sizes], dict[str, list[float]]]) -> Callable[[Sizes], dict[str, list[float]]]:
    return lambda sizes: {f"{name}-{figure}": values for figure, values in one(sizes).items()}


if __name__ == "__main__":
    django.setup()
    tiny, *words = sys.argv[1:]
    print(json.dumps(measure(words, tiny=tiny == "tiny")))
