"""The guards of what proves steps: the fence of their records, conflicts in atomic ones, and deaths in tests."""

from __future__ import annotations

from tests.mutations.mutation import POSTGRESQL, SQLITE, Mutation

FAULTS = "tests/worker/test_step_faults.py::"
RULES = "tests/drivers/test_database.py::TestSteps::"
CRASHES = "tests/testing/test_crashes.py::"
STEPS = "ultimat3_jobs/steps/steps.py"
FENCED = "ultimat3_jobs/transactions.py"
DEATHS = "ultimat3_jobs/testing/deaths.py"
CRASHING = "ultimat3_jobs/testing/crashes.py"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "proving: a step's record is fenced on the token",
        "ultimat3_jobs/sql/postgresql/record_step.sql",
        "j.claim_token = CAST(:token AS uuid)",
        "(j.claim_token = CAST(:token AS uuid) OR true)",
        f"{RULES}test_who_lost_the_claim_records_nothing",
        POSTGRESQL,
    ),
    Mutation(
        "proving: a step's record is fenced on the token",
        "ultimat3_jobs/sql/sqlite/record_step.sql",
        "j.claim_token = :token",
        "(j.claim_token = :token OR true)",
        f"{RULES}test_who_lost_the_claim_records_nothing",
        SQLITE,
    ),
    Mutation(
        "proving: a step's record keeps its job from being taken before the commit",
        "ultimat3_jobs/sql/postgresql/record_step.sql",
        "    FOR SHARE\n",
        "",
        f"{FAULTS}test_the_record_of_a_step_waits_for_whoever_takes_the_job_away_and_is_refused",
        POSTGRESQL,
    ),
    Mutation(
        "proving: conflicts alone are begun again",
        STEPS,
        "if not left or sqlstate(error) not in AGAIN:",
        "if not left:",
        f"{FAULTS}test_an_atomic_step_is_begun_again_for_a_conflict_alone_and_not_for_ever[55P03-1]",
        POSTGRESQL,
    ),
    Mutation(
        "proving: a deadlock is no result of a step",
        "ultimat3_jobs/sqlstates.py",
        "AGAIN = (SERIALIZATION_FAILURE, DEADLOCK)",
        "AGAIN = (SERIALIZATION_FAILURE,)",
        f"{FAULTS}test_a_deadlock_in_an_atomic_step_is_no_result_of_it",
        POSTGRESQL,
    ),
    Mutation(
        "proving: a serialisation failure is no result of a step",
        "ultimat3_jobs/sqlstates.py",
        "AGAIN = (SERIALIZATION_FAILURE, DEADLOCK)",
        "AGAIN = (DEADLOCK,)",
        f"{FAULTS}test_a_serialisation_failure_in_an_atomic_step_is_no_result_of_it",
        POSTGRESQL,
    ),
    Mutation(
        "proving: a run whose connection was replaced begins again",
        STEPS,
        "        if one.replaced:\n",
        "        if False:\n",
        f"{FAULTS}test_a_connection_that_is_cut_at_the_commit_of_a_step_costs_no_attempt_and_no_second_call",
        POSTGRESQL,
    ),
    Mutation(
        "proving: a connection that Django opened anew is another one",
        FENCED,
        "            self.replaced = connection.connection is not self._mark.session\n",
        "            self.replaced = connection.connection is None\n",
        f"{FAULTS}test_a_connection_that_is_cut_at_the_commit_of_a_step_costs_no_attempt_and_no_second_call",
        POSTGRESQL,
    ),
    Mutation(
        "proving: the commit of a step is looked up by its record",
        STEPS,
        "is_committed=lambda: self.driver.recorded(self.job.claim, begun.name)",
        "is_committed=lambda: False",
        f"{FAULTS}test_the_commit_of_an_atomic_step_whose_answer_is_lost_is_recognised[True]",
        SQLITE,
    ),
    Mutation(
        "proving: an atomic step writes to one database",
        FENCED,
        '        if not only_reads(sql, nested=other.vendor == "postgresql", session=other.connection):\n',
        "        if False:\n",
        f"{FAULTS}test_an_atomic_step_writes_to_no_other_database",
        SQLITE,
    ),
    Mutation(
        "proving: the dead send no statement",
        DEATHS,
        "            return execute(sql, params, many, context)\n        raise Died\n",
        "            return execute(sql, params, many, context)\n        return execute(sql, params, many, context)\n",
        f"{CRASHES}test_what_a_dead_body_still_does_reaches_no_database",
        SQLITE,
    ),
    Mutation(
        "proving: the dead leave nothing to a commit",
        DEATHS,
        "        self._life.forget_later_hooks()\n",
        "",
        f"{CRASHES}test_what_a_dead_body_still_does_reaches_no_database",
        SQLITE,
    ),
    Mutation(
        "proving: who swallowed its death is dead",
        DEATHS,
        "        if self.dead:\n",
        "        if False:\n",
        f"{CRASHES}test_a_body_that_keeps_its_death_to_itself_is_dead_all_the_same",
        SQLITE,
    ),
    Mutation(
        "proving: each run has a world of its own",
        CRASHING,
        "            connection.savepoint_rollback(savepoint)\n",
        "",
        f"{CRASHES}InATestCase::test_each_way_out_undoes_the_world",
        SQLITE,
    ),
    Mutation(
        "proving: and so has one in a test without a transaction",
        CRASHING,
        "            transaction.set_rollback(True, using=alias)\n",
        "            pass\n",
        f"{CRASHES}WithoutATransaction::test_each_way_out_undoes_the_world",
        SQLITE,
    ),
    Mutation(
        "proving: a crash alone ends no job of one attempt",
        CRASHING,
        'max_attempts=F("max_attempts") + 1)',
        'max_attempts=F("max_attempts"))',
        f"{CRASHES}test_what_is_seen_in_the_loop_is_the_end_of_the_job",
        SQLITE,
    ),
    Mutation(
        "proving: other work does not run",
        CRASHING,
        "rows.update(queue=self._queue, ",
        "self._served = QueueSelection()\n        rows.update(",
        f"{CRASHES}test_other_work_does_not_run_and_a_delayed_job_is_waited_for",
        SQLITE,
    ),
)
