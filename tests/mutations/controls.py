"""Guards of what people do to a live pass, and of what they are told about passes."""

from __future__ import annotations

from tests.mutations.mutation import BOTH, POSTGRESQL, SQLITE, Mutation

CONTROLS = "ultimat3_jobs/backfills/controls.py"
TOLD = "ultimat3_jobs/inspection/passes.py"
LISTED = "ultimat3_jobs/inspection/backfills.py"
STEERING = "ultimat3_jobs/management/steering.py"
SQL = "ultimat3_jobs/sql"
STATES = "tests/backfills/test_controls.py::"
BESIDE = "tests/backfills/test_steered.py::"
INSPECTED = "tests/backfills/test_inspection.py::"
SHELL = "tests/backfills/test_steering.py::"
COMMANDED = "tests/backfills/test_command_lists.py::"
COMMAND = "tests/backfills/test_command.py::"
WAITED = "tests/backfills/test_command_wait.py::"
ADMIN = "ultimat3_jobs/admin/backfills.py"
ADMINISTERED = "tests/test_admin_backfills.py::"

MUTATIONS: tuple[Mutation, ...] = (
    *(
        Mutation(
            "controls: a run that read its controls before they were changed does not lie down with them",
            f"{SQL}/{vendor}/nack.sql",
            f"WHEN settled.kind = 'suspend' AND {column} > ''",
            "WHEN false",
            f"{BESIDE}test_a_resume_between_the_look_and_the_park_wakes_the_pass_at_once",
            (vendor,),
        )
        for vendor, column in (("postgresql", "j.park_reason"), ("sqlite", "x_jobs.park_reason"))
    ),
    *(
        Mutation(
            "controls: what is parked falls due",
            f"{SQL}/{vendor}/nudge.sql",
            old,
            "WHEN false THEN",
            f"{STATES}test_a_parked_pass_is_woken_by_any_control",
            (vendor,),
        )
        for vendor, old in (
            ("postgresql", "WHEN j.state || '' = 'suspended' AND (j.parks = 0 OR CAST(:known AS boolean)) THEN"),
            ("sqlite", "WHEN state = 'suspended' AND (parks = 0 OR :known) THEN"),
        )
    ),
    Mutation(
        "controls: a job of a name that no code knows is not woken",
        f"{SQL}/sqlite/nudge.sql",
        " AND (parks = 0 OR :known)",
        "",
        f"{STATES}test_a_pass_whose_code_is_gone_is_parked_for_that_and_not_woken",
        SQLITE,
    ),
    Mutation(
        "controls: a pass that has ended is not steered",
        CONTROLS,
        "            if not live or (not moved",
        "            if (not moved",
        f"{STATES}test_a_pass_that_has_ended_is_not_steered",
        SQLITE,
    ),
    *(
        Mutation(
            "controls: a pass that has completed is not paused, though its job has yet to be settled",
            f"{SQL}/{vendor}/pause_pass.sql",
            old,
            "",
            f"{BESIDE}test_a_control_after_the_end_is_refused_though_the_job_has_yet_to_be_settled",
            (vendor,),
        )
        for vendor, old in (("postgresql", " AND b.outcome = ''"), ("sqlite", " AND outcome = ''"))
    ),
    Mutation(
        "controls: a resume after the end is refused, not told that nothing was paused",
        CONTROLS,
        "otherwise is None or self._outcome(alias) == COMPLETED",
        "otherwise is None",
        f"{BESIDE}test_a_control_after_the_end_is_refused_though_the_job_has_yet_to_be_settled",
        SQLITE,
    ),
    Mutation(
        "controls: since when a pass is paused stays",
        f"{SQL}/postgresql/pause_pass.sql",
        "coalesce(b.paused_at, statement_timestamp())",
        "statement_timestamp()",
        f"{STATES}test_a_second_pause_says_anew_who_and_why_and_since_when_stays",
        POSTGRESQL,
    ),
    Mutation(
        "controls: who steered a pass is kept",
        CONTROLS,
        "            if moved:\n",
        "            if False:\n",
        f"{STATES}test_who_steered_a_pass_is_kept_in_its_jobs_history",
        SQLITE,
    ),
    Mutation(
        "controls: a pass is paused before it has begun",
        CONTROLS,
        "        ledger.open_pass(\n",
        "        (lambda *_, **__: None)(\n",
        f"{STATES}test_a_pass_is_paused_before_it_has_begun_and_its_row_says_what_it_will_be",
        SQLITE,
    ),
    Mutation(
        "controls: a window that is not named stays",
        CONTROLS,
        '        "with_window": window is not UNCHANGED,\n',
        '        "with_window": True,\n',
        f"{STATES}test_a_pace_changes_what_is_asked_for_and_nothing_else",
        BOTH,
    ),
    Mutation(
        "passes: none is at its whole before its end",
        TOLD,
        "min(MOST, 100 * row.processed // row.total)",
        "100 * row.processed // row.total",
        f"{INSPECTED}test_no_pass_is_beyond_its_whole_and_none_is_at_it_before_its_end",
        SQLITE,
    ),
    *(
        Mutation(
            "passes: the speed is that of the present run",
            f"{SQL}/{vendor}/progress_pass.sql",
            old,
            "WHEN false THEN",
            f"{INSPECTED}test_the_speed_is_that_of_the_present_run_and_pauses_are_not_in_it",
            (vendor,),
        )
        for vendor, old in (
            (
                "postgresql",
                "WHEN b.updated_at < (SELECT j.started_at FROM x_jobs AS j WHERE j.id = b.run_id) THEN",
            ),
            ("sqlite", "WHEN updated_at < (SELECT j.started_at FROM x_jobs AS j WHERE j.id = x_backfills.run_id) THEN"),
        )
    ),
    Mutation(
        "passes: a speed is told of what has landed in the run",
        TOLD,
        " or row.updated_at <= job.started_at",
        "",
        f"{INSPECTED}test_a_speed_is_told_of_what_has_landed_in_the_run",
        SQLITE,
    ),
    Mutation(
        "passes: a source that raises does not keep a pass from being told",
        TOLD,
        "    with suppress(JobsError):",
        "    with suppress(KeyError):",
        f"{INSPECTED}test_a_source_that_raises_does_not_keep_a_pass_from_being_told",
        SQLITE,
    ),
    Mutation(
        "passes: one that has not begun is listed",
        LISTED,
        "    if unbegun := [one for one in live if one not in begun]:\n",
        "    if unbegun := []:\n",
        f"{INSPECTED}test_a_list_goes_on_page_by_page_the_newest_first",
        SQLITE,
    ),
    Mutation(
        "passes: of two that began at once a list goes on behind the one that it ended with",
        LISTED,
        "Q(created_at__lt=began) | (Q(created_at=began) & by_id)",
        "Q(created_at__lt=began)",
        f"{INSPECTED}test_a_list_goes_on_page_by_page_the_newest_first",
        SQLITE,
    ),
    Mutation(
        "passes: the newest is the one that began last, and not the one with the last id",
        LISTED,
        "key=lambda one: (found[one], one), reverse=True",
        "reverse=True",
        f"{INSPECTED}test_the_newest_pass_is_the_one_that_began_last",
        SQLITE,
    ),
    Mutation(
        "passes: of many their jobs are read before the ledger",
        TOLD,
        "    jobs = Job.objects.using(alias).only(*_JOB).in_bulk(run_ids)\n"
        "    rows = Backfill.objects.using(alias).in_bulk(run_ids)\n",
        "    rows = Backfill.objects.using(alias).in_bulk(run_ids)\n"
        "    jobs = Job.objects.using(alias).only(*_JOB).in_bulk(run_ids)\n",
        f"{INSPECTED}test_a_pass_that_ends_while_it_is_looked_at_has_not_failed",
        SQLITE,
    ),
    Mutation(
        "passes: a new one after another that completed is forced",
        TOLD,
        "    return [replace(one, swept=True) if one.name in swept else one for one in reports]\n",
        "    return reports\n",
        f"{COMMANDED}test_what_is_told_of_a_backfill_does_not_hang_on_the_passes_that_are_listed",
        SQLITE,
    ),
    Mutation(
        "passes: one that has stalled is not retried",
        "ultimat3_jobs/backfills/passes.py",
        "    return error_class in _NEED_ANOTHER\n",
        "    return False\n",
        f"{COMMANDED}test_a_pass_that_has_stalled_is_followed_by_a_new_one_and_not_by_a_retry",
        SQLITE,
    ),
    Mutation(
        "controls: a pass that has stalled is not sent to a retry",
        CONTROLS,
        " and not needs_another_pass(error_class)",
        "",
        f"{COMMANDED}test_a_pass_that_has_stalled_is_followed_by_a_new_one_and_not_by_a_retry",
        SQLITE,
    ),
    Mutation(
        "repairs: a job whose pass has stalled is not sent to a retry",
        "ultimat3_jobs/inspection/repair.py",
        "    if needs_another_pass(job.error_class):\n",
        "    if False:\n",
        f"{COMMANDED}test_a_pass_that_has_stalled_is_followed_by_a_new_one_and_not_by_a_retry",
        SQLITE,
    ),
    Mutation(
        "preview: a sweep that goes on is not said to be skipped",
        "ultimat3_jobs/inspection/preview.py",
        "for name, kind in self.kept if kind != StepKind.CURSOR]",
        "for name, kind in self.kept]",
        f"{SHELL}test_a_preview_says_what_becomes_of_a_sweep",
        SQLITE,
    ),
    Mutation(
        "preview: a sweep that forgets its cursor is said to handle every row again",
        "ultimat3_jobs/inspection/preview.py",
        "return goes_on + anew",
        "return goes_on",
        f"{SHELL}test_a_preview_says_what_becomes_of_a_sweep",
        SQLITE,
    ),
    Mutation(
        "lists: the command is that of the newest pass, listed or not",
        LISTED,
        "[*listed, *(latest.run_id for *_, latest in chosen if latest is not None)]",
        "listed",
        f"{COMMANDED}test_a_list_as_json_and_its_filters",
        SQLITE,
    ),
    Mutation(
        "lists: what is not asked for takes no place",
        LISTED,
        "    listed = _newest({each for one, *_ in chosen for each in names_of(one)}, limit=",
        "    listed = _newest(None, limit=",
        f"{COMMANDED}test_what_is_told_of_a_backfill_does_not_hang_on_the_passes_that_are_listed",
        SQLITE,
    ),
    Mutation(
        "lists: where a backfill may not start nothing starts it",
        "ultimat3_jobs/inspection/backfill_lists.py",
        "    if declared is None or status is Status.EXCLUDED:\n",
        "    if declared is None:\n",
        f"{COMMANDED}test_a_backfill_that_may_not_start_here_is_given_no_command_that_starts_it",
        SQLITE,
    ),
    Mutation(
        "steering: a name that looks like an id is a name",
        STEERING,
        "    if live is not None:\n",
        "    if live is not None and id_range(text) is None:\n",
        f"{SHELL}test_a_name_that_looks_like_an_id_is_a_name",
        SQLITE,
    ),
    Mutation(
        "steering: a pace that changes nothing is refused",
        "ultimat3_jobs/management/commands/jobs.py",
        "        if steering.changes_nothing(options):\n",
        "        if False:\n",
        f"{SHELL}test_a_pace_that_is_none_is_refused",
        SQLITE,
    ),
    Mutation(
        "admin: who may look at passes may not steer them",
        "ultimat3_jobs/admin/backfills.py",
        '_PERMISSIONS.get(repair.verb, "pause_backfill")',
        '_PERMISSIONS.get(repair.verb, "view_backfill")',
        "tests/test_admin_backfills.py::test_who_may_look_may_not_steer",
        SQLITE,
    ),
    Mutation(
        "admin: who may look at passes may not start them",
        "ultimat3_jobs/admin/backfills.py",
        "if not self.has_view_permission(request) or not self.may_start(request):",
        "if not self.has_view_permission(request):",
        "tests/test_admin_backfills.py::test_who_may_look_may_not_steer",
        SQLITE,
    ),
    Mutation(
        "lists: a name means all names of its job",
        "ultimat3_jobs/inspection/lists.py",
        "registry.names_of(filters.name)",
        "(filters.name,)",
        f"{SHELL}test_a_pass_that_was_queued_under_a_former_name_is_cancelled_by_any",
        SQLITE,
    ),
    Mutation(
        "lists: a search for a name means all names of its job",
        "ultimat3_jobs/inspection/lists.py",
        "        for each in _under_all_names(replace(filters, **part))",
        "        for each in [replace(filters, **part)]",
        "tests/inspection/test_lists.py::test_a_search_for_a_name_finds_what_was_queued_under_the_others_of_its_job",
        SQLITE,
    ),
    Mutation(
        "repairs: an empty filter never means all",
        "ultimat3_jobs/management/commands/jobs.py",
        "            if not text.strip():\n",
        "            if False:\n",
        "tests/inspection/test_command.py::test_an_empty_filter_never_means_all_of_a_bulk_repair",
        SQLITE,
    ),
    Mutation(
        "steering: an empty name is the name of no backfill",
        STEERING,
        "list_passes(text).passes if text else []",
        "list_passes(text).passes",
        f"{SHELL}test_an_empty_name_steers_no_pass_that_happens_to_be_live",
        SQLITE,
    ),
    Mutation(
        "controls: a pass that has not begun is steered without its source",
        CONTROLS,
        '            table="",  #',
        "            table=declared.source().model._meta.db_table,  #",
        f"{STATES}test_a_control_asks_neither_the_source_nor_the_tenant_of_a_pass_that_has_not_begun",
        SQLITE,
    ),
    *(
        Mutation(
            "controls: a row that a control opened is told its table when the pass begins",
            f"{SQL}/{vendor}/open_pass.sql",
            """DO UPDATE SET "table" = excluded."table" WHERE x_backfills."table" = ''""",
            "DO NOTHING",
            f"{STATES}test_a_pass_is_paused_before_it_has_begun_and_its_row_says_what_it_will_be",
            (vendor,),
        )
        for vendor in BOTH
    ),
    Mutation(
        "lists: of a pass that has not completed the declaration has changed since it began",
        "ultimat3_jobs/inspection/backfill_texts.py",
        'return "it was swept" if one.status is PassStatus.COMPLETED else "it began"',
        'return "it was swept"',
        f"{COMMANDED}test_of_a_pass_that_has_not_completed_a_list_says_that_the_declaration_has_changed_since_it_began",
        SQLITE,
    ),
    Mutation(
        "lists: a tenant that cannot be told is told for its own backfill",
        LISTED,
        "    return [named_or_refused(job) for job, _ in declared_backfills()]",
        "    from ultimat3_jobs.backfills.passes import named\n\n    return [named(job) for job, _ in declared_backfills()]",
        f"{COMMANDED}test_a_tenant_that_cannot_be_told_is_told_for_its_own_backfill_and_holds_a_deploy",
        SQLITE,
    ),
    Mutation(
        "lists: without its tenant a live pass is found by its name",
        "ultimat3_jobs/backfills/passes.py",
        "            by_name.update(one.names)\n",
        "            pass\n",
        f"{COMMANDED}test_a_tenant_that_cannot_be_told_is_told_for_its_own_backfill_and_holds_a_deploy",
        SQLITE,
    ),
    Mutation(
        "pending: a tenant that cannot be told keeps a deploy back",
        LISTED,
        "one.without_tenant(refused[one.name]) if one.name in refused else one for one",
        "one for one",
        f"{COMMANDED}test_a_tenant_that_cannot_be_told_is_told_for_its_own_backfill_and_holds_a_deploy",
        SQLITE,
    ),
    Mutation(
        "passes: what the code for a tenant raises is a refusal that names the backfill",
        "ultimat3_jobs/backfills/passes.py",
        'ask(lambda: definition.tenant_of({"forced": False}), refuse=refuse)',
        'definition.tenant_of({"forced": False})',
        f"{COMMAND}test_a_tenant_that_cannot_be_told_is_a_refusal_that_names_the_backfill",
        SQLITE,
    ),
    Mutation(
        "command: a start asks for the tenant first",
        "ultimat3_jobs/backfills/plan.py",
        "    named(backfill.definition)  # a tenant",
        "    # a tenant",
        f"{COMMAND}test_a_tenant_that_cannot_be_told_is_a_refusal_that_names_the_backfill",
        SQLITE,
    ),
    Mutation(
        "command: whatever the code of one raises, the plan of all goes on",
        "ultimat3_jobs/management/commands/backfill.py",
        "asked(backfill, partial(make_plan, backfill))",
        "make_plan(backfill)",
        f"{COMMAND}test_whatever_the_code_of_one_raises_all_goes_on_with_the_others",
        SQLITE,
    ),
    Mutation(
        "command: whatever the code of one raises, the start of all goes on",
        "ultimat3_jobs/management/commands/backfill.py",
        "asked(backfill, partial(try_start, backfill, forced=False, by=who(COMMAND)))",
        "try_start(backfill, forced=False, by=who(COMMAND))",
        f"{COMMAND}test_whatever_the_code_of_one_raises_all_goes_on_with_the_others",
        SQLITE,
    ),
    Mutation(
        "command: of all, a pass that is live already is followed",
        "ultimat3_jobs/management/commands/backfill.py",
        "                if isinstance(started.refusal, BackfillRunning):\n",
        "                if False:\n",
        f"{WAITED}test_of_all_the_pass_that_is_live_already_is_followed_too",
        SQLITE,
    ),
    Mutation(
        "command: of all, what was refused is told beside what failed",
        "ultimat3_jobs/management/commands/backfill.py",
        "        self._end(endings, report_of, options, refusals)\n",
        "        self._end(endings, report_of, options)\n",
        f"{WAITED}test_of_all_a_live_pass_that_fails_is_an_exit_with_1_beside_what_was_refused",
        SQLITE,
    ),
    Mutation(
        "command: of all, a pass that is deleted does not end the waiting",
        "ultimat3_jobs/management/commands/backfill.py",
        "                refusals.append(error)\n",
        "                raise\n",
        f"{WAITED}test_of_all_a_pass_that_is_deleted_does_not_end_the_waiting_for_the_others",
        SQLITE,
    ),
    Mutation(
        "admin: the page of a start answers whatever its code raises",
        ADMIN,
        "                verdict = _asked(backfill, backfill.judged)\n",
        "                verdict = backfill.judged()\n",
        f"{ADMINISTERED}test_whatever_its_code_raises_a_start_answers_with_the_refusal",
        SQLITE,
    ),
    Mutation(
        "admin: a start answers whatever its code raises",
        ADMIN,
        "    return _asked(backfill, lambda: start(backfill, forced=forced, by=by))\n",
        "    return start(backfill, forced=forced, by=by)\n",
        f"{ADMINISTERED}test_whatever_its_code_raises_a_start_answers_with_the_refusal",
        SQLITE,
    ),
    Mutation(
        "admin: a query that fails in the code of a backfill does not spoil the page",
        ADMIN,
        "            with transaction.atomic(using=queue_alias()):  # or",
        "            if True:  # or",
        f"{ADMINISTERED}test_whatever_its_code_raises_a_start_answers_with_the_refusal",
        POSTGRESQL,
    ),
)
