"""The demo from start to end: stage, work, wait, and read the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from example_project.catalogs import broken
from example_project.catalogs.counting import contract, start_counting
from example_project.catalogs.publishing import stage_publications
from example_project.catalogs.report import Report, read_report
from example_project.catalogs.sources import demo_folder
from example_project.catalogs.staging import Staged, stage_all
from example_project.catalogs.watching import Standing, wait_until_final
from example_project.catalogs.worker_process import WorkerProcess


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of the demo did, and what the tables say after it."""

    staged: Staged
    publications_staged: int
    report: Report
    worker_log: str


def run_demo(on_progress: Callable[[Standing], None], say: Callable[[str], None]) -> Outcome:
    """Run the demo on a database that is migrated but for its contract.

    It can be killed at any point and run again: what is committed goes on from where it is.

    Args:
        on_progress: told how far the jobs are, about five times a second.
        say: takes a line about what happens now.

    Raises:
        WorkerFailed: where the worker did not live through it.
        NothingMoves: where the jobs hang.
        BackfillPending: where the backfill has not come to its end.
    """
    staged = stage_all()
    say(f"staged {sum(staged.staged.values())} scans")
    # An earlier run may have been killed after the first attempt: the next one must find the catalog whole.
    broken.mend_between_attempts()
    with WorkerProcess(demo_folder() / "worker.log") as worker:
        say(f"worker {worker.pid} started, its log is {worker.log}")
        wait_until_final(worker, on_progress)
        # Only what was scanned can be published, so that these come in a second round.
        publications = stage_publications()
        counting = start_counting()
        say(f"staged {publications} publications{', and a backfill over what the scans found' if counting else ''}")
        wait_until_final(worker, on_progress)
    contract()
    return Outcome(staged, publications, read_report(), str(worker.log))
