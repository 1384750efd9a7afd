"""`python -m tests.chaos.one`: the chaos run on the database of `DATABASE_URL`, which is empty. See `tests.chaos`."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from pathlib import Path

import django

NAMES = {"body": "body", "settle": "settlement", "relay": "move of the relay"}
DRAINED = {0, -signal.SIGTERM}  # SIGTERM as such ends a worker that is still starting
CALMS_DOWN = 90.0  # seconds within which all that is left must end


def run(options: Namespace) -> int:
    """Run it and print what came of it; return the exit status."""
    from django.core.management import call_command
    from django.db import connection

    from tests.chaos.callers import Callers
    from tests.chaos.database import name_session
    from tests.chaos.marks import SECTIONS
    from tests.chaos.storm import Storm
    from tests.chaos.verdict import judge, pending
    from tests.processes import Processes

    call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    name_session()
    folder = Path(options.folder)
    callers = Callers(options.seed)
    with Processes(folder, os.environ["DATABASE_URL"]) as processes:
        storm = Storm(processes, folder, options.workers, options.seed)
        callers.start()
        lasted = storm.rage(options.seconds, options.least)
        storm.calm()  # first: a stopped worker may hold what the callers wait for
        callers.stop()
        until = time.monotonic() + CALMS_DOWN
        while pending() and time.monotonic() < until:
            time.sleep(0.1)
        statuses = storm.end()
        words = storm.output()
    verdict = judge(callers.ledger)
    hits = ", ".join(f"{storm.hits[section]} in a {NAMES[section]}" for section in SECTIONS)
    print(f"{connection.display_name}: {lasted:.0f} s, {options.workers} workers, seed {options.seed}")
    print(f"  kills: {storm.kills}; of workers with threads {hits}; at least {options.least} each are asked for")
    print(f"  stopped for longer than a lease: {storm.stops}; connections cut: {storm.cuts}")
    print(f"  workers that ended by themselves: {storm.died_by_themselves}; exit statuses of the last: {statuses}")
    for line in verdict.lines():
        print(f"  {line}")
    ended_well = not storm.died_by_themselves and DRAINED.issuperset(statuses)
    good = verdict.kept and not storm.missed(options.least) and ended_well
    print(f"  {'all is as promised' if good else 'NOT as promised'}", flush=True)
    if not good:
        print(words)
    return 0 if good else 1


if __name__ == "__main__":
    from tests.chaos.arguments import parse

    django.setup()
    sys.exit(run(parse(sys.argv[1:])))
