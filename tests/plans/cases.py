"""Every named statement with parameters as the package gives them, and what it may touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from tests.plans.database import (
    DEEP,
    DUE,
    EXPIRED,
    HAD,
    LAPSED,
    NAMED,
    QUEUES,
    RUNNING,
    TIED,
    WAITING_DUE,
    WORKERS,
    row_id,
    row_key,
)
from ultimat3_jobs.drivers.database import rows
from ultimat3_jobs.drivers.database.driver import STATS_CAP
from ultimat3_jobs.drivers.database.steps import record_values
from ultimat3_jobs.models import Job
from ultimat3_jobs.records import (
    Ack,
    Claim,
    EnqueueRequest,
    Event,
    Failure,
    Nack,
    Progress,
    StepKind,
    StepRecord,
    StepState,
)
from ultimat3_jobs.states import Stop

RUNS = 50  # running jobs that a fenced statement is given
KEYS = 100
KEPT = 50  # done jobs that still hold their keys: 1 of 100 does
ID = frozenset({"x_jobs_pkey"})
STEP_ID = frozenset({"x_job_steps_pkey"})
OUTBOX_ID = frozenset({"x_outbox_pkey"})
# What was published, by its staged id, and what a run has had of it.
EVENTS = frozenset({"x_job_events_name", "x_job_events_match", "x_job_steps_events"})
STAGED = frozenset({"x_job_events_staged_id_key", "x_job_events_pkey"})
ONE_A_QUEUE = len(QUEUES)  # the walk from queue to queue reads one row of each


@dataclass(frozen=True)
class Case:
    """One statement with one set of parameters.

    Attributes:
        name: of the case.
        statement: its name.
        parameters: those of the statement.
        rows: how many rows it returns or, where it returns none, handles.
        indexes: those that may lead it to the rows; none where it only inserts.
        probes: rows that it may touch beside four for each of `rows`.
        returns: whether it returns what it handles.
    """

    name: str
    statement: str
    parameters: dict[str, Any]
    rows: int
    indexes: frozenset[str]
    probes: int = 0
    returns: bool = True

    def __str__(self) -> str:
        return self.name


def cases() -> list[Case]:
    """Return all cases."""
    runs = [Claim(UUID(row_id("running", n)), UUID(row_id("running", n))) for n in range(1, RUNS + 1)]
    done = [Claim(UUID(row_id("done", n)), UUID(row_id("done", n))) for n in range(1, RUNS + 1)]
    failure = Failure("ValueError", "shop.py:1", "cause", "text")
    nacks = [
        *(Nack.bury(claim, stop=Stop.TERMINAL, failure=failure) for claim in runs[::2]),
        *(Nack.park(claim, delay=timedelta(minutes=1), reason="why") for claim in runs[1::2]),
    ]
    told = [Progress(claim, '{"done":1,"total":null}') for claim in runs]
    ready = [row_id("ready", n) for n in range(1, KEYS + 1)]
    dead = [row_id("dead", n) for n in range(1, RUNS + 1)]
    pending = [row_id("pending", n) for n in range(1, KEYS + 1)]
    held = [row_key("ready", n) for n in range(1, KEYS + 1)]
    kept = [row_key("done", 100 * n) for n in range(1, KEPT + 1)]
    free = [row_key("done", 100 * n + 1) for n in range(KEPT)]
    texts = dict.fromkeys(("lapsed_text", "unbegun_text", "lost_text", "error_class", "cause"), "")
    sweep = {"limit": 500, "seen": None, "most_lapses": 20, **texts}
    who = {"by": "me", "reason": "why"}
    id_and_key = frozenset({"x_jobs_pkey", "x_jobs_key"})
    return [
        *_claims(),
        _holders("holder of one key", [held[0]], found=1),
        _holders("holders of keys", [*held, *kept], found=KEYS + KEPT),
        _holders("holders of free keys", free, found=0),
        _live_passes("live passes", [*held, *free], found=KEYS),
        _live_passes("live passes: of keys that done jobs hold", kept, found=0),
        _newest_passes(),
        Case("enqueue", "enqueue", {"rows": _requests([*held, *free])}, KEPT, frozenset()),
        Case("ask again", "ask_again", {"rows": _rows(ready, request="{}")}, KEYS, ID),
        Case("hold back", "hold_back", {"rows": _rows(ready)}, KEYS, ID | STEP_ID),
        Case("release keys", "release_keys", {"rows": _rows(c.id.hex for c in done)}, RUNS, ID, returns=False),
        Case("release keys for", "release_keys_for", {"rows": _rows(dead)}, RUNS, id_and_key, returns=False),
        Case("hand over", "hand_over", {"rows": _rows(c.id.hex for c in done)}, RUNS, ID, returns=False),
        # The ends of leases are not indexed, since each renewal would then rewrite every index of its row: the sweep
        # reads all that is running, here twice what has lapsed.
        Case("sweep", "sweep", sweep, LAPSED, ID | {"x_jobs_running"}),
        Case("lapsed", "lapsed", {"limit": 500}, LAPSED, frozenset({"x_jobs_running"})),
        Case("promote some", "promote", {"limit": 10}, 10, ID | {"x_jobs_waiting"} | EVENTS, ONE_A_QUEUE),
        Case(
            "promote all",
            "promote",
            {"limit": DUE + WAITING_DUE + 1},
            DUE + WAITING_DUE,
            ID | {"x_jobs_waiting"} | EVENTS,
            ONE_A_QUEUE,
        ),
        *_events(),
        _stats("stats", STATS_CAP),
        _stats("stats to a low cap", 10),
        Case("ack", "ack", {"rows": rows.encode(rows.ack_row(Ack(c)) for c in runs), "with_rerun": False}, RUNS, ID),
        Case("nack", "nack", {"rows": rows.encode(map(rows.nack_row, nacks)), "with_rerun": True}, RUNS, ID),
        Case("heartbeat", "heartbeat", {"rows": rows.encode(map(rows.claim_row, runs)), "lease": 30.0}, RUNS, ID),
        Case("begin", "begin", {"rows": rows.encode(map(rows.claim_row, runs))}, RUNS, ID),
        Case("held", "held", {"rows": rows.encode(map(rows.claim_row, runs))}, RUNS, ID),
        Case("progress", "progress", {"rows": rows.encode(map(rows.progress_row, told))}, RUNS, ID),
        Case("settled", "settled", {"rows": rows.encode(map(rows.claim_row, done))}, RUNS, ID),
        Case("retry", "retry", {"rows": _rows(dead)}, RUNS, id_and_key),
        Case("cancel", "cancel", {"rows": _rows([*ready, *(c.id.hex for c in runs)]), **who}, KEYS + RUNS, ID),
        Case("found", "found", {"rows": _rows([*ready, *dead])}, KEYS + RUNS, ID),
        _log("log_failures", dead, decision="retry"),
        _log("log_repairs", dead, kind="retry", rule="", **who),
        *_from_a_step([c.id.hex for c in runs]),
        Case("stage", "stage", {"rows": _requests(free)}, KEPT, frozenset(), returns=False),
        Case("pending", "pending", {"limit": KEYS}, KEYS, frozenset({"x_outbox_pending", "x_outbox_pkey"})),
        Case("clock", "clock", {}, 1, frozenset()),
        Case("stay open", "stay_open", {}, 1, frozenset()),
        *_signals(),
        Case("mark", "mark", {"rows": _marks(pending)}, KEYS, frozenset({"x_outbox_pkey"})),
        *_outbox(pending, [row_id("published", n) for n in range(1, KEYS + 1)]),
        Case("set aside", "set_aside", {"rows": _rows(pending, tries=1, error=""), "lease": 30.0}, KEYS, OUTBOX_ID),
        *_steps(runs[0]),
        *_passes(runs[0]),
        *look_ups(),
    ]


def look_ups() -> Iterable[Case]:
    """Yield the cases of the statements by which people find jobs and outbox rows."""
    last, middle = {"before": "f" * 32}, {"before": row_id("delayed", 1)}
    name, tenant, key = row_key("done", 101)

    def listed(case: str, index: str, given: dict[str, Any], found: int = KEYS, limit: int = KEYS) -> Case:
        statement = case.partition(":")[0].replace(" ", "_")
        return Case(case, statement, {"limit": limit, **given}, found, frozenset({index}))

    def ended(state: str) -> dict[str, Any]:
        return {"state": state, "name": name, "tenant": tenant, "key": key, **last}

    yield listed("list newest", "x_jobs_pkey", last)
    yield listed("list newest: from the middle", "x_jobs_pkey", middle)
    yield listed("list dead", "x_jobs_dead_newest", last)
    yield listed("list dead of", "x_jobs_dead", {"queue": "mail"}, limit=50, found=50)
    yield listed("list dead of: a queue without", "x_jobs_dead", {"queue": "none"}, found=0)
    yield listed("look up cause", "x_jobs_ended_cause", {"cause": "c" * 64, **last}, found=0)
    yield listed("look up name", "x_jobs_final_name", ended("done"))
    yield listed("look up name: of few", "x_jobs_final_name", ended("cancelled"), found=0)
    yield listed("look up tenant", "x_jobs_final_tenant", ended("dead"), limit=1, found=1)
    yield listed("look up key", "x_jobs_final_key", ended("done"), found=1)
    yield listed("look up live", "x_jobs_key", {"name": name})
    yield listed("list ready", "x_jobs_ready", {"queue": ""})
    yield listed("list ready: of one queue", "x_jobs_ready", {"queue": "mail"})
    yield listed("list waiting", "x_jobs_waiting", {"queue": ""})
    yield listed("list running", "x_jobs_running", {"queue": ""})
    yield listed("outbox newest", "x_outbox_pkey", last)
    yield listed("outbox set aside", "x_outbox_set_aside", last, found=0)
    yield listed("outbox waiting", "x_outbox_pending", {})
    yield Case("clock", "clock", {}, 1, frozenset())


def loops() -> list[Case]:
    """Return the cases of the statements that run again and again, whether there is something to do or not."""
    return [
        case
        for case in cases()
        if case.statement in {"claim", "promote", "lapsed", "sweep", "pending", "claim_staged", "prune_events"}
    ]


def _events() -> Iterable[Case]:
    new = [
        rows.event_row(Event(staged_id=UUID(row_id("new", n)), name=NAMED, match="", payload="1", ttl=60.0))
        for n in range(1, KEYS + 1)
    ]
    yield Case("stage event", "stage_event", {"rows": rows.encode(new)}, KEYS, frozenset(), returns=False)
    positions = rows.encode({"position": at} | row for at, row in enumerate(new))
    yield Case("publish events", "publish_events", {"rows": positions}, KEYS, frozenset(), returns=False)
    # The youngest, for which half of those wait that wait.
    young = _rows([row_id("event", n) for n in range(1, 11)])
    yield Case("wake", "wake", {"rows": young, "limit": KEYS}, KEYS, ID | STAGED | EVENTS | {"x_jobs_awaiting"}, KEYS)
    waiting = [row_id("waits", n) for n in range(1, KEYS + 1)]
    yield Case("look again", "look_again", {"rows": _rows(waiting)}, KEYS // 2, ID | EVENTS, KEYS)
    yield _wait("wait for any", 1, "", EXPIRED + 2 * HAD)
    # What the run has had may be read at once, and not event by event.
    yield _wait("wait for a match", 1, "none-499", HAD)
    yield _wait("wait in vain", 2, "order-1")
    expiry = frozenset({"x_job_events_expiry", "x_job_events_pkey"})
    yield Case("prune events", "prune_events", {"limit": EXPIRED // 2}, EXPIRED // 2, expiry)


def _wait(name: str, number: int, match: str, probes: int = 0) -> Case:
    run = row_id("running", number)
    waited = rows.encode(
        [
            {
                "id": run,
                "token": run,
                "event": NAMED,
                "match": match,
                "name": "wait",
                "seq": 1,
                "attempt": 1,
                "delay": 60.0,
            }
        ]
    )
    return Case(name, "wait", {"rows": waited}, 1, ID | EVENTS | {"x_job_events_pkey", "x_job_steps_pkey"}, probes)


def _signals() -> Iterable[Case]:
    """Yield the cases of the statements that look at the server, and at no table."""
    yield Case("replica lag", "replica_lag", {}, 1, frozenset())
    yield Case("vacuum waiting", "vacuum_waiting", {"table": '"x_jobs"'}, 1, frozenset())
    yield Case("wal pressure", "wal_pressure", {}, 1, frozenset())
    yield Case("let sort", "let_sort", {"sort": "on"}, 1, frozenset())
    fields = Job._meta.concrete_fields
    by_name = {"pg_class_relname_nsp_index", "pg_attribute_relid_attnum_index"}
    catalog = frozenset(by_name if connection.vendor == "postgresql" else ())
    yield Case("columns", "columns", {"rows": rows.encode([{"name": "x_jobs"}])}, len(fields), catalog)


def _outbox(pending: Sequence[str], published: Sequence[str]) -> Iterable[Case]:
    lease = {"lease": 30.0}
    by_order = frozenset({"x_outbox_pending", "x_outbox_pkey"})
    yield Case("claim staged", "claim_staged", {"relay": "r", "limit": KEYS, **lease}, KEYS, by_order)
    marks = rows.encode(
        {"id": row, "token": row, "outcome": "published", "job_id": row, "error": ""} for row in pending
    )
    # None is claimed: each row is looked at, and left.
    yield Case("mark claimed", "mark_claimed", {"rows": marks, **lease}, 0, OUTBOX_ID, KEYS)
    yield Case("release staged", "release_staged", {"rows": marks, **lease}, 0, OUTBOX_ID, KEYS)
    yield Case("bound silence", "bound_silence", {"milliseconds": 30_000}, 1, frozenset())
    yield Case("retry staged", "retry_staged", {"rows": _rows(pending)}, 0, OUTBOX_ID, KEYS)
    behind = row_id("published", 10)
    yield Case("aged", "aged", {"after": behind, "limit": KEYS, "keep": 60.0}, KEYS, OUTBOX_ID)
    yield Case("prune", "prune", {"rows": _rows(published), "keep": 0.0}, KEYS, OUTBOX_ID)


def _from_a_step(jobs: Sequence[str]) -> Iterable[Case]:
    # The first of them has recorded waits; each of the others is looked at.
    given, looked = {"rows": _rows(jobs), "name": "had-1"}, 4 * len(jobs)
    indexes = ID | STEP_ID
    yield Case("have step", "have_step", given, 1, indexes, looked)
    yield Case("have step: that none has", "have_step", {**given, "name": "none"}, 0, indexes, looked)
    yield Case("forget steps", "forget_steps", given, HAD, indexes, looked, returns=False)


def _steps(claim: Claim) -> Iterable[Case]:
    # Of the runs that have had events, one with ten recorded waits.
    run, name = {"run_id": row_id("had", HAD)}, {"name": f"had-{10 * HAD}"}
    fence = {"id": claim.id.hex, "token": claim.token.hex}
    record = StepRecord(
        run_id=claim.id, name="new", seq=1, kind=StepKind.STEP, state=StepState.DONE, attempt=1, output="1"
    )
    yield Case("steps", "steps", {**run, "budget": 1_000}, 10, STEP_ID)
    yield Case("step output", "step_output", {**run, **name}, 1, STEP_ID)
    yield Case("record step", "record_step", record_values(claim, record), 1, ID | STEP_ID)
    yield Case("recorded", "recorded", {**fence, **name}, 0, ID | STEP_ID, 1)
    cursor = {key: value for key, value in record_values(claim, record).items() if key not in (*fence, "delay", "took")}
    yield Case("move cursor", "move_cursor", cursor, 1, frozenset(), returns=False)
    yield Case("count anew", "count_anew", fence, 1, ID)


def _passes(claim: Claim) -> Iterable[Case]:
    run, ledger = {"run_id": claim.id.hex}, frozenset({"x_backfills_pkey"})
    declared = {
        "name": "sweep",
        "table_name": "shop_order",
        "batch": 100,
        "rate": 1.0,
        "window_start": None,
        "window_end": None,
        "environment": "",
        "requested_by": "",
        "forced": False,
        "checksum": "",
        "release": "",
    }
    begun = {"bound": "[1]", "total": 1, "estimated": False, "checksum": "", "release": ""}
    yield Case("open pass", "open_pass", {**run, **declared}, 1, frozenset(), returns=False)
    yield Case("start pass", "start_pass", {**run, **begun}, 0, ledger, returns=False)
    yield Case(
        "progress pass", "progress_pass", {**run, "processed": 1, "total": 1, "batch": 1}, 0, ledger | ID, returns=False
    )
    yield Case("complete pass", "complete_pass", {**run, "processed": 1}, 0, ledger, returns=False)
    yield Case("pass controls", "pass_controls", run, 0, ledger)
    yield Case("pause pass", "pause_pass", {**run, "by": "me", "reason": "why"}, 0, ledger)
    yield Case("resume pass", "resume_pass", run, 0, ledger)
    hours = {"rate": 1.0, "with_window": True, "window_start": None, "window_end": None}
    yield Case("pace pass", "pace_pass", {**run, **hours}, 0, ledger)
    yield Case("nudge", "nudge", {"id": claim.id.hex, "known": True}, 1, ID)
    taken = {"kind": "table", "key": "concurrency:1", "holder": claim.id.hex}  # of a run that is gone
    leases = frozenset({"x_job_leases_pkey"})
    yield Case("take lease", "take_lease", taken, 1, ID | leases)
    held = rows.encode([{"lease_key": f"concurrency:{number}"} for number in range(1, 4)])
    owner = {"rows": held, "holder": claim.id.hex, "id": claim.id.hex, "token": claim.token.hex}
    yield Case("let go", "let_go", owner, 0, ID | leases, 1 + 3, returns=False)
    silent = frozenset({"x_job_leases_workers"})
    worker = {"key": "worker:w", "worker": "w", "lease": 30.0, "data": "{}"}
    yield Case("be present", "be_present", worker, 1, frozenset(), returns=False)
    yield Case("leave", "leave", {"key": "worker:w"}, 0, leases | silent, returns=False)
    # All that are alive are looked at, to find one that is not.
    yield Case("forget a worker", "forget_worker", {}, 0, silent | leases, probes=WORKERS)


def _claims() -> Iterable[Case]:
    def claim(name: str, limit: int, only: Sequence[str] = (), excluded: Sequence[str] = (), found: int = -1) -> Case:
        parameters = {
            "worker": "w",
            "limit": limit,
            "lease": 30.0,
            "only": rows.encode_names(only),
            "excluded": rows.encode_names(excluded),
            "lapsed": 1,
        }
        found = limit if found < 0 else found
        return Case(f"claim {name}", "claim", parameters, found, ID | {"x_jobs_ready"}, ONE_A_QUEUE)

    yield claim("one", 1)
    yield claim("ten", 10)
    yield claim("a hundred", 100)
    yield claim("from one queue", 10, only=["mail"])
    yield claim("where all is due at once", 100, only=[TIED])
    yield claim("beside a deep queue", 10, excluded=[DEEP])
    yield claim("from several queues", 100, only=["alpha", "import", "mail", TIED])
    yield claim("from a queue without work", 10, only=["none"], found=0)


def _newest_passes() -> Case:
    # Of 20 backfills two of which completed last; until one that completed, 7 are read of each; and one more is named.
    named = rows.encode([{"run_id": row_id("pass", 1_000)}])
    indexes = frozenset({"x_backfills_name", "x_backfills_pkey", "x_jobs_pkey"})
    return Case("newest passes", "newest_passes", {"rows": named}, 2 * 20 - 2 + 1, indexes, 7 * 20)


def _live_passes(case: str, keys: Sequence[tuple[str, str | None, str]], *, found: int) -> Case:
    asked = [{"name": name, "tenant_id": tenant, "idempotency_key": key} for name, tenant, key in keys]
    return Case(case, "live_passes", {"rows": rows.encode(asked)}, found, frozenset({"x_jobs_key"}), probes=len(keys))


def _holders(name: str, keys: Sequence[tuple[str, str | None, str]], found: int) -> Case:
    looked_up = rows.encode(
        {"position": place, "id": row_id("new", place), "name": job, "tenant_id": tenant, "idempotency_key": key}
        for place, (job, tenant, key) in enumerate(keys)
    )
    return Case(name, "holders", {"rows": looked_up}, found, ID | STEP_ID | {"x_jobs_key"})


def _stats(name: str, cap: int) -> Case:
    # Up to the cap of what is ready, waits, runs and is dead in each queue, and the first row of each priority. Of a
    # queue that holds little more than the cap the planner may read all, and sort it.
    probes = len(QUEUES) * (2 * 4 * cap + 20) + RUNNING
    indexes = ID | {"x_jobs_ready", "x_jobs_waiting", "x_jobs_running", "x_jobs_dead"}
    return Case(name, "stats", {"cap": cap}, len(QUEUES), indexes, probes)


def _requests(keys: Sequence[tuple[str, str | None, str]]) -> str:
    requests = [
        EnqueueRequest(
            id=UUID(row_id("new", number)),
            name=name,
            queue="mail",
            input="{}",
            fingerprint="",
            idempotency_key=key,
            tenant_id=tenant,
            max_attempts=3,
            priority=0,
        )
        for number, (name, tenant, key) in enumerate(keys)
    ]
    return rows.encode({"position": place} | rows.request_row(request) for place, request in enumerate(requests))


def _rows(ids: Iterable[str], **columns: str | int) -> str:
    return rows.encode({"id": row, **columns} for row in ids)


def _log(statement: str, jobs: Sequence[str], **columns: str) -> Case:
    logged = rows.encode({"id": rows.new_id(), "job_id": job, **columns} for job in jobs)
    return Case(statement.replace("_", " "), statement, {"rows": logged}, len(jobs), ID, returns=False)


def _marks(staged: Iterable[str]) -> str:
    return _rows(staged, outcome="published", job_id=row_id("done", 1), error="")
