"""The guards of retries, cancels, classification and the record of failures."""

from __future__ import annotations

from tests.mutations.mutation import BOTH, POSTGRESQL, SQLITE, Mutation

_RETRIES = "tests/drivers/test_database.py::TestRetries::"
_CANCELS = "tests/drivers/test_database.py::TestCancels::"
_REPAIRS = "ultimat3_jobs/drivers/database/repairs.py"


def _in_both(guard: str, name: str, postgresql: tuple[str, str], sqlite: tuple[str, str], test: str) -> list[Mutation]:
    """A guard that stands in both dialects of one statement."""
    return [
        Mutation(guard, f"ultimat3_jobs/sql/{vendors[0]}/{name}.sql", old, new, test, vendors)
        for vendors, (old, new) in ((POSTGRESQL, postgresql), (SQLITE, sqlite))
    ]


MUTATIONS: tuple[Mutation, ...] = (
    *_in_both(
        "retry: only dead letters",
        "retry",
        ("    WHERE j.state || '' IN ('dead', 'failed')\n", ""),
        (" AND j.state IN ('dead', 'failed')", ""),
        f"{_RETRIES}test_a_job_that_is_live_or_done_is_not_started_again[done]",
    ),
    *_in_both(
        "retry: attempts anew",
        "retry",
        ("    attempt = 0,\n", ""),
        ("    attempt = 0,\n", ""),
        f"{_RETRIES}test_a_dead_letter_starts_again_with_its_attempts_anew[dead]",
    ),
    *_in_both(
        "retry: tenant in the namespace",
        "retry",
        ("            AND COALESCE(x.tenant_id, '') = COALESCE(j.tenant_id, '')\n", ""),
        ("            AND COALESCE(x.tenant_id, '') = COALESCE(x_jobs.tenant_id, '')\n", ""),
        f"{_RETRIES}test_a_key_of_another_tenant_holds_nothing_up",
    ),
    *_in_both(
        "retry: of one key the newest",
        "retry",
        ("l.id DESC\n", "l.id\n"),
        ("ORDER BY j.id DESC", "ORDER BY j.id"),
        f"{_RETRIES}test_of_several_dead_letters_of_one_key_the_newest_starts[1]",
    ),
    *_in_both(
        "retry: another tenant's dead letter is not of one key",
        "retry",
        (", l.tenant_id COLLATE", ", '' COLLATE"),
        ("j.name, COALESCE(j.tenant_id, ''), j", "j.name, j"),
        f"{_RETRIES}test_of_several_dead_letters_of_one_key_the_newest_starts[1]",
    ),
    Mutation(
        "retry: keys are taken in the order of the enqueue",
        "ultimat3_jobs/sql/postgresql/retry.sql",
        'l.name COLLATE "C", l.tenant_id COLLATE "C", l.idempotency_key COLLATE "C"',
        "l.name, l.tenant_id, l.idempotency_key",
        "tests/drivers/test_locks.py::test_retries_take_keys_in_the_order_of_the_enqueue",
        POSTGRESQL,
        places=2,
    ),
    Mutation(
        "retry: letters are locked in one order",
        "ultimat3_jobs/sql/postgresql/retry.sql",
        "    ORDER BY j.id\n",
        "",
        "tests/drivers/test_locks.py::test_repairs_lock_in_one_order[retry-dead]",
        POSTGRESQL,
    ),
    Mutation(
        "retry: an expired key holds nothing up",
        _REPAIRS,
        '    run(alias, "release_keys_for", {"rows": _batch(asked)})\n',
        "",
        f"{_RETRIES}test_a_key_held_by_a_done_job_is_held_until_it_expires",
        BOTH,
    ),
    *_in_both(
        "retry: an unexpired key is not let go",
        "release_keys_for",
        ("j.key_until <= statement_timestamp()", "j.key_until IS NOT NULL"),
        ("\n        AND x.key_until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'", ""),
        f"{_RETRIES}test_a_key_held_by_a_done_job_is_held_until_it_expires",
    ),
    Mutation(
        "retry: a conflict affects one row",
        _REPAIRS,
        "    except IntegrityError:\n        if len(ids) == 1:\n",
        "    except IntegrityError:\n        if ids:\n",
        "tests/drivers/test_repairs.py::test_a_key_taken_between_the_look_and_the_write_costs_its_own_row_alone",
        POSTGRESQL,
    ),
    Mutation(
        "retry: the newest starts also where the batch is taken apart",
        _REPAIRS,
        "sorted(asked, reverse=True)",
        "asked",
        "tests/drivers/test_repairs.py::test_a_key_taken_between_the_look_and_the_write_costs_its_own_row_alone",
        POSTGRESQL,
    ),
    Mutation(
        "history: retry and history in one transaction",
        _REPAIRS,
        "        with transaction.atomic(using=alias):\n            started",
        "        if True:\n            started",
        "tests/drivers/test_rows.py::test_a_retry_and_its_history_are_one_transaction",
        SQLITE,
    ),
    Mutation(
        "repair: who and why are bounded",
        _REPAIRS,
        '            "by": bounded(by, MAX_ATTRIBUTION),\n            "reason": bounded(reason, MAX_ATTRIBUTION),\n',
        '            "by": by,\n            "reason": reason,\n',
        "tests/drivers/test_repairs.py::test_who_and_why_are_stored_whatever_they_are[retry]",
        POSTGRESQL,
    ),
    *_in_both(
        "cancel: only live jobs",
        "cancel",
        ("    WHERE j.state || '' IN ('ready', 'delayed', 'running', 'suspended')\n", ""),
        ("    AND state IN ('ready', 'delayed', 'running', 'suspended')\n", ""),
        f"{_CANCELS}test_a_job_that_has_ended_is_refused[done]",
    ),
    *_in_both(
        "cancel: the claim is taken away",
        "cancel",
        ("    claim_token = NULL,\n", ""),
        ("    claim_token = NULL,\n", ""),
        f"{_CANCELS}test_the_worker_of_a_cancelled_job_has_lost_its_claim[ack]",
    ),
    *_in_both(
        "cancel: the key is let go",
        "cancel",
        ("    key_until = NULL,\n", ""),
        ("    key_until = NULL,\n", ""),
        f"{_CANCELS}test_a_cancelled_job_lets_its_key_go_at_once[ready]",
    ),
    *_in_both(
        "cancel: nothing follows",
        "cancel",
        ("    rerun = NULL,\n", ""),
        ("    rerun = NULL,\n", ""),
        "tests/drivers/test_repairs.py::test_a_cancelled_job_says_who_stopped_it_why_and_when[running]",
    ),
    Mutation(
        "cancel: matched under the lock, in one order",
        "ultimat3_jobs/sql/postgresql/cancel.sql",
        "    ORDER BY j.id\n    FOR UPDATE OF j\n",
        "",
        "tests/drivers/test_locks.py::test_repairs_lock_in_one_order[cancel-running]",
        POSTGRESQL,
    ),
)
