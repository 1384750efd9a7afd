"""Guards of atomic jobs, and of jobs whose worker went silent."""

from __future__ import annotations

from tests.mutations.mutation import BOTH, POSTGRESQL, SQLITE, Mutation

ATOMIC = "ultimat3_jobs/worker/atomic.py"
FENCED = "ultimat3_jobs/transactions.py"
EXECUTE = "ultimat3_jobs/worker/execute.py"
LOOP = "ultimat3_jobs/worker/loop.py"
IN_ATOMIC = "tests/worker/test_atomic.py"
IN_LOOP = "tests/worker/test_loop.py"
LAPSES = "tests/drivers/test_database.py::TestLapses"


def statement(vendor: str, name: str) -> str:
    """Return the file of a named statement."""
    return f"ultimat3_jobs/sql/{vendor}/{name}.sql"


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        guard="atomic: the body is in a transaction",
        file=FENCED,
        old="            with self._seen(alias == queue), transaction.atomic(using=alias, durable=True):",
        new="            if True:",
        test=f"{IN_ATOMIC}::test_a_body_that_raises_leaves_nothing",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: the body cannot end the transaction",
        file=FENCED,
        old="        if _ENDS_THE_TRANSACTION.search(_text(sql)):",
        new="        if False:",
        test=f"{IN_ATOMIC}::test_a_body_cannot_end_the_transaction_of_its_ack[COMMIT]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: savepoints are the body's own affair",
        file=FENCED,
        old=r"ROLLBACK\b(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))",
        new=r"ROLLBACK\b)",
        test=f"{IN_ATOMIC}::test_savepoints_are_the_affair_of_an_atomic_body",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a statement in the middle of several ends no transaction",
        file=FENCED,
        old=r"(?:\s+AND\s+(?:NO\s+)?CHAIN)?\s*(?:;|\Z)",
        new=r"\s*;?\Z",
        test=f"{IN_ATOMIC}::test_a_body_cannot_end_the_transaction_of_its_ack[SELECT 1; COMMIT; BEGIN]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a block that is left open does not pass for the end of the transaction",
        file=FENCED,
        old="        if not connection.in_atomic_block or len(connection.atomic_blocks) != self._depth:",
        new="        if False:",
        test=f"{IN_ATOMIC}::test_a_body_that_leaves_a_block_open_has_failed[True]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: blocks that a body left open end before the transaction",
        file=FENCED,
        old="            while len(connection.atomic_blocks) > depth:",
        new="            while False:",
        test=f"{IN_ATOMIC}::test_a_body_that_fails_in_a_block_it_left_open_leaves_nothing_open",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a hook that raises SystemExit comes after the commit",
        file=FENCED,
        old="        except BaseException as error:\n            leave_if_forked",
        new="        except Exception as error:\n            leave_if_forked",
        test=f"{IN_ATOMIC}::test_a_hook_that_fails_after_the_commit_costs_no_second_run[SystemExit]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: the child of a hook that forks ends",
        file=FENCED,
        old="            leave_if_forked(process, error)\n",
        new="",
        test="tests/scenarios/test_worker_process.py::test_the_child_of_a_body_that_forks_is_no_second_worker",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: an ack that did not land rolls back",
        file=ATOMIC,
        old="        if not self._transaction.end_with(lambda: self._end(result)):",
        new="        if self._transaction.end_with(lambda: self._end(result)) is None:",
        test=f"{IN_ATOMIC}::test_a_body_whose_job_another_worker_ended_before_it_began_leaves_nothing",
        vendors=BOTH,
    ),
    Mutation(
        guard="atomic: the transaction begins as one that writes",
        file=FENCED,
        old="                    self._driver.take_turn()\n",
        new="                    pass\n",
        test=f"{IN_ATOMIC}::test_a_body_that_reads_before_it_writes_never_meets_a_locked_database",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a commit whose answer was lost is looked up",
        file=FENCED,
        old="            if not (self.landed and self._is_committed(alias)):",
        new="            if True:",
        test=f"{IN_ATOMIC}::test_a_commit_whose_answer_is_lost_is_known_by_what_it_left[True]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a commit that failed is not taken for one that landed",
        file=FENCED,
        old="            if not (self.landed and self._is_committed(alias)):",
        new="            if not self.landed:",
        test=f"{IN_ATOMIC}::test_a_commit_whose_answer_is_lost_is_known_by_what_it_left[False]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a queue that cannot share the transaction is refused",
        file=ATOMIC,
        old="        if Capability.JOINS_TRANSACTION not in self._driver.capabilities:",
        new="        if False:",
        test=f"{IN_ATOMIC}::test_a_driver_that_shares_no_transaction_runs_no_atomic_job",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a result that cannot be stored rolls back",
        file=EXECUTE,
        old="            raise _Ended(_result_refused(error, job, definition)) from None",
        new="            return _result_refused(error, job, definition)",
        test=f"{IN_ATOMIC}::test_a_result_that_cannot_be_stored_rolls_back_and_is_not_tried_again",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: what settled itself is not settled again",
        file="ultimat3_jobs/worker/settle.py",
        old="    if isinstance(outcome, (Committed, RolledBack, GivenUp)):\n        return _tell(driver, job, outcome)\n    write",
        new="    write",
        test=f"{IN_ATOMIC}::test_what_is_logged_tells_of_the_job_that_is_done",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: no async body",
        file="ultimat3_jobs/options.py",
        old="    if atomic and inspect.iscoroutinefunction(body):",
        new="    if False:",
        test=f"{IN_ATOMIC}::test_an_async_body_cannot_be_atomic",
        vendors=SQLITE,
    ),
    Mutation(
        guard="lapses: a claim takes one suspect",
        file=statement("postgresql", "claim"),
        old="        AND (heads.lapses = 0 OR heads.passed < :lapsed)",
        new="        AND (:lapsed >= 0)",
        test=f"{LAPSES}::test_a_claim_takes_as_many_lapsed_jobs_as_it_asks_for_and_passes_over_the_rest",
        vendors=POSTGRESQL,
    ),
    Mutation(
        guard="lapses: a claim takes one suspect",
        file=statement("sqlite", "claim"),
        old="    WHERE lapses = 0 OR nth <= :lapsed",
        new="    WHERE :lapsed >= 0",
        test=f"{LAPSES}::test_a_claim_takes_as_many_lapsed_jobs_as_it_asks_for_and_passes_over_the_rest",
        vendors=SQLITE,
    ),
    Mutation(
        guard="lapses: a suspect that is passed over costs no step",
        file=statement("postgresql", "claim"),
        old="                AND (j.lapses = 0 OR h.passed + h.suspect < :lapsed)\n",
        new="",
        places=2,
        test="tests/drivers/test_claims_past_lapsed.py::test_a_claim_makes_no_step_for_a_suspect_that_it_skips",
        vendors=POSTGRESQL,
    ),
    Mutation(
        guard="lapses: a suspect that is passed over costs no step",
        file=statement("sqlite", "claim"),
        old="                AND (j.lapses = 0 OR c.suspects < :lapsed)\n",
        new="",
        places=2,
        test="tests/drivers/test_claims_past_lapsed.py::test_a_suspect_that_is_skipped_costs_a_few_instructions",
        vendors=SQLITE,
    ),
    Mutation(
        guard="lapses: suspects run one at a time in a process",
        file=LOOP,
        old="            lapsed=0 if self._inflight.any_lapsed() else 1,",
        new="            lapsed=self._concurrency,",
        test=f"{IN_LOOP}::test_jobs_of_workers_that_went_silent_run_one_at_a_time_beside_others",
        vendors=SQLITE,
    ),
    Mutation(
        guard="lapses: a last attempt is marked before its body",
        file=LOOP,
        old="            if active.job.attempt >= active.job.max_attempts and not self._begin(active):",
        new="            if False:",
        test=f"{IN_LOOP}::test_a_last_attempt_is_marked_before_its_body_and_others_are_not_written_again",
        vendors=SQLITE,
    ),
    Mutation(
        guard="lapses: a last attempt of another's job is not started",
        file=LOOP,
        old="            if active.job.attempt >= active.job.max_attempts and not self._begin(active):",
        new="            if active.job.attempt >= active.job.max_attempts and self._begin(active) is None:",
        test=f"{IN_LOOP}::test_a_last_attempt_whose_job_is_another_workers_is_not_started",
        vendors=SQLITE,
    ),
    *(
        Mutation(
            guard="lapses: a last attempt is not begun by its claim",
            file=statement(vendor, "claim"),
            old=old,
            new=new,
            test=f"{LAPSES}::test_a_last_attempt_that_had_not_begun_is_given_back",
            vendors=(vendor,),
        )
        for vendor, old, new in (
            (
                "postgresql",
                "CASE WHEN j.attempt + 1 < j.max_attempts THEN statement_timestamp() END",
                "statement_timestamp()",
            ),
            ("sqlite", "        WHEN attempt + 1 < max_attempts THEN", "        WHEN attempt >= 0 THEN"),
        )
    ),
    *(
        Mutation(
            guard="lapses: an attempt that had begun is not given back",
            file=statement(vendor, "sweep"),
            old="            WHEN j.started_at IS NULL AND j.lapses < :most_lapses THEN 'unbegun'",
            new="            WHEN j.lapses < :most_lapses THEN 'unbegun'",
            test=f"{LAPSES}::test_a_last_attempt_that_had_not_begun_is_given_back",
            vendors=(vendor,),
        )
        for vendor in BOTH
    ),
    *(
        Mutation(
            guard="lapses: attempts are given back so often only",
            file=statement(vendor, "sweep"),
            old="            WHEN j.started_at IS NULL AND j.lapses < :most_lapses THEN 'unbegun'",
            new="            WHEN j.started_at IS NULL AND :most_lapses > 0 THEN 'unbegun'",
            test=f"{LAPSES}::test_not_even_its_claim_may_end_a_process_for_ever",
            vendors=(vendor,),
        )
        for vendor in BOTH
    ),
    Mutation(
        guard="lapses: the mark is fenced on the claim",
        file=statement("postgresql", "begin"),
        old="j.claim_token = r.token AND ",
        new="",
        test=f"{LAPSES}::test_only_the_owner_of_a_job_begins_it",
        vendors=POSTGRESQL,
    ),
    Mutation(
        guard="lapses: the mark is fenced on the claim",
        file=statement("sqlite", "begin"),
        old="WHERE (id, claim_token) IN (\n        SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.token') FROM json_each(:rows) AS r\n    )",
        new="WHERE id IN (SELECT json_extract(r.value, '$.id') FROM json_each(:rows) AS r)",
        test=f"{LAPSES}::test_only_the_owner_of_a_job_begins_it",
        vendors=SQLITE,
    ),
    *(
        Mutation(
            guard="lapses: what ended by itself is no suspect",
            file=statement(vendor, "nack"),
            old=f"    lapses = CASE WHEN settled.kind = 'hand-back' THEN {table}.lapses ELSE 0 END,\n",
            new="",
            test=f"{LAPSES}::test_a_job_that_ended_by_itself_is_no_suspect_any_more",
            vendors=(vendor,),
        )
        for vendor, table in (("postgresql", "j"), ("sqlite", "x_jobs"))
    ),
    *(
        Mutation(
            guard="lapses: what was handed back stays a suspect",
            file=statement(vendor, "nack"),
            old=f"    lapses = CASE WHEN settled.kind = 'hand-back' THEN {table}.lapses ELSE 0 END,\n",
            new="    lapses = 0,\n",
            test=f"{LAPSES}::test_a_job_that_was_handed_back_stays_a_suspect",
            vendors=(vendor,),
        )
        for vendor, table in (("postgresql", "j"), ("sqlite", "x_jobs"))
    ),
)
