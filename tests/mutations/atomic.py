"""Guards of atomic jobs, and of jobs whose worker went silent."""

from __future__ import annotations

from tests.mutations.mutation import BOTH, POSTGRESQL, SQLITE, Mutation

ATOMIC = "ultimat3_jobs/worker/atomic.py"
FENCED = "ultimat3_jobs/transactions.py"
MARKS = "ultimat3_jobs/marks.py"
STATEMENTS = "ultimat3_jobs/statements.py"
EXECUTE = "ultimat3_jobs/worker/execute.py"
LOOP = "ultimat3_jobs/worker/loop.py"
IN_ATOMIC = "tests/worker/test_atomic.py"
PASSES = "tests/backfills/test_passes.py"
TRIAL = "ultimat3_jobs/backfills/trial.py"
TRIED = "tests/backfills/test_command_try.py"
SAID = "tests/test_statements.py"
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
        test=f"{IN_ATOMIC}::test_what_a_body_writes_and_its_result_are_there_together",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: the body cannot end the transaction",
        file=FENCED,
        old='        if ends_the_transaction(sql, nested=connection.vendor == "postgresql", session=connection.connection):',
        new="        if False:",
        test=f"{IN_ATOMIC}::test_a_body_cannot_end_the_transaction_of_its_ack[COMMIT]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: savepoints are the body's own affair",
        file=STATEMENTS,
        old='[:1] != ["TO"]',
        new='[:1] != ["FROM"]',
        test=f"{IN_ATOMIC}::test_savepoints_are_the_affair_of_an_atomic_body",
        vendors=SQLITE,
    ),
    Mutation(
        guard="atomic: a statement in the middle of several ends no transaction",
        file=STATEMENTS,
        old='        elif found["end"]:\n            yield ";"\n',
        new='        elif found["end"]:\n            return\n',
        test=f"{IN_ATOMIC}::test_a_body_cannot_end_the_transaction_of_its_ack[SELECT 1; COMMIT; BEGIN]",
        vendors=SQLITE,
    ),
    *(
        Mutation(guard=f"atomic: {guard}", file=STATEMENTS, old=old, new=new, test=f"{SAID}::{test}", vendors=SQLITE)
        for guard, old, new, test in (
            (
                "what a dollar-quoted body holds is no statement",
                '        elif found["dollars"]:\n',
                "        elif False:\n",
                "test_what_only_holds_the_words",
            ),
            (
                "what a literal holds is no statement",
                "|'[^']*'|",
                "|",
                "test_what_only_holds_the_words",
            ),
            (
                "the END of a trigger's body is its own",
                "        within = within or (",
                "        within = False and (",
                "test_what_only_holds_the_words",
            ),
            (
                "comments nest on PostgreSQL",
                "        elif nested:\n",
                "        elif False:\n",
                "test_comments_nest_on_postgresql_alone",
            ),
            ("bytes are text", "    if isinstance(sql, bytes):\n", "    if False:\n", "test_what_ends_the_transaction"),
            (
                "each of several statements must read",
                "    return all(_reads(words) for",
                "    return any(_reads(words) for",
                "test_a_string_reads_where_each_of_its_statements_does",
            ),
        )
    ),
    *(
        Mutation(
            guard=f"atomic: an end past Django, {guard}",
            file=file,
            old=old,
            new=new,
            test=f"{IN_ATOMIC}::test_a_body_that_ends_the_transaction_past_django_has_failed[{end}]",
            vendors=vendors,
        )
        for guard, file, old, new, end, vendors in (
            (
                "is seen by the mark",
                FENCED,
                "        if not is_marked:\n",
                "        if False:\n",
                "commit_in_a_script",
                BOTH,
            ),
            (
                "is seen by the setting that ended with it",
                MARKS,
                "        return not seen or seen[0] == (self._token,), landed\n",
                "        return True, landed\n",
                "commit_and_go_on",
                POSTGRESQL,
            ),
            (
                "is seen by the savepoint that ended with it",
                MARKS,
                "not self._there(self._connection.ops.savepoint_commit_sql)",
                "False",
                "commit_in_a_script",
                SQLITE,
            ),
            (
                "is told by the driver",
                MARKS,
                "                return not self.session.in_transaction\n",
                "                return False\n",
                "end_the_block",
                SQLITE,
            ),
            (
                "on a connection that was opened anew",
                MARKS,
                "        return session is not None and session is not self.session\n",
                "        return False\n",
                "open_another",
                SQLITE,
            ),
            (
                "is told before blocks are counted",
                FENCED,
                "        if self._mark.is_over():\n            raise",
                "        if False:\n            raise",
                "end_the_block",
                BOTH,
            ),
        )
    ),
    Mutation(
        guard="atomic: whether the transaction is the same is asked in the fence's round trip",
        file=MARKS,
        old="            if seen or many or",
        new="            if True or many or",
        test=f"{IN_ATOMIC}::test_that_the_transaction_is_the_same_is_asked_with_the_first_statement_of_its_fence",
        vendors=POSTGRESQL,
    ),
    Mutation(
        guard="atomic: a fence without a statement asks by itself",
        file=MARKS,
        old="        if landed and not seen:\n",
        new="        if False:\n",
        test=f"{IN_ATOMIC}::test_that_the_transaction_is_the_same_is_asked_with_the_first_statement_of_its_fence",
        vendors=POSTGRESQL,
    ),
    Mutation(
        guard="atomic: the mark takes no snapshot",
        file=MARKS,
        old="""f"SET LOCAL {_SETTING} = '{self._token}'\"""",
        new="""f"SELECT set_config('{_SETTING}', '{self._token}', true)\"""",
        test=f"{IN_ATOMIC}::test_a_body_chooses_its_level_of_isolation",
        vendors=POSTGRESQL,
    ),
    Mutation(
        guard="atomic: who raises behind its own commit is told so",
        file=FENCED,
        old="not isinstance(error, TransactionBroken) and self._mark.is_over()",
        new="False",
        test="tests/backfills/test_handlers.py::test_a_handler_that_raises_behind_its_own_commit_is_told_so",
        vendors=BOTH,
    ),
    Mutation(
        guard="try: an end past Django is told aloud",
        file=TRIAL,
        old="        if not undone:\n",
        new="        if False:\n",
        test=f"{TRIED}::test_a_handler_that_ends_the_transaction_past_django_is_told_aloud",
        vendors=BOTH,
    ),
    Mutation(
        guard="try: of a connection that was closed nothing is promised",
        file=TRIAL,
        old="        except DatabaseError as error:\n            raise _lost",
        new="        except ZeroDivisionError as error:\n            raise _lost",
        test=f"{TRIED}::test_of_a_connection_that_was_closed_nothing_is_promised",
        vendors=BOTH,
    ),
    Mutation(
        guard="try: SystemExit is a failure of the handler",
        file=TRIAL,
        old="    except BaseException as error:  # SystemExit too",
        new="    except Exception as error:  # SystemExit too",
        test=f"{TRIED}::test_what_would_end_the_command_is_a_failure_of_the_handler",
        vendors=SQLITE,
    ),
    Mutation(
        guard="try: Ctrl-C is none",
        file=TRIAL,
        old="        if type(error) is KeyboardInterrupt:",
        new="        if False:",
        test=f"{TRIED}::test_ctrl_c_ends_the_command",
        vendors=SQLITE,
    ),
    Mutation(
        guard="try: the child of a handler that forks ends",
        file=TRIAL,
        old="            leave_if_forked(process)\n",
        new="",
        test=f"{TRIED}::test_the_child_of_a_handler_that_forks_is_no_second_command[0]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="try: rows are read again a few at a time",
        file=TRIAL,
        old="READ_AT_ONCE = 100\n",
        new="READ_AT_ONCE = 1_000\n",
        test=f"{TRIED}::test_as_many_rows_as_may_be_asked_for_are_tried_whatever_their_key",
        vendors=SQLITE,
    ),
    *(
        Mutation(guard=f"ledger: {guard}", file=file, old=old, new=new, test=f"{PASSES}::{test}", vendors=BOTH)
        for guard, file, old, new, test in (
            (
                "a row that is gone is opened anew with the next page",
                "ultimat3_jobs/backfills/pages.py",
                "        if not ledger.tell_progress(self._run.run_id, cursor):\n",
                "        if ledger.tell_progress(self._run.run_id, cursor) is None:\n",
                "test_a_row_of_the_ledger_that_was_deleted_under_its_pass_is_opened_anew[the first page-True]",
            ),
            (
                "a pass that completes is in it",
                "ultimat3_jobs/backfills/sweep.py",
                "            if not ledger.complete_pass(self._run.run_id, finished):\n",
                "            if ledger.complete_pass(self._run.run_id, finished) is None:\n",
                "test_a_row_of_the_ledger_that_was_deleted_under_its_pass_is_opened_anew[the count-True]",
            ),
            (
                "a row that is opened for a pass that has begun says how far it is",
                "ultimat3_jobs/backfills/sweep.py",
                "        if self._open_row() and cursor is not None:",
                "        if self._open_row() and False:",
                "test_a_row_of_the_ledger_that_was_deleted_between_two_attempts_is_opened_as_far_as_the_pass_is",
            ),
        )
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
    Mutation(
        guard="atomic: a role that was left set is told",
        file="ultimat3_jobs/transactions.py",
        old="            if sqlstate(error) in OUT_OF_SIGHT:\n",
        new="            if False:\n",
        test="tests/worker/test_atomic.py::test_a_body_may_set_a_role_or_a_search_path_and_sets_it_back",
        vendors=POSTGRESQL,
    ),
    Mutation(
        guard="atomic: a connection that was closed is told",
        file="ultimat3_jobs/transactions.py",
        old="        if connection.closed_in_transaction:\n            error.add_note",
        new="        if False:\n            error.add_note",
        test="tests/worker/test_atomic.py::test_a_body_that_closes_its_connection_fails_with_that_as_the_reason",
    ),
)
