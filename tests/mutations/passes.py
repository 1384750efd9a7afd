"""Guards of the command for backfills, of what it tries and follows, and of what says that workers are alive."""

from __future__ import annotations

from tests.mutations.mutation import POSTGRESQL, SQLITE, Mutation

COMMAND = "ultimat3_jobs/management/commands/backfill.py"
PLAN = "ultimat3_jobs/backfills/plan.py"
TRIAL = "ultimat3_jobs/backfills/trial.py"
FOLLOWING = "ultimat3_jobs/management/following.py"
REHEARSAL = "ultimat3_jobs/inspection/rehearsal.py"
REPORTS = "ultimat3_jobs/inspection/passes.py"
PRESENCE = "ultimat3_jobs/worker/presence.py"
WORKERS = "ultimat3_jobs/inspection/workers.py"
COMMANDED = "tests/backfills/test_command.py::"
TRIED = "tests/backfills/test_command_try.py::"
LISTED = "tests/backfills/test_command_lists.py::"
WAITED = "tests/backfills/test_command_wait.py::"
PRESENT = "tests/worker/test_presence.py::"
SWEEP = "ultimat3_jobs/backfills/sweep.py"
REPAIR = "ultimat3_jobs/inspection/repair.py"
CHANGED = "tests/backfills/test_changed_source.py::"
TWO_NAMES = "tests/backfills/test_two_names.py::"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "backfill: without --write nothing is started",
        COMMAND,
        '        if options["write"]:\n            self._write(backfill, options)\n',
        "        if True:\n            self._write(backfill, options)\n",
        f"{COMMANDED}test_a_name_alone_says_what_a_pass_would_do_and_writes_nothing",
        SQLITE,
    ),
    Mutation(
        "backfill: an option of another form is refused",
        COMMAND,
        "            if options[one] not in (None, False):\n",
        "            if False:\n",
        f"{COMMANDED}test_options_that_make_no_sense_together_are_refused",
        SQLITE,
    ),
    Mutation(
        "backfill: one form at a time",
        COMMAND,
        "        if len(given) != 1:\n",
        "        if not given:\n",
        f"{COMMANDED}test_options_that_make_no_sense_together_are_refused",
        SQLITE,
    ),
    Mutation(
        "backfill: --force goes with --write",
        COMMAND,
        '        if options["force"] and not options["write"]:\n',
        "        if False:\n",
        f"{COMMANDED}test_options_that_make_no_sense_together_are_refused",
        SQLITE,
    ),
    Mutation(
        "backfill: an environment without a name is no quiet refusal",
        COMMAND,
        "        return bool(get_settings().environment)\n",
        "        return True\n",
        f"{COMMANDED}test_all_fails_where_nobody_says_which_environment_this_is",
        SQLITE,
    ),
    Mutation(
        "backfill: of all, what is swept is no failure",
        COMMAND,
        "isinstance(refusal, BackfillApplied | BackfillRunning)",
        "isinstance(refusal, BackfillRunning)",
        f"{COMMANDED}test_all_with_write_succeeds_where_nothing_was_left_to_start",
        SQLITE,
    ),
    Mutation(
        "backfill: --pending exits with 1",
        COMMAND,
        "        if found.unswept:\n",
        "        if False:\n",
        f"{LISTED}test_a_deploy_is_held_by_what_is_unswept_alone",
        SQLITE,
    ),
    Mutation(
        "plan: nothing is counted before the migration",
        PLAN,
        "reach=None if isinstance(verdict.error, BackfillMigrationPending) else _reach(",
        "reach=_reach(",
        f"{COMMANDED}test_a_plan_counts_nothing_before_its_migration_is_applied",
        SQLITE,
    ),
    Mutation(
        "plan: a page that scans the table is warned of",
        PLAN,
        'any(node["Node Type"] == "Seq Scan" and',
        "any(False and",
        f"{COMMANDED}test_a_page_that_looks_at_the_whole_table_is_warned_of",
        POSTGRESQL,
    ),
    Mutation(
        "plan: in the surroundings of the tenant",
        PLAN,
        "    return as_tenant(tenant, lambda: _plan(backfill, tenant))\n",
        "    return _plan(backfill, tenant)\n",
        f"{COMMANDED}test_the_plan_is_made_for_the_tenant",
        SQLITE,
    ),
    Mutation(
        "start: by a person, whatever the mode of the outbox",
        "ultimat3_jobs/backfills/plan.py",
        'lambda: queue_at_once(request, on_conflict="join")',
        "backfill.on_behalf_of(by).call(forced=forced).enqueue",
        f"{COMMANDED}test_a_person_starts_a_pass_whatever_the_mode_of_the_outbox",
        SQLITE,
    ),
    Mutation(
        "start: by two at once, one is told of the other",
        "ultimat3_jobs/backfills/declare.py",
        "        if result.deduped:\n",
        "        if False:\n",
        f"{COMMANDED}test_of_two_who_start_a_pass_at_once_one_is_told_of_the_other",
        SQLITE,
    ),
    Mutation(
        "start: on SQLite a transaction that is to write waits for its turn before it reads",
        "ultimat3_jobs/backfills/plan.py",
        "        get_driver().take_turn()\n",
        "        pass\n",
        f"{COMMANDED}test_in_a_transaction_a_pass_is_queued_with_it_and_the_first_statement_takes_its_turn",
        SQLITE,
    ),
    Mutation(
        "try: rows that cannot be read are a refusal that names the backfill",
        TRIAL,
        "    with readable(declared, rows):\n        page",
        "    if True:\n        page",
        f"{TRIED}test_rows_that_cannot_be_read_are_a_refusal_that_names_the_backfill",
        SQLITE,
    ),
    Mutation(
        "try: nothing before the migration that it requires",
        TRIAL,
        "    if verdict.error is not None:\n",
        "    if False:\n",
        f"{TRIED}test_nothing_is_tried_before_the_migration_that_it_requires",
        SQLITE,
    ),
    Mutation(
        "try: another environment is warned of",
        "ultimat3_jobs/backfills/gate.py",
        "() if elsewhere is None else (elsewhere.cause,)",
        "()",
        f"{TRIED}test_it_is_tried_in_another_environment_with_a_warning",
        SQLITE,
    ),
    Mutation(
        "try: a write elsewhere is mended by what a pass would not refuse",
        TRIAL,
        "        if rows.in_one\n",
        "        if False\n",
        f"{TRIED}test_writes_to_another_database_are_refused",
        SQLITE,
    ),
    Mutation(
        "try: what was written is rolled back",
        TRIAL,
        "                raise _Enough",
        "                return tried",
        f"{TRIED}test_nothing_stays_of_what_was_tried",
        SQLITE,
    ),
    Mutation(
        "try: the transaction cannot be ended from within",
        TRIAL,
        "                kept_whole(rows.alias, refuse=lambda: _broken(declared)),\n",
        "",
        f"{TRIED}test_a_handler_that_ends_the_transaction_is_refused",
        SQLITE,
    ),
    Mutation(
        "try: nothing is written elsewhere",
        TRIAL,
        "                written_alone(rows.alias, refuse=lambda other: _elsewhere(declared, rows, other)),\n",
        "",
        f"{TRIED}test_writes_to_another_database_are_refused",
        SQLITE,
    ),
    Mutation(
        "try: constraints that wait for the commit are asked",
        TRIAL,
        '        if connections[rows.alias].vendor == "postgresql":\n',
        "        if False:\n",
        f"{TRIED}test_what_the_commit_would_refuse_is_told",
        POSTGRESQL,
    ),
    Mutation(
        "try: secrets are masked",
        REHEARSAL,
        "    if value is not None and is_secret(name):\n",
        "    if False:\n",
        f"{TRIED}test_values_are_bounded_and_secrets_are_masked",
        SQLITE,
    ),
    Mutation(
        "try: a terminal is given nothing that it would obey",
        REHEARSAL,
        "    text = printable(repr(masked(value)))\n",
        "    text = str(masked(value))\n",
        f"{TRIED}test_rows_are_shown_as_text_with_those_that_would_go_and_those_that_would_stay",
        SQLITE,
    ),
    Mutation(
        "wait: that nobody serves the queue is said once",
        FOLLOWING,
        "        if is_alone and not self._is_alone:\n",
        "        if is_alone:\n",
        f"{WAITED}test_that_no_worker_serves_the_queue_is_said_once_with_the_command_that_starts_one",
        SQLITE,
    ),
    Mutation(
        "wait: that nobody serves the queue is said beside the JSON",
        COMMAND,
        "Screen(self.print_aside, None, only_notices=True)",
        "Screen(lambda text: None, None, only_notices=True)",
        f"{WAITED}test_that_no_worker_serves_the_queue_is_said_beside_the_json",
        SQLITE,
    ),
    Mutation(
        "wait: a database that is away is asked again",
        FOLLOWING,
        "        except DatabaseError as error:\n",
        "        except ZeroDivisionError as error:\n",
        f"{WAITED}test_a_database_that_is_away_for_a_while_is_asked_again",
        SQLITE,
    ),
    Mutation(
        "wait: a pass that did not complete is an exit with 1",
        COMMAND,
        "        if failed:\n",
        "        if False:\n",
        f"{WAITED}test_of_all_one_that_fails_is_an_exit_with_1",
        SQLITE,
    ),
    Mutation(
        "wait: left with Ctrl-C it ends with a status of its own",
        COMMAND,
        "        sys.exit(DETACHED)\n",
        "        sys.exit(1)\n",
        f"{WAITED}test_ctrl_c_as_json",
        SQLITE,
    ),
    Mutation(
        "passes: the job is read before the ledger",
        REPORTS,
        "    job = Job.objects.using(alias).filter(pk=run_id).first()\n"
        "    row = Backfill.objects.using(alias).filter(pk=run_id).first()\n    if",
        "    row = Backfill.objects.using(alias).filter(pk=run_id).first()\n"
        "    job = Job.objects.using(alias).filter(pk=run_id).first()\n    if",
        "tests/backfills/test_inspection.py::test_a_pass_that_ends_while_it_is_looked_at_has_not_failed",
        SQLITE,
    ),
    Mutation(
        "presence: a write that fails is a warning",
        PRESENCE,
        "        except Exception as error:\n",
        "        except ZeroDivisionError as error:\n",
        f"{PRESENT}test_what_cannot_be_written_is_a_warning_and_is_tried_again",
        SQLITE,
    ),
    Mutation(
        "presence: removed on the way down",
        "ultimat3_jobs/loops.py",
        "            self._last()\n",
        "            pass\n",
        f"{PRESENT}test_a_worker_is_alive_while_it_works_and_no_longer",
        SQLITE,
    ),
    Mutation(
        "presence: it waits for a body that keeps all writers waiting",
        PRESENCE,
        "        if due and not self._waits():\n",
        "        if due:\n",
        f"{PRESENT}test_it_waits_where_a_body_of_the_process_keeps_all_writers_waiting",
        SQLITE,
    ),
    *(
        Mutation(
            f"presence: those that live are not forgotten ({vendor})",
            f"ultimat3_jobs/sql/{vendor}/forget_worker.sql",
            old,
            "",
            f"{PRESENT}test_a_worker_that_went_silent_is_not_alive_and_is_forgotten_by_the_next",
            (vendor,),
        )
        for vendor, old in (
            ("postgresql", " AND w.expires_at < statement_timestamp()"),
            ("sqlite", " AND expires_at < strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'"),
        )
    ),
    Mutation(
        "presence: a worker that went silent is not alive",
        WORKERS,
        'filter(kind="worker", expires_at__gt=parse_instant(now))',
        'filter(kind="worker")',
        f"{PRESENT}test_a_worker_that_went_silent_is_not_alive_and_is_forgotten_by_the_next",
        SQLITE,
    ),
    Mutation(
        "two names: whoever sweeps has all names of its backfill",
        SWEEP,
        "        self._take_names()\n",
        "",
        f"{TWO_NAMES}test_a_pass_that_sweeps_is_not_joined_by_an_older_one_of_its_backfill[False]",
        SQLITE,
    ),
    Mutation(
        "two names: each of them is taken, the one that older code knows too",
        SWEEP,
        "        for name in self._names:\n",
        "        for name in self._names[:1]:\n",
        f"{TWO_NAMES}test_a_name_that_older_code_has_taken_is_waited_for_and_nothing_else_is_kept",
        SQLITE,
    ),
    Mutation(
        "two names: whoever gives way keeps no table",
        SWEEP,
        "            tables=self._rows.tables,\n",
        "            tables=(),\n",
        f"{TWO_NAMES}test_two_passes_that_waited_for_one_another_both_end[younger-True]",
        SQLITE,
    ),
    Mutation(
        "two names: whoever gives way keeps no name",
        SWEEP,
        "            names=self._names,\n",
        "            names=(),\n",
        f"{TWO_NAMES}test_who_waits_for_a_table_keeps_none_of_its_names",
        SQLITE,
    ),
    *(
        Mutation(
            "two names: a worker that comes back late lets go of nothing",
            f"ultimat3_jobs/sql/{vendor}/let_go.sql",
            old,
            "",
            f"{TWO_NAMES}test_a_worker_that_comes_back_late_frees_nothing_of_the_next_attempt",
            (vendor,),
        )
        for vendor, old in (
            ("postgresql", " AND j.claim_token = CAST(:token AS uuid)"),
            ("sqlite", " AND j.claim_token = :token"),
        )
    ),
    Mutation(
        "retry: a dead pass stays dead while another of its backfill is live",
        REPAIR,
        "        held |= {} if live is None else dict.fromkeys(passes, live)\n",
        "",
        f"{TWO_NAMES}test_a_dead_pass_is_not_retried_while_another_of_its_backfill_is_live[None]",
        SQLITE,
    ),
    Mutation(
        "retry: of several dead passes of a backfill the newest starts",
        REPAIR,
        "        later |= set() if live is not None else set(passes[1:])\n",
        "",
        f"{TWO_NAMES}test_of_the_dead_passes_of_a_backfill_a_bulk_retry_starts_the_newest[older first]",
        SQLITE,
    ),
    Mutation(
        "retry: a pass is refused by what is live, not by what could not be started",
        REPAIR,
        "    following = [one for one in ids if one in later]\n",
        "    following = []\n    held |= dict.fromkeys(later, ids[0])\n",
        f"{TWO_NAMES}test_of_two_dead_passes_the_older_is_retried_where_the_newer_lacks_the_step",
        SQLITE,
    ),
    Mutation(
        "changed source: a pass over another table ends",
        SWEEP,
        "        if not cursor.table or begun == now:\n",
        "        if True:\n",
        f"{CHANGED}test_a_pass_whose_source_gives_another_table_ends_and_says_what_starts_another",
        SQLITE,
    ),
    Mutation(
        "changed source: a table of another database is another one",
        SWEEP,
        "        if not cursor.table or begun == now:\n",
        "        if not cursor.table or begun[0] == now[0]:\n",
        f"{CHANGED}test_a_pass_whose_source_gives_the_same_table_of_another_database_ends_too",
        SQLITE,
    ),
    Mutation(
        "changed source: the cursors of earlier releases know no table",
        SWEEP,
        "        if not cursor.table or begun == now:\n",
        "        if begun == now:\n",
        f"{CHANGED}test_a_cursor_that_knows_no_table_goes_on_as_it_did",
        SQLITE,
    ),
    Mutation(
        "changed source: another filter is told of",
        SWEEP,
        "            self._warn_of_changes(cursor)\n",
        "",
        f"{CHANGED}test_a_pass_that_goes_on_by_another_filter_says_so_once_an_attempt",
        SQLITE,
    ),
    Mutation(
        "changed source: of a cursor without a checksum nothing is told",
        SWEEP,
        "        if cursor.checksum and self._checksum and cursor.checksum != self._checksum:\n",
        "        if cursor.checksum != self._checksum:\n",
        f"{CHANGED}test_a_pass_that_has_missed_nothing_is_not_warned_of[the record has no checksum]",
        SQLITE,
    ),
    Mutation(
        "changed source: a row that is opened anew has what the pass began with",
        SWEEP,
        "checksum=cursor.checksum or self._checksum)",
        "checksum=self._checksum)",
        f"{CHANGED}test_a_row_that_is_opened_anew_has_what_the_pass_began_with",
        SQLITE,
    ),
)
