"""The guards of a sweep: each row once, none left out, whoever dies, stops, edits or runs beside it."""

from __future__ import annotations

from tests.mutations.mutation import BOTH, POSTGRESQL, SQLITE, Mutation

TRANSACTIONS = "ultimat3_jobs/transactions.py"
PAGES = "ultimat3_jobs/backfills/pages.py"
SWEEP = "ultimat3_jobs/backfills/sweep.py"
SOURCE = "ultimat3_jobs/backfills/source.py"
KEYSET = "ultimat3_jobs/backfills/keyset.py"
STEPS = "ultimat3_jobs/steps/steps.py"
ROWS = "tests/backfills/test_rows.py::"
BODIES = "tests/backfills/test_handlers.py::"
FAULTS = "tests/backfills/test_database_faults.py::"
LOCKS = "tests/backfills/test_page_locks.py::"
PASSES = "tests/backfills/test_meeting_passes.py::"
KILLS = "tests/backfills/test_kills.py::"
APART = "tests/backfills/test_apart.py::"
SPARSE = "tests/backfills/test_sparse.py::test_every_statement_of_a_sparse_sweep_reads_a_bounded_number_of_rows"
STOPPED = f"{KILLS}test_a_worker_that_was_stopped_past_its_lease_and_continued_moves_nothing"
UNDONE = f"{BODIES}test_whatever_a_handler_does_its_page_is_undone_and_the_pass_stands_where_it_stood"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "sweep: a checkpoint that is refused leaves nothing behind",
        "ultimat3_jobs/drivers/database/steps.py",
        "            transaction.set_rollback(True, using=alias)\n",
        "            pass\n",
        "tests/drivers/test_database.py::TestSteps::test_who_lost_the_claim_writes_no_checkpoint",
        SQLITE,
    ),
    Mutation(
        "sweep: a page that lost its claim ends the run",
        PAGES,
        "            if not one.end_with(lambda: self._write(moved)):\n",
        "            if not one.end_with(lambda: self._write(moved)) and False:\n",
        "tests/backfills/test_sweep.py::test_a_run_whose_page_is_refused_handles_no_other_page",
        SQLITE,
    ),
    *(
        Mutation(
            "sweep: the fence asks for the token",
            f"ultimat3_jobs/sql/{vendor}/count_anew.sql",
            old,
            new,
            f"{STOPPED}[between-True-True]",
            (vendor,),
        )
        for vendor, old, new in (
            ("sqlite", "id = :id AND claim_token = :token AND state = 'running'", "id = :id AND :token = :token"),
            (
                "postgresql",
                "AND j.claim_token = CAST(:token AS uuid) AND j.state || '' = 'running'",
                "AND CAST(:token AS uuid) IS NOT NULL",
            ),
        )
    ),
    *(
        Mutation(
            "sweep: a page that lands lets the attempts count anew",
            f"ultimat3_jobs/sql/{vendor}/count_anew.sql",
            "SET attempt = 1,",
            "SET attempt = attempt,",
            f"{BODIES}test_a_page_that_lands_lets_the_attempts_count_anew_and_one_that_never_does_ends_the_pass",
            (vendor,),
        )
        for vendor in BOTH
    ),
    Mutation(
        "sweep: a run knows that its attempts count anew",
        SWEEP,
        "            self._run.attempt = 1  #",
        "            #",
        f"{BODIES}test_a_page_that_lands_lets_the_attempts_count_anew_and_one_that_never_does_ends_the_pass",
        SQLITE,
    ),
    Mutation(
        "sweep: a first cursor that is refused ends the run",
        SWEEP,
        "        if not self._pages.checkpoint(cursor):\n            self._steps.landed(None)\n",
        "        self._pages.checkpoint(cursor)\n",
        "tests/backfills/test_sweep.py::test_a_run_whose_first_cursor_is_refused_handles_no_page",
        SQLITE,
    ),
    Mutation(
        "sweep: a cursor that lost its claim is not moved, apart from its page too",
        PAGES,
        "            if not self._write(moved):\n",
        "            if not self._write(moved) and False:\n",
        f"{STOPPED}[between-False-True]",
        SQLITE,
    ),
    Mutation(
        "sweep: a page and its cursor are one transaction",
        SOURCE,
        "in_one=backfill.atomic and alias == queue_alias(),",
        "in_one=False,",
        f"{FAULTS}test_the_commit_of_a_page_whose_answer_is_lost_is_recognised[2-True]",
        SQLITE,
    ),
    Mutation(
        "sweep: rows elsewhere are not taken to be in the queue's transaction",
        SOURCE,
        "in_one=backfill.atomic and alias == queue_alias(),",
        "in_one=backfill.atomic,",
        f"{APART}test_rows_of_another_database_are_swept_there",
        SQLITE,
    ),
    Mutation(
        "sweep: apart, the rows commit before the cursor moves",
        PAGES,
        "            alias=self._rows.alias,\n",
        "",
        f"{APART}test_a_page_that_could_not_commit_there_keeps_the_cursor_where_it_was[break_the_transaction]",
        SQLITE,
    ),
    Mutation(
        "sweep: a page that cannot commit does not move the cursor",
        PAGES,
        "            if not one.end_with(one.is_sound):\n",
        "            if not one.end_with(lambda: True):\n",
        f"{UNDONE}[catch_an_integrity_error-False]",
        SQLITE,
    ),
    Mutation(
        "sweep: a page whose transaction the server has given up says why it cannot commit",
        TRANSACTIONS,
        "            return int(connection.connection.info.transaction_status) != IN_ERROR\n",
        "            return True\n",
        "tests/backfills/test_handlers.py::test_a_page_that_hides_an_error_of_the_database_says_why_it_cannot_commit",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: the bound is fixed at the start",
        SWEEP,
        "        bound = self._keys.load(cursor.bound or [])\n",
        "        bound = last_key(self._rows)\n",
        f"{ROWS}test_rows_that_are_inserted_faster_than_they_are_swept_do_not_keep_it_going",
        SQLITE,
    ),
    Mutation(
        "sweep: a stretch ends at the bound",
        KEYSET,
        "    keys = _between(rows.everything, after, bound).order_by",
        "    keys = (rows.everything if after is None else rows.everything.filter(pk__gt=after)).order_by",
        f"{ROWS}test_rows_that_are_inserted_faster_than_they_are_swept_do_not_keep_it_going",
        SQLITE,
    ),
    Mutation(
        "sweep: a page looks at a stretch of keys alone",
        SWEEP,
        "STRETCH * size)",
        "10**9)",
        SPARSE,
        POSTGRESQL,
    ),
    Mutation(
        "sweep: where a stretch ends early, the page goes on behind its last row",
        PAGES,
        "        at = self._keys.store(found[-1]) if len(found) == size else until\n",
        "        at = until\n",
        f"{ROWS}test_a_handler_that_takes_its_rows_out_of_the_source_skips_none",
        SQLITE,
    ),
    Mutation(
        "sweep: keys are taken before the handler changes its rows",
        PAGES,
        "        at = self._keys.store(found[-1]) if len(found) == size else until\n        if rows:\n",
        "        if rows:\n",
        f"{ROWS}test_a_handler_may_delete_its_rows[7]",
        SQLITE,
    ),
    Mutation(
        "sweep: no manager hides rows from its bounds",
        SOURCE,
        "everything=QuerySet(queryset.model, using=alias),",
        "everything=queryset.model._base_manager.using(alias),",
        f"{ROWS}test_rows_that_every_manager_of_their_model_hides_bound_the_sweep_and_are_handled_where_the_source_gives_them",
        SQLITE,
    ),
    Mutation(
        "sweep: a source the other way round is refused",
        SOURCE,
        " or not query.standard_ordering\n",
        "\n",
        f"{ROWS}test_a_source_that_would_leave_rows_out_is_refused[reverse-is ordered]",
        SQLITE,
    ),
    Mutation(
        "sweep: a source that skips what is locked is refused",
        SOURCE,
        'never be handled": query.select_for_update_skip_locked,',
        'never be handled": False,',
        f"{ROWS}test_a_source_that_would_leave_rows_out_is_refused[<lambda>-skips rows that others have locked]",
        SQLITE,
    ),
    Mutation(
        "sweep: a cursor of another type of key is refused",
        KEYSET,
        "        if _plain(values) != list(stored):  #",
        "        if not values:  #",
        f"{ROWS}test_a_cursor_is_refused_by_a_key_of_another_type[before0-5-after0]",
        SQLITE,
    ),
    Mutation(
        "sweep: a key that does not come back is refused",
        KEYSET,
        "        if self.load(stored) != key:\n",
        "        if False:\n",
        f"{ROWS}test_a_key_that_does_not_come_back_from_text_is_refused",
        SQLITE,
    ),
    Mutation(
        "sweep: the rows of a page are locked",
        KEYSET,
        "    if rows.locked is not None:\n",
        "    if False:\n",
        f"{LOCKS}test_an_edit_waits_for_the_page_and_neither_side_loses_what_it_wrote",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: rows are not locked where nobody asked for it",
        SOURCE,
        "locked=_locked(queryset.model) if backfill.lock else None,",
        "locked=_locked(queryset.model),",
        f"{LOCKS}test_rows_that_are_not_locked_are_edited_meanwhile",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: the parts of a row in the tables of its parents are locked",
        SOURCE,
        "            names.append(name)\n",
        "",
        f"{LOCKS}test_both_parts_of_a_row_are_locked[parent]",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: new rows that refer to locked ones do not wait",
        KEYSET,
        "select_for_update(no_key=True, of=",
        "select_for_update(of=",
        f"{LOCKS}test_a_new_row_that_refers_to_a_locked_one_does_not_wait",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: a page that was ended for another is begun again",
        PAGES,
        "                if not left or not (isinstance(error, BackfillKeysMoved) or sqlstate(error) in AGAIN):\n",
        "                if True:\n",
        f"{FAULTS}test_a_serialisation_failure_in_a_page_is_no_result_of_it",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: a page is not begun again for ever",
        PAGES,
        "                if not left or not (isinstance(error, BackfillKeysMoved) or sqlstate(error) in AGAIN):\n",
        "                if not (isinstance(error, BackfillKeysMoved) or sqlstate(error) in AGAIN):\n",
        f"{FAULTS}test_a_page_is_begun_again_for_a_conflict_alone_and_not_for_ever[40001-5]",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: a page that takes too long is split",
        SWEEP,
        "                if sqlstate(error) != QUERY_CANCELLED or not sizes.timed_out():\n",
        "                if True:\n",
        f"{FAULTS}test_a_page_that_takes_too_long_is_split_down_to_what_fits_and_grows_again[True]",
        POSTGRESQL,
    ),
    Mutation(
        "sweep: a lost answer to a commit is asked for",
        PAGES,
        "            is_committed=lambda: self._is_there(moved),\n",
        "            is_committed=lambda: False,\n",
        f"{FAULTS}test_the_commit_of_a_page_whose_answer_is_lost_is_recognised[2-True]",
        SQLITE,
    ),
    Mutation(
        "sweep: the cursor of an earlier page is not taken for that of a lost one",
        PAGES,
        ".pages >= moved.pages\n",
        ".pages >= 0\n",
        f"{FAULTS}test_the_commit_of_a_page_whose_answer_is_lost_is_recognised[2-False]",
        SQLITE,
    ),
    Mutation(
        "sweep: what fails at the commit names its rows",
        PAGES,
        "            if self._found:\n",
        "            if False:\n",
        f"{FAULTS}test_a_rule_that_is_checked_at_the_commit_undoes_the_page",
        SQLITE,
    ),
    Mutation(
        "sweep: a page has no steps of its own",
        STEPS,
        "        if self._inside:\n",
        "        if False:\n",
        f"{UNDONE}[sleep-True]",
        SQLITE,
    ),
    Mutation(
        "sweep: a handler that answers a coroutine has done nothing",
        "ultimat3_jobs/backfills/handlers.py",
        "_LAZY = (inspect.iscoroutine, inspect.isgenerator, inspect.isasyncgen)",
        "_LAZY = (inspect.isgenerator, inspect.isasyncgen)",
        f"{UNDONE}[return_a_coroutine-True]",
        SQLITE,
    ),
    Mutation(
        "sweep: a handler that answers a generator has done nothing",
        "ultimat3_jobs/backfills/handlers.py",
        "_LAZY = (inspect.iscoroutine, inspect.isgenerator, inspect.isasyncgen)",
        "_LAZY = (inspect.iscoroutine, inspect.isasyncgen)",
        f"{BODIES}test_a_handler_that_returns_what_nobody_runs_has_failed[generator]",
        SQLITE,
    ),
    Mutation(
        "sweep: a cursor that does not move ends the pass",
        PAGES,
        "        if found and self._keys.store(found[0]) == cursor.at:",
        "        if False:",
        f"{BODIES}test_a_key_that_does_not_come_back_as_it_is_ends_the_pass[2]",
        SQLITE,
    ),
    Mutation(
        "sweep: what a handler does to its list is not counted",
        PAGES,
        "rows=len(found), size=size)",
        "rows=len(rows), size=size)",
        f"{BODIES}test_a_handler_that_empties_its_list_has_handled_its_rows",
        SQLITE,
    ),
    Mutation(
        "passes: a dead pass is not swept on when another has completed",
        SWEEP,
        "forced=self._forced)\n        for warning",
        "forced=True)\n        for warning",
        "tests/backfills/test_passes.py::test_a_dead_pass_that_is_retried_after_another_has_completed_sweeps_nothing",
        SQLITE,
    ),
    Mutation(
        "passes: of two names of a backfill one pass at a time",
        SWEEP,
        "        if older < self._run.run_id:",
        "        if False:",
        "tests/backfills/test_passes.py::test_of_two_live_passes_under_two_names_the_older_goes_on_and_the_other_after_it",
        SQLITE,
    ),
    Mutation(
        "passes: the tables of a model's parents are taken too",
        SOURCE,
        "        models = (self.model, *self.model._meta.all_parents)\n",
        "        models = (self.model,)\n",
        "tests/backfills/test_passes.py::test_a_pass_takes_the_tables_of_its_models_parents_too",
        SQLITE,
    ),
    Mutation(
        "turns: the rate counts from the page of the attempt before",
        SWEEP,
        "            self._turns.resumed()\n",
        "            pass\n",
        "tests/backfills/test_turns.py::test_whoever_wakes_a_pass_does_not_make_it_quicker_than_its_rate",
        SQLITE,
    ),
    Mutation(
        "sweep: what is finished is not swept again",
        SWEEP,
        "        if cursor is not None and cursor.finished:",
        "        if False:",
        f"{BODIES}test_a_cursor_that_says_all_is_done_is_not_swept_again",
        SQLITE,
    ),
    Mutation(
        "sweep: a count is a whole number",
        SWEEP,
        "        count = -1 if isinstance(answer, bool) else operator.index(answer)",
        "        count = operator.index(answer)",
        f"{BODIES}test_a_count_that_is_none_ends_the_pass_and_it_has_not_completed[False]",
        SQLITE,
    ),
    Mutation(
        "sweep: a count is not below zero",
        SWEEP,
        "    if count < 0:\n",
        "    if False:\n",
        f"{BODIES}test_a_count_that_is_none_ends_the_pass_and_it_has_not_completed[-1]",
        SQLITE,
    ),
    Mutation(
        "sweep: rows that are left keep it from completing",
        SWEEP,
        "        if left:\n",
        "        if False:\n",
        f"{BODIES}test_rows_that_are_left_stall_the_pass_and_a_new_one_can_be_started[1]",
        SQLITE,
    ),
    Mutation(
        "passes: one live pass a name",
        "ultimat3_jobs/backfills/declare.py",
        "        if result.deduped:\n",
        "        if False:\n",
        f"{PASSES}test_of_two_passes_started_at_once_one_is_and_the_other_is_told_which",
        SQLITE,
    ),
    Mutation(
        "passes: one a table",
        SWEEP,
        "in self._rows.tables if self._backfill.exclusive else ():",
        "in ():",
        f"{PASSES}test_a_pass_waits_for_another_over_its_table_whatever_becomes_of_that[paused-done]",
        SQLITE,
    ),
    Mutation(
        "passes: one that need not be alone takes no table",
        SWEEP,
        "in self._rows.tables if self._backfill.exclusive else ():",
        "in self._rows.tables:",
        f"{PASSES}test_passes_that_need_not_be_alone_are_not_held_back[exclusive2]",
        SQLITE,
    ),
    *(
        Mutation(
            "passes: a table is freed by the end of whoever has it",
            f"ultimat3_jobs/sql/{vendor}/take_lease.sql",
            "    OR NOT EXISTS (",
            "    OR EXISTS (",
            f"{PASSES}test_a_table_that_several_reach_for_at_once_goes_to_one",
            (vendor,),
        )
        for vendor in BOTH
    ),
    *(
        Mutation(
            "passes: a pass that is parked keeps its table",
            f"ultimat3_jobs/sql/{vendor}/take_lease.sql",
            "'running', 'suspended')",
            "'running')",
            f"{PASSES}test_a_pass_waits_for_another_over_its_table_whatever_becomes_of_that[paused-done]",
            (vendor,),
        )
        for vendor in BOTH
    ),
)
