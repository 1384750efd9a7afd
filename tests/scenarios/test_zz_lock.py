import time
import pytest
from django.db import transaction
from tests.app.jobs import waiting
from tests.scenarios.effects import SHORT, let_go, starts, wait_for_starts
from tests.processes import wait_for
from tests.working import row
pytestmark = pytest.mark.usefixtures("queue")
def test_it(processes):
    queued = waiting.enqueue("held")
    first = processes.manage("jobs_worker", "--concurrency", "1", jobs=SHORT)
    wait_for_starts("held", 1)
    others=[processes.manage("jobs_worker", "--concurrency", "1", jobs=SHORT) for _ in range(2)]
    for o in others: o.wait_for_output("jobs.worker.started")
    for _ in range(6):
        with transaction.atomic():
            time.sleep(2.5)
        time.sleep(1.0)
    let_go("held")
    wait_for(lambda: row(queued).state == "done", "done")
    print("LAPSES", row(queued).lapses, starts("held"))
    print(first.output()[-1500:])
    assert 0
