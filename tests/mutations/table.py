"""All guards of the package, by the part that has them."""

from __future__ import annotations

from tests.mutations import (
    atomic,
    controls,
    deadlines,
    declared,
    desk,
    driver,
    enqueuing,
    events,
    failures,
    gate,
    harness,
    keys,
    outbox,
    pacing,
    passes,
    proving,
    runtime,
    steps,
    sweeps,
    turns,
    worker,
)
from tests.mutations.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *atomic.MUTATIONS,
    *controls.MUTATIONS,
    *deadlines.MUTATIONS,
    *declared.MUTATIONS,
    *desk.MUTATIONS,
    *driver.MUTATIONS,
    *enqueuing.MUTATIONS,
    *events.MUTATIONS,
    *failures.MUTATIONS,
    *gate.MUTATIONS,
    *harness.MUTATIONS,
    *keys.MUTATIONS,
    *outbox.MUTATIONS,
    *pacing.MUTATIONS,
    *passes.MUTATIONS,
    *proving.MUTATIONS,
    *runtime.MUTATIONS,
    *steps.MUTATIONS,
    *sweeps.MUTATIONS,
    *turns.MUTATIONS,
    *worker.MUTATIONS,
)
