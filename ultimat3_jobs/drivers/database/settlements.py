"""Ending claims: ack, nack and sweep, each with the successors of rows that were asked again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction

from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.drivers.database.enqueue import enqueue
from ultimat3_jobs.logs import emit
from ultimat3_jobs.records import Ack, Claim, EnqueueRequest, Lapse, Nack, Swept
from ultimat3_jobs.sql import run
from ultimat3_jobs.states import Stop

WORKER_LOST = "WorkerLost"
WORKER_LOST_CAUSE = hashlib.sha256(WORKER_LOST.encode()).hexdigest()
LAPSED_TEXT = (
    "the worker that ran this job stopped renewing its lease: it was killed, lost its host or its database\n"
    "verdict: the attempt counts; the next one starts when a worker is free"
)
MOST_LAPSES = 20
"""Lapses in a row after which a last attempt is not given back: not even its claim may end a process for ever."""
UNBEGUN_TEXT = (
    "the worker that had claimed this job stopped renewing its lease before the body began: it was killed, lost its "
    "host or its database\nverdict: the last attempt is given back; it starts when a worker is free"
)
LOST_TEXT = (
    "the worker that ran this job stopped renewing its lease: it was killed, lost its host or its database\n"
    f"verdict: dead ({Stop.WORKER_LOST}): worker lost on the final attempt"
)


def ack(alias: str, acks: Sequence[Ack]) -> list[bool]:
    """End jobs as done; tell for each whether its row is ended by its claim."""
    by_claim = {one.claim: one for one in acks}
    landed = set(map(rows.claim_of, _run_ack(alias, list(by_claim.values()), with_rerun=False)))
    left = [one for claim, one in by_claim.items() if claim not in landed]
    if left:
        with transaction.atomic(using=alias):
            ended = _run_ack(alias, left, with_rerun=True)
            _enqueue_successors(alias, [(row[0], row[2]) for row in ended])
        landed.update(map(rows.claim_of, ended))
        landed.update(_already_settled(alias, [one.claim for one in left if one.claim not in landed]))
    return [one.claim in landed for one in acks]


def nack(alias: str, nacks: Sequence[Nack]) -> list[bool]:
    """Settle jobs that did not end well or did not run; tell for each whether it landed."""
    landed: set[Claim] = set()
    with transaction.atomic(using=alias):
        for by_id in _rounds(nacks):
            batch = rows.encode(map(rows.nack_row, by_id.values()))
            settled = run(alias, "nack", {"rows": batch, "with_rerun": True})
            done = [by_id[rows.uuid(row[0])] for row in settled]
            landed.update(one.claim for one in done)
            failures = [one for one in done if one.failure]
            if failures:
                run(alias, "log_failures", {"rows": rows.encode(map(rows.failure_row, failures))})
            _enqueue_successors(alias, [(row[0], row[1]) for row in settled])
    landed.update(_already_settled(alias, [one.claim for one in nacks if one.claim not in landed]))
    return [one.claim in landed for one in nacks]


def settled(alias: str, claims: Sequence[Claim]) -> list[bool]:
    """Tell for each claim whether it has ended its row."""
    found = _already_settled(alias, claims)
    return [claim in found for claim in claims]


def sweep(alias: str, *, limit: int, seen: Sequence[Lapse] | None) -> list[Swept]:
    """Take lapsed jobs from their workers; the dead ones leave their key to the successor they were asked for."""
    with transaction.atomic(using=alias):
        swept = run(
            alias,
            "sweep",
            {
                "limit": limit,
                "seen": None if seen is None else rows.encode(map(rows.lapse_row, seen)),
                "most_lapses": MOST_LAPSES,
                "lapsed_text": LAPSED_TEXT,
                "unbegun_text": UNBEGUN_TEXT,
                "lost_text": LOST_TEXT,
                "error_class": WORKER_LOST,
                "cause": WORKER_LOST_CAUSE,
            },
        )
        if swept:
            history = [
                {
                    "id": rows.new_id(),
                    "job_id": rows.uuid(row[0]).hex,
                    "decision": Stop.WORKER_LOST if row[3] == "dead" else "retry",
                }
                for row in swept
            ]
            run(alias, "log_failures", {"rows": rows.encode(history)})
            _enqueue_successors(alias, [(row[0], row[4]) for row in swept])
    return [Swept(rows.uuid(row[0]), row[1], row[2], row[3]) for row in swept]


def _run_ack(alias: str, acks: Sequence[Ack], *, with_rerun: bool) -> list[tuple[Any, ...]]:
    batch = rows.encode(rows.ack_row(one) for one in acks)
    return run(alias, "ack", {"rows": batch, "with_rerun": with_rerun})


def _rounds(nacks: Sequence[Nack]) -> list[dict[UUID, Nack]]:
    """Spread a batch over rounds that name each job once, nearly always one.

    A worker that lost a job and claimed it again may settle both runs in one batch; the statement tells which row it
    wrote, but no longer under which token.
    """
    rounds: list[dict[UUID, Nack]] = []
    for one in nacks:
        free = next((by_id for by_id in rounds if one.claim.id not in by_id), None)
        if free is None:
            rounds.append(free := {})
        free[one.claim.id] = one
    return rounds


def _already_settled(alias: str, claims: Sequence[Claim]) -> set[Claim]:
    if not claims:
        return set()
    batch = rows.encode(map(rows.claim_row, claims))
    return set(map(rows.claim_of, run(alias, "settled", {"rows": batch})))


def _enqueue_successors(alias: str, ended: Sequence[tuple[Any, str | None]]) -> None:
    """Queue what rows that have just ended were asked for while they ran, under the keys they let go.

    A request that this build cannot read stays on its row: it must not keep the others of the batch from ending.
    """
    asked: dict[UUID, EnqueueRequest] = {}
    for job_id, request in ended:
        if request:
            try:
                asked[rows.uuid(job_id)] = msgspec.json.decode(request, type=EnqueueRequest)
            except msgspec.DecodeError as error:
                emit("jobs.rerun.unreadable", level=logging.ERROR, job=rows.uuid(job_id), error=str(error))
    if asked:
        run(alias, "hand_over", {"rows": rows.encode_ids(asked)})
        enqueue(alias, list(asked.values()))
