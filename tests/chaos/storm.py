"""Workers, and what is done to them: killed, stopped for longer than a lease and continued, cut off the database."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from tests.chaos import marks
from tests.chaos.database import cut, sessions
from tests.processes import Child, Processes

LEASE = 1.5  # seconds
LONGER = 4  # times as long may a storm last until it has hit enough
JOBS = {"LEASE": f"{LEASE}s", "RENEWAL": "400ms", "POLL": "50ms", "DRAIN_TIMEOUT": "20s"}
LOOKS = 150  # at a worker that is aimed at, before another one gets its turn
BETWEEN = (0.05, 0.4)  # seconds between two attacks

WORKER = """
import django
django.setup()
from tests.chaos.marks import mark_worker
import tests.chaos.sweeping
mark_worker()
from django.core.management import call_command
call_command("jobs_worker", concurrency=4)
"""


@dataclass
class Worker:
    """A worker process with the file that says where it is."""

    child: Child
    marks: Path


class Storm:
    """Keeps a number of workers running, and attacks them."""

    def __init__(self, processes: Processes, folder: Path, workers: int, seed: int) -> None:
        self.kills = 0
        self.hits: Counter[str] = Counter()
        self.stops = self.cuts = self.died_by_themselves = 0
        self._processes = processes
        self._folder = folder
        self._random = random.Random(seed)
        self._started = 0
        self._stopped: dict[int, tuple[Worker, float]] = {}
        self._workers = [self._start() for _ in range(workers)]

    def rage(self, seconds: float, least: int) -> float:
        """Attack for so long, and until each section has been hit `least` times, at most `LONGER` times as long.

        Return the seconds that it took: a machine that has other things to do lets fewer attacks hit.
        """
        began = time.monotonic()
        enough, until = began + seconds, began + LONGER * seconds
        while (now := time.monotonic()) < until and (now < enough or self.missed(least)):
            time.sleep(self._random.uniform(*BETWEEN))
            self._continue_those_whose_time_has_come()
            self._replace_the_dead()
            attacks = [self._kill, self._kill, self._kill, self._stop]
            if connection.vendor == "postgresql":
                attacks += [self._cut]
            self._random.choice(attacks)(until)
        return time.monotonic() - began

    def missed(self, least: int) -> list[str]:
        """Return the sections that were not hit so often."""
        return [section for section in marks.SECTIONS if self.hits[section] < least]

    def calm(self) -> None:
        """Let every worker go on."""
        for worker, _ in list(self._stopped.values()):
            self._continue(worker)
        self._replace_the_dead()

    def end(self) -> list[int]:
        """Have the workers drain, and return their exit statuses."""
        for worker in self._workers:
            worker.child.kill(signal.SIGTERM)
        return [worker.child.wait() for worker in self._workers]

    def output(self) -> str:
        """Return the last words of the workers that are left."""
        return "\n".join(worker.child.output()[-2000:] for worker in self._workers)

    def _start(self) -> Worker:
        self._started += 1
        file = self._folder / f"marks-{self._started}"
        marks.make(file)
        environment = {marks.FILE: str(file), "TEST_LOG_LEVEL": "CRITICAL"}
        return Worker(self._processes.django(WORKER, jobs=JOBS, env=environment), file)

    def _kill(self, until: float) -> None:
        """Kill a worker in the section that was hit the least: it is stopped, looked at, and killed or let go."""
        aim = min(marks.SECTIONS, key=lambda section: self.hits[section])
        for look in range(LOOKS):
            running = [worker for worker in self._workers if worker.child.pid not in self._stopped]
            if not running or time.monotonic() > until:
                return
            worker = running[look % len(running)]
            if aim not in marks.read(worker.marks):
                time.sleep(self._random.uniform(0, 0.004))
                continue
            worker.child.kill(signal.SIGSTOP)
            if not stands_still(worker.child):
                return
            inside = marks.read(worker.marks)  # nothing moves any more: this is where it is killed
            if aim not in inside:
                worker.child.kill(signal.SIGCONT)
                continue
            worker.child.kill(signal.SIGKILL)
            worker.child.wait()
            self.kills += 1
            self.hits.update(inside)
            self._replace_the_dead(killed=worker)
            return

    def _stop(self, _: float) -> None:
        """Stop a worker for longer than its leases, unless it would be the last."""
        running = [worker for worker in self._workers if worker.child.pid not in self._stopped]
        if len(running) > 1:
            worker = self._random.choice(running)
            worker.child.kill(signal.SIGSTOP)
            self.stops += 1
            self._stopped[worker.child.pid] = worker, time.monotonic() + LEASE * self._random.uniform(1.2, 2)

    def _cut(self, _: float) -> None:
        """Cut a session that works, if there is one."""
        found = sessions()
        busy = [session for session, state in found if state != "idle"] or [session for session, _ in found]
        if busy and cut(self._random.choice(busy)):
            self.cuts += 1

    def _continue_those_whose_time_has_come(self) -> None:
        for worker, when in list(self._stopped.values()):
            if time.monotonic() > when:
                self._continue(worker)

    def _continue(self, worker: Worker) -> None:
        del self._stopped[worker.child.pid]
        worker.child.kill(signal.SIGCONT)

    def _replace_the_dead(self, killed: Worker | None = None) -> None:
        for number, worker in enumerate(self._workers):
            if not worker.child.running:
                self.died_by_themselves += worker is not killed
                worker.marks.unlink()
                self._workers[number] = self._start()


def stands_still(child: Child) -> bool:
    """Wait until a stopped process stands still; return whether it does, and has not ended."""
    status = Path(f"/proc/{child.pid}/task")
    for _ in range(1_000):
        try:
            states = {(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in status.iterdir()}
        except (FileNotFoundError, ProcessLookupError):
            states = set()
        if states == {"T"}:
            return True
        if not child.running:
            return False
        time.sleep(0.001)
    return False
