"""All guards of the package, by the part that has them."""

from __future__ import annotations

from tests.mutations import atomic, deadlines, desk, driver, enqueuing, failures, harness, outbox, runtime, worker
from tests.mutations.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *atomic.MUTATIONS,
    *deadlines.MUTATIONS,
    *desk.MUTATIONS,
    *driver.MUTATIONS,
    *enqueuing.MUTATIONS,
    *failures.MUTATIONS,
    *harness.MUTATIONS,
    *outbox.MUTATIONS,
    *runtime.MUTATIONS,
    *worker.MUTATIONS,
)
