"""Guards of backfills: who may start one, and what a deploy waits for."""

from __future__ import annotations

from tests.mutations.mutation import BOTH, POSTGRESQL, SQLITE, Mutation

GATE = "ultimat3_jobs/backfills/gate.py"
CHECKSUM = "ultimat3_jobs/backfills/checksum.py"
PENDING = "ultimat3_jobs/backfills/pending.py"
FACTS = "ultimat3_jobs/backfills/facts.py"
PASSES = "ultimat3_jobs/backfills/passes.py"
OPERATION = "ultimat3_jobs/operations.py"
JUDGED = "tests/backfills/test_gate.py::"
SUMMED = "tests/backfills/test_checksum.py::"
READ = "tests/backfills/test_facts.py::"
REQUIRED = "tests/backfills/test_require_backfill.py::"
STANDING = "tests/backfills/test_pending.py::"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "gate: an environment without a name is refused",
        GATE,
        "    if meant is None or facts.environment in meant:",
        "    if meant is None or not facts.environment or facts.environment in meant:",
        f"{JUDGED}test_another_environment_is_refused_and_so_is_one_without_a_name",
        SQLITE,
    ),
    Mutation(
        "gate: the environment comes before the migration",
        GATE,
        "        _environment(definition, facts)\n        or _migration(definition, facts)\n",
        "        _migration(definition, facts)\n        or _environment(definition, facts)\n",
        f"{JUDGED}test_refusals_come_in_one_order",
        SQLITE,
    ),
    Mutation(
        "gate: force does not start a second live pass",
        GATE,
        "        or _running(definition, facts, own_run)\n        or _applied(definition, facts, forced=forced)\n",
        "        or (None if forced else _running(definition, facts, own_run))\n        or _applied(definition, facts, forced=forced)\n",
        f"{JUDGED}test_force_is_for_what_has_been_swept_and_for_nothing_else",
        SQLITE,
    ),
    Mutation(
        "gate: a pass does not stand in its own way",
        GATE,
        "    if facts.live_run is None or facts.live_run == own_run:",
        "    if facts.live_run is None:",
        f"{JUDGED}test_a_pass_does_not_stand_in_its_own_way",
        SQLITE,
    ),
    Mutation(
        "gate: a checksum that cannot be had says nothing",
        GATE,
        "not swept.checksum or not facts.checksum or ",
        "",
        f"{JUDGED}test_a_declaration_that_has_changed_warns_and_does_not_run_again_by_itself",
        SQLITE,
    ),
    Mutation(
        "gate: a fix names the database of the rows",
        "ultimat3_jobs/backfills/commands.py",
        '*(() if alias == DEFAULT_ALIAS else ("--database", alias))',
        "*()",
        f"{JUDGED}test_a_fix_that_is_a_command_is_one_line_whose_words_are_what_they_are",
        SQLITE,
    ),
    Mutation(
        "gate: names are quoted for the shell",
        "ultimat3_jobs/text.py",
        "{shlex.join(words)}",
        "{' '.join(words)}",
        f"{JUDGED}test_a_fix_that_is_a_command_is_one_line_whose_words_are_what_they_are",
        SQLITE,
    ),
    Mutation(
        "pending: a completed pass makes the name completed whatever follows",
        PENDING,
        "    if completed is not None:",
        "    if completed is not None and completed is latest:",
        f"{STANDING}test_a_newer_pass_wins_but_what_completed_stays_completed",
        SQLITE,
    ),
    Mutation(
        "pending: a job that ended without a completed pass has completed nothing",
        PENDING,
        "        return PassStatus.SKIPPED\n",
        "        return PassStatus.COMPLETED\n",
        f"{STANDING}test_the_status_of_a_pass_is_its_jobs_to_say_unless_it_completed",
        SQLITE,
    ),
    Mutation(
        "pending: a deploy waits where nobody says which environment this is",
        PENDING,
        ", Status.CANCELLED, Status.UNKNOWN_ENVIRONMENT})",
        ", Status.CANCELLED})",
        f"{STANDING}test_what_keeps_a_deploy_back",
        SQLITE,
    ),
    Mutation(
        "checksum: decorators and their options are not in it",
        CHECKSUM,
        "    found.decorator_list = []\n",
        "",
        f"{SUMMED}test_how_it_is_written_down_is_not_in_it",
        SQLITE,
    ),
    Mutation(
        "checksum: docstrings are not in it",
        CHECKSUM,
        "    return body[1:] if is_text else body\n",
        "    return body\n",
        f"{SUMMED}test_how_it_is_written_down_is_not_in_it",
        SQLITE,
    ),
    Mutation(
        "checksum: what only some versions of Python have is not in it",
        CHECKSUM,
        'value in (None, [], "")',
        "value is None",
        f"{SUMMED}test_every_supported_python_gives_the_checksum_that_is_written_down",
        SQLITE,
    ),
    Mutation(
        "checksum: dates and times count as their type on a database that has none",
        CHECKSUM,
        "    _keep_moments(connection)\n",
        "",
        f"{SUMMED}test_filters_that_are_alike",
        SQLITE,
    ),
    Mutation(
        "checksum: a set has no order",
        CHECKSUM,
        "        values[start:end] = sorted(values[start:end])\n",
        "        pass\n",
        f"{SUMMED}test_a_set_gives_one_checksum_in_every_process",
        SQLITE,
    ),
    Mutation(
        "checksum: the columns of the model are not in it",
        CHECKSUM,
        'queryset.values("pk").query',
        "queryset.query",
        f"{SUMMED}test_filters_that_are_alike",
        SQLITE,
    ),
    Mutation(
        "facts: a squashed migration is applied where all that it replaces are",
        FACTS,
        "    if migration in loader.applied_migrations:\n        return True\n",
        "",
        f"{READ}test_a_squashed_migration_is_applied_where_all_that_it_replaces_are",
        SQLITE,
    ),
    Mutation(
        "facts: what is applied is found without loading all migrations",
        FACTS,
        "        if recorder.migration_qs.filter(",
        "        if False and recorder.migration_qs.filter(",
        f"{READ}test_what_is_applied_is_found_without_loading_all_migrations",
        SQLITE,
    ),
    Mutation(
        "facts: a table that is not there does not break the caller's transaction",
        FACTS,
        "    with suppress(DatabaseError), transaction.atomic(using=alias):\n",
        "    with suppress(DatabaseError):\n",
        f"{READ}test_where_nothing_was_ever_migrated_nothing_is_applied_and_a_transaction_goes_on",
        POSTGRESQL,
    ),
    Mutation(
        "facts: a migration that is none is told of",
        FACTS,
        "    if migration not in loader.disk_migrations and migration not in replaced:",
        "    if False:",
        f"{READ}test_a_migration_that_is_none_is_told_of_with_what_may_be_meant",
        SQLITE,
    ),
    Mutation(
        "facts: another live pass is told of before one's own",
        FACTS,
        "(one for one in live if one != own_run)",
        "(one for one in live if one == own_run)",
        f"{READ}test_a_pass_under_a_former_name_is_live_and_completed_too",
        SQLITE,
    ),
    *(
        Mutation(
            "facts: a done job that holds its key is not live",
            f"ultimat3_jobs/sql/{vendor}/live_passes.sql",
            old,
            "",
            f"{READ}test_a_pass_is_live_while_its_job_is",
            (vendor,),
        )
        for vendor, old in (
            ("sqlite", "\n    AND j.state IN ('ready', 'delayed', 'running', 'suspended')"),
            ("postgresql", "\n        AND x.state || '' IN ('ready', 'delayed', 'running', 'suspended')"),
        )
    ),
    Mutation(
        "passes: what completed last is that which began last",
        PASSES,
        '.order_by("-created_at", "-run_id")',
        '.order_by("-run_id")',
        "tests/backfills/test_inspection.py::test_the_newest_pass_is_the_one_that_began_last",
        SQLITE,
    ),
    *(
        Mutation(
            f"passes: {what} ({vendor})",
            f"ultimat3_jobs/sql/{vendor}/newest_passes.sql",
            old,
            new,
            "tests/backfills/test_inspection.py::test_of_a_ledger_no_more_is_read_than_what_statuses_are_made_of",
            (vendor,),
        )
        for what, vendor, old, new in (
            ("the newest that completed is read", "postgresql", " AND b.outcome || '' > ''", ""),
            ("the newest that completed is read", "sqlite", " AND b.outcome = 'completed'", ""),
            ("one that is live is read, newest or not", "postgresql", "b.run_id = r.run_id LIMIT 1", "false LIMIT 1"),
            (
                "one that is live is read, newest or not",
                "sqlite",
                "FROM json_each(:rows) AS r",
                "FROM json_each(:rows) AS r WHERE false",
            ),
        )
    ),
    Mutation(
        "passes: one that has no row in the ledger yet is running",
        PASSES,
        "    return [*first, *begun.values()]\n",
        "    return [*begun.values()]\n",
        f"{READ}test_a_pass_that_waits_for_its_first_worker_is_running_without_a_row",
        SQLITE,
    ),
    Mutation(
        "require: a pass that has not completed does not count",
        OPERATION,
        "filter(name__in=names, outcome=COMPLETED)",
        "filter(name__in=names)",
        f"{REQUIRED}test_without_a_completed_pass_it_is_refused",
        SQLITE,
    ),
    Mutation(
        "require: a pass under another of its names counts",
        OPERATION,
        "*(() if declared is None else (declared.name, *declared.aliases))",
        "",
        f"{REQUIRED}test_a_pass_under_another_name_of_the_backfill_counts",
        SQLITE,
    ),
    Mutation(
        "require: rows that are left after a completed pass keep it back",
        OPERATION,
        "        if completed and not left.exists():",
        "        if completed:",
        f"{REQUIRED}test_with_rows_left_after_a_completed_pass_it_is_refused",
        SQLITE,
    ),
    Mutation(
        "require: no row left without a completed pass keeps it back",
        OPERATION,
        "        if completed and not left.exists():",
        "        if not left.exists():",
        f"{REQUIRED}test_without_a_completed_pass_it_is_refused",
        SQLITE,
    ),
    Mutation(
        "require: what is told of the rows that are left holds",
        OPERATION,
        "{'and' if number else 'although'}",
        "and",
        f"{REQUIRED}test_without_a_completed_pass_it_is_refused",
        SQLITE,
    ),
    Mutation(
        "require: a model without rows passes",
        OPERATION,
        "        if not everything.exists():\n            return\n",
        "",
        "tests/backfills/test_migrate.py::test_a_fresh_database_goes_through_before_our_tables_are_there_and_squashed_too",
        BOTH,
    ),
    Mutation(
        "require: a manager that hides rows fools nobody",
        OPERATION,
        "models.QuerySet(model=model, using=alias).order_by()",
        "model._base_manager.using(alias).order_by()",
        f"{REQUIRED}test_a_manager_that_hides_rows_fools_nobody",
        SQLITE,
    ),
    Mutation(
        "require: it is for the databases that have the model",
        OPERATION,
        "        if not router.allow_migrate_model(alias, model._meta.concrete_model or model):\n            return\n",
        "",
        f"{REQUIRED}test_it_is_for_the_databases_that_have_the_model",
        SQLITE,
    ),
    Mutation(
        "require: no kind of model is passed over",
        OPERATION,
        "        if not router.allow_migrate_model(alias, model._meta.concrete_model or model):",
        "        if not self.allow_migrate_model(alias, model):",
        f"{REQUIRED}test_no_kind_of_model_is_passed_over",
        SQLITE,
    ),
    Mutation(
        "require: what is left is counted up to a bound",
        OPERATION,
        '        number = left.values("pk")[: MOST_COUNTED + 1].count()',
        "        number = left.count()",
        f"{REQUIRED}test_what_is_left_is_counted_up_to_a_bound",
        SQLITE,
    ),
    Mutation(
        "require: a ledger that is not there is told of",
        OPERATION,
        "        if table not in connection.introspection.table_names():",
        "        if False:",
        "tests/backfills/test_migrate.py::test_a_contract_migration_waits_for_its_backfill",
        SQLITE,
    ),
)
