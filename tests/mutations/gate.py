"""Guards of backfills: who may start one, and what a deploy waits for."""

from __future__ import annotations

from tests.mutations.mutation import SQLITE, Mutation

GATE = "ultimat3_jobs/backfills/gate.py"
CHECKSUM = "ultimat3_jobs/backfills/checksum.py"
PENDING = "ultimat3_jobs/backfills/pending.py"
JUDGED = "tests/backfills/test_gate.py::"
SUMMED = "tests/backfills/test_checksum.py::"
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
        GATE,
        '    database = () if facts.alias == DEFAULT_ALIAS else ("--database", facts.alias)',
        "    database = ()",
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
        "pending: a job that ended without a completed pass has failed",
        PENDING,
        "    return PassStatus.FAILED\n",
        "    return PassStatus.COMPLETED if job_state == State.DONE else PassStatus.FAILED\n",
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
        '"kind", "type_comment"})',
        '"type_comment"})',
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
)
